"""Appends of the group coordinators: the records of an operation as one batch of its slot's log."""

from __future__ import annotations

import logging
from typing import Final

from kbroker.errors import ClientError, DiskError, ErrorCode, LateError
from kbroker.ext.records import build
from kbroker.group.codes import coordinator_code
from kbroker.group.host import Host
from kbroker.group.outcome import Outcome
from kbroker.group.room_wait import RoomWait
from kbroker.group.slot import Slot
from kbroker.metadata.records.wire import RecordError
from kbroker.storage.manager import LogPort

_LOG: Final = logging.getLogger("kbroker.group")


class Appends:
    """Writes the records of operations. Owned by the control thread."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._room = RoomWait()

    def append(self, slot: Slot, outcome: Outcome) -> ErrorCode:
        """Write the records as one batch; the error that kept it from being written. Raises
        LateError while the append is under way."""
        log = slot.log
        producer_id, epoch = outcome.producer or (-1, -1)
        try:
            batch = build(
                self._pairs(slot, outcome),
                codec=self._host.codec(),
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=outcome.producer is not None,
            )
            if len(batch) > self._host.batch_bytes_max():
                raise ClientError(ErrorCode.MESSAGE_TOO_LARGE)
            if log is None:
                return ErrorCode.NOT_COORDINATOR
            room_wait_ms = self._room.ms(log.directory)
            log.append(batch, leader_epoch=log.leader_epoch, room_wait_ms=room_wait_ms)
        except LateError:
            raise
        except (ClientError, DiskError, OSError) as error:
            place = -1 if log is None else log.directory
            if self._room.failed(place, error):
                _LOG.warning("__consumer_offsets-%d takes no record: %s", slot.partition, error)
            return coordinator_code(error)
        except (RecordError, ValueError) as error:  # a string over 32,767 bytes
            _LOG.warning("__consumer_offsets-%d has no record for that: %s", slot.partition, error)
            return ErrorCode.INVALID_REQUEST
        except Exception:
            _LOG.exception("__consumer_offsets-%d takes no record", slot.partition)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self.done(log)
        return ErrorCode.NONE

    def _pairs(self, slot: Slot, outcome: Outcome) -> list[tuple[int, bytes, bytes | None]]:
        """Timestamp, key and value of each record. Raises what a commit's records came to."""
        if outcome.batch is None:
            now_ms = self._host.clock.wall_ms()
            return [(now_ms, *slot.records.encode(record)) for record in outcome.records]
        if outcome.batch.error is not None:
            raise outcome.batch.error
        return outcome.batch.pairs

    def done(self, log: LogPort) -> None:
        """Note that an append to the log has succeeded."""
        self._room.done(log.directory)

    def plain_bytes_max(self) -> int | None:
        """Most bytes of a batch that is not compressed; None where batches are."""
        return self._host.batch_bytes_max() if self._host.codec() == "none" else None
