"""Stand-ins for the data plane, with what the control plane asks of it and nothing more."""

from __future__ import annotations

from typing import Any

from kbroker.errors import ClientError, ErrorCode
from kbroker.ext import records
from kbroker.ext.pulses import Pulses
from kbroker.storage.manager import Opening


class FakeLog:
    """A log in memory: batches that were appended, watermarks and calls that a test sets and
    looks at. Where it is not `durable`, the high watermark stays behind."""

    directory = 0

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.config = dict(opening.spec.config)
        self.log_start_offset = opening.log_start_offset
        self.high_watermark = 0
        self.last_stable_offset = 0
        self.log_end_offset = 0
        self.recovery_point = opening.recovery_point
        self.size_bytes = 0
        self.leader_epoch = 0
        self.epochs: list[tuple[int, int]] = []
        self.old_segments: list[int] = []
        self.batches: list[tuple[int, bytes]] = []
        self.durable = True
        self.closed: bool | None = None
        self.deleted = False
        self.offline_errno = 0

    def hold(self, start: int, stable: int, high: int, end: int) -> None:
        """Set the watermarks."""
        self.log_start_offset, self.last_stable_offset = start, stable
        self.high_watermark, self.log_end_offset = high, end

    def append(
        self, batches: bytes, *, leader_epoch: int, room_wait_ms: int = -1,
        transaction_version: int = 0,
    ) -> tuple[int, int]:  # fmt: skip
        base = self.log_end_offset
        (found,) = records.batches(batches)
        own = bytearray(batches)
        records.assign(own, base, leader_epoch)
        self.batches.append((base, bytes(own)))
        self.log_end_offset = base + found.last_offset_delta + 1
        if self.durable:
            self.high_watermark = self.log_end_offset
        return base, self.log_end_offset - 1

    def read(self, offset: int, max_bytes: int, *, up_to: str = "high_watermark") -> bytes:
        return b"".join(batch for base, batch in self.batches if base >= offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        known = [found for found in self.epochs if found[0] <= epoch]
        return known[-1] if known else (-1, -1)

    def set_log_start_offset(self, offset: int) -> None:
        if offset > self.high_watermark:
            raise ClientError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start_offset = offset

    def delete_old_segments(self, now_ms: int) -> list[int]:
        retired, self.old_segments = self.old_segments, []
        return retired

    def unlink_deleted(self, *, at_once: bool = False) -> int:
        return 0

    def flush_due(self, now_ms: int, idle_ms: int) -> bool:
        return self.recovery_point < self.log_end_offset

    def let_go(self, now_ms: int, idle_ms: int) -> int:
        return 0

    def expire_producers(self, now_ms: int) -> int:
        return 0

    def flush(self) -> int:
        self.recovery_point = self.log_end_offset
        return self.recovery_point

    def configure(self, config: dict[str, int]) -> None:
        self.config = dict(config)

    def close(self, clean: bool = True, *, sync: bool = True) -> None:
        self.closed = clean

    def mark_deleted(self) -> None:
        self.deleted = True

    def take_offline(self, error: int) -> None:
        self.offline_errno = error


class FakeEngine:
    """What ApiVersions would answer."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.keys: list[tuple[int, int, int, int]] = []

    def set_api_versions(self, bodies, keys) -> None:
        self.bodies, self.keys = dict(bodies), list(keys)


class FakeDataPlane:
    """The table of topics as the data plane was told."""

    rights_version = 0
    denied = 0

    def journal_error(self, place: int = 0) -> int:
        return 0

    def set_disk_room(self, room, refusing, place=0) -> None:
        self.rooms[place] = room

    def move(self, log, future, gone, target, place) -> int:
        return 0

    def errors(self) -> list[dict[int, int]]:
        return [{29: self.denied}, {}, {}, {}]

    def verify_transactions(self, verify: bool) -> None:
        pass

    def rights_changed(self, version: int) -> None:
        self.rights_version = version

    def tell_control(self, log: Any, offset: int) -> bool:
        return True

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.rooms: dict[int, int | None] = {}
        self.pulses = Pulses()
        self.topics: dict[str, list] = {}
        self.internal: set[str] = set()
        self.woken: list[FakeLog] = []
        self.threads = (0, 0)
        self.limits: tuple[int, int, list[tuple[bytes, int]]] | None = None
        self.quotas: dict[tuple[int, bytes | None], dict[str, float]] = {}
        self.rates: tuple[float | None, list[tuple[bytes, float]]] = (None, [])

    def add_topic(self, name, topic_id, logs, internal=False) -> None:
        name.encode()
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        self.topics[name] = list(logs)
        (self.internal.add if internal else self.internal.discard)(name)

    def remove_topic(self, name) -> bool:
        name.encode()
        self.internal.discard(name)
        return self.topics.pop(name, None) is not None

    def counts(self) -> tuple[int, int, int]:
        return len(self.topics), sum(map(len, self.topics.values())), 0

    def remove_topics(self, names) -> int:
        return sum(self.remove_topic(name) for name in names)

    def wake(self, log) -> None:
        self.woken.append(log)

    def resize_threads(self, network_threads, io_threads) -> None:
        self.threads = network_threads, io_threads

    def set_quotas(self, user, client_id, values) -> None:
        self.quotas[user, client_id] = dict(values)

    def limit_listeners(self, rate, exempt, limits) -> None:
        self.listener_limits = rate, exempt, dict(limits)

    def limit_addresses(self, others, rates) -> None:
        self.rates = others, list(rates)

    def limit_connections(self, most, per_ip, overrides) -> None:
        self.limits = most, per_ip, overrides
