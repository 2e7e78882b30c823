"""The coordinator of transactional ids: a slot for each partition of `__transaction_state`.

A step (kbroker.txn.steps) is appended as one record and then folded in; its answer waits in the
data plane for the disk. What follows from it outside of this log waits, too (`durable`): batches of
a transaction are appended when the disk knows that it has their partition, markers when it knows
that the transaction is prepared, and a transaction is complete when its markers are on disk. So
whatever a crash leaves, a transaction that was prepared is finished by the next start, and any
other is aborted by its timeout or by its producer's next start.

While a transaction ends, Apache Kafka answers CONCURRENT_TRANSACTIONS to what would begin the next
one, and has clients or itself ask again each 20 ms; here such requests wait for the end, but no
longer than Kafka would ask again (add.partitions.to.txn.retry.backoff.max.ms).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.group.codes import coordinator_code
from kbroker.group.outcome import DEFERRED, NOTHING, Answer, Now, Outcome, Response
from kbroker.group.outcome import send_when_durable as answer_when_durable
from kbroker.group.partition import group_partition
from kbroker.group.pauses import waits
from kbroker.group.room_wait import RoomWait
from kbroker.group.slot_loads import ACTIVE, FAILED, SlotLoads, check_all_served
from kbroker.group.timers import Timers
from kbroker.storage.manager import LogPort
from kbroker.txn import steps
from kbroker.txn.doubt import Doubt
from kbroker.txn.durable import Durable
from kbroker.txn.expiry import in_batches
from kbroker.txn.figures import Counts, Figures, figures_of
from kbroker.txn.host import Host
from kbroker.txn.markers import Marker, Markers, is_passed_over
from kbroker.txn.slot import Slot
from kbroker.txn.steps import Add, End, Producer
from kbroker.txn.transaction import (
    AT_REST,
    BUMPS_EPOCHS,
    PREPARED,
    Partition,
    State,
    Transaction,
)
from kbroker.txn.writer import Writer

_LOG: Final = logging.getLogger("kbroker.txn")

_AGAIN_MS: Final = 100
_NEXT_SLICE_MS: Final = 1  # a timer that is due at once belongs to the same slice
MARKERS_PER_SLICE: Final = 250
"""Markers that are written, or waited for, before other requests are served."""

Operation = Callable[[Slot, int], Response]
"""(slot, wall ms) -> answer; takes its step by `TransactionCoordinator.put`."""

Failed = Callable[[ErrorCode], Response]


def _nothing() -> None:
    """What follows from most steps."""


class TransactionCoordinator:
    """See the module."""

    def __init__(self, host: Host) -> None:
        self._host = host
        room = RoomWait()
        self._markers = Markers(host, host.groups, room)
        self._writer = Writer(host, room)
        self._slots: list[Slot] = []
        self._timers = Timers()
        self._loads = SlotLoads(_LOG, host, self._timers, self._opened)
        self._doubt = Doubt(self._markers.have_later_epoch, host.new_producer_id)
        self._stopped = False
        self.durable = Durable(host.tell)
        self.counts = Counts()

    # ---- the partitions

    def open(self) -> None:
        """Take over the partitions of `__transaction_state` that are ready and were not: load them.
        The others stay in loading until their logs are made. To be called whenever topics or logs
        have come."""
        if self._stopped or not self._host.partitions():
            return
        if not self._slots:
            self._slots = [Slot(index) for index in range(self._host.partitions())]
            self._look_for_overdue(self._now(), first=True)
            self._look_for_expired(self._now(), first=True)
        self._loads.load_ready(self._slots, self._host.state_log, self._host.is_offline)

    def close(self) -> None:
        """Give up all partitions: `__transaction_state` was deleted."""
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.state = FAILED
        self._writer.clear()
        self.durable.fail_all()
        self._timers.clear()
        for slot in slots:
            waiting = [again for calls in slot.waiting.values() for again in calls]
            slot.waiting.clear()
            for again in waiting:
                again()

    def stop(self) -> None:
        """Answer what waits, take nothing more."""
        self._stopped = True
        self._loads.stop()
        self.close()

    def _opened(self, slot: Slot) -> None:
        """Settle what is in doubt, finish what else was prepared. Raises ClientError or DiskError
        where that cannot be written; then the slot must not be served."""
        sure = slot.transactions.keys() - slot.in_doubt
        version, now_ms = self._host.settings().version, self._host.clock.wall_ms()
        for name in sorted(slot.in_doubt):
            now = slot.transactions[name]
            self.put(slot, name, self._doubt.settle(name, now, version, now_ms))
        slot.in_doubt.clear()
        for name in sorted(sure):
            state = slot.transactions[name].state
            if state in PREPARED:
                _LOG.info("finishing transaction %s: %s", name, state.label)
                self._write_markers(slot, name)

    # ---- requests

    def perform(
        self,
        transactional_id: str,
        operation: Operation,
        answer: Answer,
        failed: Failed,
        *,
        patient: bool = True,
    ) -> Response:
        """Answer a request by an operation on its slot, when what it appended is durable; answers
        DEFERRED. Where it meets a transaction that ends, it waits for that, if it is patient."""
        self._attempt(
            transactional_id,
            lambda slot, now_ms: self.answer(slot, answer, operation(slot, now_ms)),
            lambda code: answer.send(failed(code)),
            patient=patient,
        )
        return DEFERRED

    def answer(self, slot: Slot, answer: Answer, response: Response) -> None:
        """Answer when all that the slot has appended is durable."""
        self.answer_all([slot], answer, response)

    def answer_all(self, slots: Iterable[Slot], answer: Answer, response: Response) -> None:
        """The same of several."""
        logs = [slot.active_log() for slot in slots]
        answer_when_durable(logs, answer, response, self._host.settings().request_timeout_ms)

    def _attempt(
        self,
        transactional_id: str,
        do: Callable[[Slot, int], object],
        failed: Callable[[ErrorCode], object],
        *,
        patient: bool = True,
    ) -> None:
        again = partial(self._attempt, transactional_id, do, failed, patient=patient)
        if self._waits_for_disk(transactional_id, again):
            return
        try:
            slot = self.slot(transactional_id)
            do(slot, self._host.clock.wall_ms())
        except ClientError as error:
            if self._waits_for_disk(transactional_id, again):  # for its own step
                return
            if patient and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                again = partial(self._attempt, transactional_id, do, failed, patient=False)
                if self._wait(transactional_id, again):
                    return
            failed(error.code)
        except (DiskError, OSError) as error:
            failed(coordinator_code(error))

    def _waits_for_disk(self, transactional_id: str, again: Callable[[], None]) -> bool:
        """Whether the append of a step is under way; then `again` follows, as a client would try
        again: the step at hand is taken by then, or was refused."""
        if not self._slots:
            return False
        slot = self._slots[group_partition(transactional_id, len(self._slots))]
        if not waits(slot):
            return False
        slot.resumed.on_done(lambda _: again())
        return True

    def _wait(self, transactional_id: str, again: Callable[[], None]) -> bool:
        """Try again when the transaction at hand has ended, or after a while."""
        slot = self.slot(transactional_id)
        now = slot.transactions.get(transactional_id)
        if now is None or now.state not in PREPARED:
            return False
        calls = slot.waiting.setdefault(transactional_id, [])
        calls.append(again)
        name = (slot.partition, transactional_id, "patience")

        def give_up(now: Now) -> Outcome:
            self._try_again(slot, transactional_id)
            return NOTHING

        if name not in self._timers:
            patience_ms = self._host.settings().add_partitions_to_txn_retry_backoff_max_ms
            self._timers.schedule(name, self._now().monotonic_ms + patience_ms, give_up)
        return True

    def _try_again(self, slot: Slot, transactional_id: str) -> None:
        self._timers.cancel((slot.partition, transactional_id, "patience"))
        for again in slot.waiting.pop(transactional_id, ()):
            again()

    def slot(self, transactional_id: str) -> Slot:
        """The slot of an id. Raises ClientError while it cannot answer."""
        if not transactional_id:
            raise ClientError(ErrorCode.INVALID_REQUEST)
        if self._stopped:
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self._slots:
            raise ClientError(ErrorCode.NOT_COORDINATOR)
        slot = self._slots[group_partition(transactional_id, len(self._slots))]
        slot.active_log()
        return slot

    # ---- steps

    def put(
        self,
        slot: Slot,
        transactional_id: str,
        value: Transaction,
        then: Callable[[], None] = _nothing,
    ) -> None:
        """Take a step, `then` go on. Raises ClientError where it cannot be written; then it was not
        taken, or will be when a disk that hangs has let go of it."""

        def taken() -> None:
            slot.replay(transactional_id, value)
            if value.state in PREPARED:
                self._prepared(slot, transactional_id, value)
            then()

        self._writer.write(slot, [(transactional_id, value)], taken)

    def _prepared(self, slot: Slot, name: str, value: Transaction) -> None:
        log = slot.active_log()
        slot.unmarked[name] = sorted(value.partitions, reverse=True)
        self.durable.when(
            log,
            log.log_end_offset,
            lambda durable: self._write_markers(slot, name) if durable else None,
        )

    def init(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Callable[[Slot, int], Producer]:
        """InitProducerId: the producer as it goes on. One whose transaction is open has it aborted,
        and asks again."""
        if not 0 < timeout_ms <= self._host.settings().transaction_max_timeout_ms:
            raise ClientError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def operation(slot: Slot, now_ms: int) -> Producer:
            now = slot.transactions.get(transactional_id)
            new_id = self._host.new_producer_id
            value = steps.init(now, timeout_ms, expected, new_id, now_ms)
            if value.state is State.ONGOING:
                self._fence(slot, transactional_id, value, now_ms)
                return Producer(-1, -1)
            self.put(slot, transactional_id, value)
            return Producer(value.producer_id, value.epoch)

        return operation

    def _fence(self, slot: Slot, name: str, now: Transaction, now_ms: int) -> None:
        version = self._host.settings().version
        self.put(slot, name, steps.fence(now, version, self._host.new_producer_id, now_ms))

    def add(self, slot: Slot, transactional_id: str, asked: Add, now_ms: int) -> None:
        """Partitions become part of a transaction. Raises ClientError."""
        now = slot.transactions.get(transactional_id)
        value = steps.add(now, asked, now_ms)
        if value is not now:
            self.put(slot, transactional_id, value)

    def end(self, slot: Slot, transactional_id: str, asked: End, now_ms: int) -> Producer:
        """EndTxn: the producer that goes on, -1 below version 2. Raises ClientError."""
        now = slot.transactions.get(transactional_id)
        ended = steps.end(now, asked, self._host.new_producer_id, now_ms)
        if ended.transaction is not now:
            self.put(slot, transactional_id, ended.transaction)
        return ended.producer

    def begin_on(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[Partition],
        *,
        adds: bool,
        then: Callable[[Mapping[Partition, ErrorCode]], object],
    ) -> None:
        """A batch that opens the transaction on these partitions is to be appended: add them to it,
        or see whether they were. `then` is called with what was refused, when what was not is on
        disk."""

        def do(slot: Slot, now_ms: int) -> None:
            refused: Mapping[Partition, ErrorCode] = {}
            if adds:
                self.add(slot, transactional_id, Add(producer, partitions, BUMPS_EPOCHS), now_ms)
            else:
                now = slot.transactions.get(transactional_id)
                found = steps.verify(now, producer, partitions)
                refused = {one: code for one, code in found.items() if code}
            log = slot.active_log()
            lost = dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR)
            self.durable.when(
                log, log.log_end_offset, lambda durable: then(refused if durable else lost)
            )

        self._attempt(
            transactional_id,
            do,
            lambda code: then(dict.fromkeys(partitions, code)),
            patient=adds,
        )

    # ---- ends

    def _write_markers(self, slot: Slot, name: str) -> None:
        """The transaction is prepared, and the disk knows."""
        now = slot.transactions.get(name)
        if now is None or now.state not in PREPARED or slot.state != ACTIVE:
            return
        if slot.paused:
            self._later(slot, name, partial(self._write_markers, slot, name))
            return
        log = slot.active_log()
        commit = now.state is State.PREPARE_COMMIT
        marker = Marker(now.producer_id, now.epoch, commit, log.leader_epoch, now.version)
        left = slot.unmarked.setdefault(name, sorted(now.partitions, reverse=True))
        failed: list[Partition] = []
        for _ in range(min(len(left), MARKERS_PER_SLICE)):
            partition = left.pop()
            try:
                place = self._markers.write(partition, marker, self._host.clock.wall_ms())
                slot.marked.setdefault(name, []).append(place)
            except (ClientError, DiskError, OSError) as error:
                if not is_passed_over(name, partition, error):
                    failed.append(partition)
        others = bool(left)
        left[:0] = reversed(failed)
        if left:
            pause_ms = _NEXT_SLICE_MS if others else _AGAIN_MS
            self._later(slot, name, partial(self._write_markers, slot, name), pause_ms)
        else:
            self._when_marked(slot, name, slot.marked.get(name) or [(log, log.log_end_offset)])

    def _when_marked(self, slot: Slot, name: str, places: list[tuple[LogPort, int]]) -> None:
        """Complete the transaction when every log shows its marker: what one write of the journal
        has made durable is told to one log after the other, in no order."""
        rest = places[MARKERS_PER_SLICE:]

        def do(durable: bool) -> None:
            if not durable:
                self._rewrite_later(slot, name)
            elif rest:
                resume = partial(self._when_marked, slot, name, rest)
                self._later(slot, name, resume, _NEXT_SLICE_MS)
            else:
                self._complete(slot, name)

        self.durable.when_all(places[:MARKERS_PER_SLICE], do)

    def _later(
        self, slot: Slot, name: str, do: Callable[[], None], pause_ms: int = _AGAIN_MS
    ) -> None:
        def due(now: Now) -> Outcome:
            do()
            return NOTHING

        at_ms = self._now().monotonic_ms + pause_ms
        self._timers.schedule((slot.partition, name, "end"), at_ms, due)

    def _rewrite_later(self, slot: Slot, name: str) -> None:
        """A log with a marker went offline: all are written again, where that is possible."""
        slot.unmarked.pop(name, None)
        slot.marked.pop(name, None)
        self._later(slot, name, partial(self._write_markers, slot, name))

    def _complete(self, slot: Slot, name: str) -> None:
        now = slot.transactions.get(name)
        if now is None or now.state not in PREPARED or slot.state != ACTIVE:
            return
        ended = steps.complete(now, self._host.clock.wall_ms())
        try:
            self.put(slot, name, ended, partial(self._completed, slot, name, now.state))
        except ClientError:
            self._later(slot, name, partial(self._complete, slot, name))

    def _completed(self, slot: Slot, name: str, state: State) -> None:
        self._timers.cancel((slot.partition, name, "end"))
        slot.unmarked.pop(name, None)
        slot.marked.pop(name, None)
        self.counts.ended(state)
        self._try_again(slot, name)

    # ---- what happens by itself

    def _look_for_overdue(self, now: Now, *, first: bool = False) -> Outcome:
        settings = self._host.settings()
        interval_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._timers.schedule("overdue", now.monotonic_ms + interval_ms, self._look_for_overdue)
        stay: list[str] = []
        for slot in () if first else self._slots:
            for name in list(slot.ongoing):
                found = slot.transactions[name]
                serves = slot.state == ACTIVE and not slot.paused
                if serves and steps.is_overdue(found, now.wall_ms):
                    _LOG.info("transaction %s is open for more than %d ms: aborting it",
                              name, found.timeout_ms)  # fmt: skip
                    try:
                        self._fence(slot, name, found, now.wall_ms)
                        self.counts.timed_out += 1
                    except (ClientError, DiskError) as error:
                        stay.append(f"{name}: {error}")
        if stay:
            _LOG.warning("%d transactions stay open, the last %s", len(stay), stay[-1])
        return NOTHING

    def _look_for_expired(self, now: Now, *, first: bool = False) -> Outcome:
        settings = self._host.settings()
        interval_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._timers.schedule("expired", now.monotonic_ms + interval_ms, self._look_for_expired)
        before_ms = now.wall_ms - settings.transactional_id_expiration_ms
        for slot in () if first else self._slots:
            if slot.state != ACTIVE:
                continue
            gone = [
                name
                for name, found in slot.transactions.items()
                if found.state in AT_REST and found.updated_ms <= before_ms
            ]
            try:
                for names in in_batches(gone):
                    changes = [(name, None) for name in names]
                    self._writer.write(slot, changes, partial(slot.forget, names))
            except ClientError as error:
                _LOG.warning("expired transactional ids stay: %s", error)
        return NOTHING

    # ---- looking

    def all_transactions(self) -> list[tuple[str, Transaction]]:
        """Every transactional id. Raises ClientError while a partition is loading, or cannot be
        read: some would be missing."""
        if self._stopped:
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        check_all_served(self._slots)
        return [one for slot in self._slots for one in slot.transactions.items()]

    def figures(self) -> Figures:
        """For metrics; any thread may ask."""
        return figures_of(self._slots, self._host.clock.wall_ms())

    def write_marker(self, partition: Partition, marker: Marker) -> tuple[LogPort, int]:
        """WriteTxnMarkers on one partition: see Markers.write."""
        return self._markers.write(partition, marker, self._host.clock.wall_ms())

    # ---- timers

    def _now(self) -> Now:
        return Now(self._host.clock.wall_ms(), self._host.clock.monotonic_ms())

    def next_due_ms(self) -> int | None:
        """When `run_due` has something to do (monotonic ms)."""
        found = (self._timers.next_ms(), self._writer.next_ms())
        return min((one for one in found if one is not None), default=None)

    def run_due(self, now_ms: int) -> None:
        """Do what is on disk by now, and what is due."""
        self._writer.look()
        self.durable.run()
        while (action := self._timers.pop_due(now_ms)) is not None:
            try:
                action(self._now())
            except Exception:
                _LOG.exception("a timer of the transactions failed")
