"""Changes of transactional ids on their way into `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kbroker.errors import ClientError, DiskError, ErrorCode, LateError
from kbroker.ext.records import build
from kbroker.group.codes import coordinator_code
from kbroker.group.pauses import Pauses
from kbroker.group.room_wait import RoomWait
from kbroker.group.slot_loads import ACTIVE
from kbroker.metadata.records.wire import RecordError
from kbroker.storage.manager import LogPort
from kbroker.txn import records
from kbroker.txn.host import Host
from kbroker.txn.slot import Slot
from kbroker.txn.transaction import Transaction

_LOG: Final = logging.getLogger("kbroker.txn")

Changes = Iterable[tuple[str, Transaction | None]]
"""Transactional ids as they are from here on; None forgets one."""


def _nothing() -> None:
    """Do nothing: the client has its answer."""


class Writer:
    """Appends them. Of the control thread."""

    def __init__(self, host: Host, room: RoomWait) -> None:
        self._host = host
        self._room = room
        self._pauses = Pauses(host.clock, coordinator_code)

    def write(self, slot: Slot, changes: Changes, taken: Callable[[], None]) -> None:
        """Append them as one batch, then call `taken`. Raises ClientError where that failed, or is
        not over: then the slot pauses, and `taken` may be called later."""
        try:
            self._append(slot, changes)
        except LateError as late:
            resume = partial(self._resume, slot, slot.transactions, taken)
            self._pauses.begin(slot, late.append, resume, _nothing)
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        taken()

    def _resume(
        self,
        slot: Slot,
        before: dict[str, Transaction],
        taken: Callable[[], None],
        error: ErrorCode,
        _took_ms: int,
    ) -> None:
        log = slot.log
        if log is None or slot.state != ACTIVE or slot.transactions is not before:
            return  # it is read anew
        if error == ErrorCode.NONE:
            self._appended(log)
            taken()

    def _append(self, slot: Slot, changes: Changes) -> None:
        log = slot.active_log()
        version = 1 if self._host.settings().version >= 1 else 0
        now_ms = self._host.clock.wall_ms()
        try:
            batch = build(
                [(now_ms, *records.encode(name, value, version)) for name, value in changes]
            )
            room_wait_ms = self._room.ms(log.directory)
            log.append(batch, leader_epoch=log.leader_epoch, room_wait_ms=room_wait_ms)
        except LateError:
            raise
        except (ClientError, DiskError, OSError) as error:
            if self._room.failed(log.directory, error):
                _LOG.warning("__transaction_state-%d takes no record: %s", slot.partition, error)
            raise ClientError(coordinator_code(error)) from None
        except (RecordError, ValueError) as error:  # a transactional id over 32,767 bytes
            raise ClientError(ErrorCode.INVALID_REQUEST, str(error)) from None
        self._appended(log)

    def _appended(self, log: LogPort) -> None:
        self._room.done(log.directory)
        self._host.appended(log)

    def next_ms(self) -> int | None:
        """When to `look` again (monotonic); None while no slot pauses."""
        return self._pauses.next_ms()

    def look(self) -> None:
        """Go on with slots whose append is over."""
        self._pauses.look()

    def clear(self) -> None:
        """The slots are given up."""
        self._pauses.clear()
