"""Offsets that transactions have committed and that wait for the transactions' ends.

They are kept by producer id, and by key, for which at most one is pending of each producer. A
commit outside of transactions that stands behind a pending one in the log wins over it: the
pending one still makes the offset unstable until its transaction ends, but has no effect then. So
it is with two transactions on one key: the later commit wins, whichever of them ends first.
"""

from __future__ import annotations

from collections.abc import Iterator

Key = tuple[str, str, int]


class PendingOffsets:
    """See the module. Values are packed (kbroker.group.committed)."""

    def __init__(self) -> None:
        self._of_producer: dict[int, dict[Key, bytes | None]] = {}
        self._producers: dict[Key, list[int]] = {}
        self._keys_of_group: dict[str, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def has_group(self, group: str) -> bool:
        """Whether an offset of the group is pending."""
        return group in self._keys_of_group

    def has(self, group: str, topic: str, partition: int) -> bool:
        """Whether an offset is pending."""
        return bool(self._producers) and (group, topic, partition) in self._producers

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._producers))

    def of_group(self, group: str) -> list[Key]:
        """What is pending of a group."""
        return list(self._keys_of_group.get(group, ()))

    def put(self, producer_id: int, key: Key, data: bytes | None) -> None:
        """A commit of a transaction; None where it has no effect any more."""
        self._of_producer.setdefault(producer_id, {})[key] = data
        producers = self._producers.get(key)
        if producers is None:
            producers = self._producers[key] = []
            self._keys_of_group.setdefault(key[0], {})[key] = None
        elif producer_id in producers:
            producers.remove(producer_id)
        producers.append(producer_id)

    def overrule(self, key: Key) -> None:
        """A commit outside of transactions came: what is pending has no effect any more."""
        for producer_id in self._producers.get(key, ()):
            self._of_producer[producer_id][key] = None

    def drop(self, key: Key) -> None:
        """The key was deleted, and with it what is pending for it."""
        for producer_id in self._producers.get(key, ()):
            self._forget(producer_id, key)
        self._unlist(key)

    def end(self, producer_id: int) -> list[tuple[Key, bytes]]:
        """A transaction ends; what takes effect should it have committed."""
        ended = self._of_producer.pop(producer_id, {})
        effective = []
        for key, data in ended.items():
            producers = self._producers[key]
            at = producers.index(producer_id)
            if data is not None:
                effective.append((key, data))
                for earlier in producers[:at]:
                    self._of_producer[earlier][key] = None
            del producers[at]
            if not producers:
                self._unlist(key)
        return effective

    def abort(self, producer_id: int) -> None:
        """A transaction ends without effect."""
        for key in self._of_producer.pop(producer_id, {}):
            producers = self._producers[key]
            producers.remove(producer_id)
            if not producers:
                self._unlist(key)

    def _forget(self, producer_id: int, key: Key) -> None:
        pending = self._of_producer[producer_id]
        pending.pop(key, None)
        if not pending:
            del self._of_producer[producer_id]

    def _unlist(self, key: Key) -> None:
        if self._producers.pop(key, None) is None:
            return
        keys = self._keys_of_group[key[0]]
        del keys[key]
        if not keys:
            del self._keys_of_group[key[0]]
