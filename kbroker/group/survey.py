"""All groups with what they committed, for metrics: looked through a few milliseconds at a time.

The control thread owns the groups, so it has to look; whoever waits for it is another thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kbroker.group.runtime import GroupCoordinator

_STEP_NS: Final = 1_000_000


class GroupView(NamedTuple):
    """A group as it was. `offsets`: by topic and partition, packed as kbroker.group.committed."""

    group_id: str
    kind: str
    state: str
    members: int
    offsets: dict[str, dict[int, bytes]]


class Survey:
    """One look at all groups; made and waited for on one thread, run on the control thread."""

    def __init__(
        self, groups: GroupCoordinator, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self._groups = groups
        self._post = post
        self._found: list[GroupView] = []
        self._done = threading.Event()
        self._given_up = False
        self._walk = self._views()

    def wait(self, timeout_s: float) -> list[GroupView] | None:
        """All groups; None where the control thread did not get so far in time."""
        self._post(self._step)
        if self._done.wait(timeout_s):
            return self._found
        self._given_up = True
        return None

    def _step(self) -> None:
        until_ns = time.monotonic_ns() + _STEP_NS
        for view in self._walk:
            self._found.append(view)
            if self._given_up:
                return
            if time.monotonic_ns() >= until_ns:
                self._post(self._step)
                return
        self._done.set()

    def _views(self) -> Iterator[GroupView]:
        """What comes and goes between two steps may be missed, and nothing else."""
        for room in self._groups.rooms_now():
            for group_id in list(room.shard.groups):
                group = room.shard.groups.get(group_id)
                if group is None:
                    continue
                offsets = room.offsets.committed.topics(group_id)
                yield GroupView(
                    group_id,
                    group.kind,
                    group.state_name,
                    len(getattr(group, "members", ())),
                    {topic: dict(partitions) for topic, partitions in offsets.items()},
                )
