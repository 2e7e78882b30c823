"""End markers: the control batch that ends a transaction in one partition.

The key of its record says commit or abort, its value the epoch of the coordinator, by which a later
one fences an earlier. In a partition of `__consumer_offsets` the marker ends the offsets that are
pending there, too.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.ext.records import build
from kbroker.group.room_wait import RoomWait
from kbroker.storage.manager import LogPort
from kbroker.txn.transaction import Partition, Transaction

CONSUMER_OFFSETS: Final = "__consumer_offsets"
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
_VERSION: Final = 0
_LOG: Final = logging.getLogger("kbroker.txn")
_PASSED_OVER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Of a marker: the partition is gone, or somebody else has ended the transaction there."""


class Marker(NamedTuple):
    """`version`: of the transaction, which says how its epoch is judged (producers.pxd)."""

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    version: int


class Groups(Protocol):
    """The coordinator of groups (kbroker.group.runtime.GroupCoordinator)."""

    def end_transaction(
        self, partition: int, producer_id: int, committed: bool, append: Callable[[LogPort], None]
    ) -> LogPort:
        """Have the marker appended, and end what is pending of the producer. Raises ClientError
        while the partition is loading or lost."""


class Partitions(Protocol):
    """The broker's partitions."""

    def knows(self, partition: Partition) -> bool:
        """Whether the metadata has it."""

    def log(self, partition: Partition) -> LogPort | None:
        """Its log; None where the disk denies it."""

    def appended(self, log: LogPort) -> None:
        """Something was appended by other hands than the data plane's."""


class Markers:
    """Writes them. The control thread's."""

    def __init__(self, partitions: Partitions, groups: Groups, room: RoomWait) -> None:
        self._partitions = partitions
        self._groups = groups
        self._room = room

    def write(self, partition: Partition, marker: Marker, now_ms: int) -> tuple[LogPort, int]:
        """Append the marker to a partition: the log, and where it ends then. Raises ClientError,
        DiskError or OSError where it was not appended."""
        if not self._partitions.knows(partition):
            raise ClientError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        batch = build_marker(marker, now_ms)

        def append(log: LogPort) -> None:
            try:
                log.append(
                    batch,
                    leader_epoch=log.leader_epoch,
                    room_wait_ms=self._room.ms(log.directory),
                    transaction_version=marker.version,
                )
            except (ClientError, DiskError, OSError) as error:
                self._room.failed(log.directory, error)
                raise
            self._room.done(log.directory)

        topic, index = partition
        if topic == CONSUMER_OFFSETS:
            log = self._groups.end_transaction(index, marker.producer_id, marker.commit, append)
        else:
            found = self._partitions.log(partition)
            if found is None:
                raise ClientError(ErrorCode.KAFKA_STORAGE_ERROR)
            log = found
            append(log)
        self._partitions.appended(log)
        return log, log.log_end_offset

    def have_later_epoch(self, now: Transaction) -> bool:
        """Whether a partition of the transaction has its producer in a later epoch."""
        logs = [self._partitions.log(one) for one in now.partitions if self._partitions.knows(one)]
        return any(
            producer_id == now.producer_id and epoch > now.epoch
            for log in logs
            if log is not None
            for producer_id, epoch, *_ in log.producers()
        )


def build_marker(marker: Marker, now_ms: int) -> bytes:
    """The control batch."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.commit else _ABORT)
    return build(
        [(now_ms, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))],
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transactional=True,
        control=True,
    )


def is_passed_over(name: str, partition: Partition, error: Exception) -> bool:
    """Whether the transaction ends without a marker in the partition, where this one failed."""
    if not isinstance(error, ClientError) or error.code not in _PASSED_OVER:
        return False
    _LOG.info("no marker of transaction %s in %s-%d: %s", name, *partition, error.code.name)
    return True
