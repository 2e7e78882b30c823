"""The coordinators of all groups: one slot for each partition of `__consumer_offsets`.

An operation runs to its end on the control thread: its records are appended as one batch, replayed,
and its answer waits in the data plane for the disk. Nothing here waits. A slot is loading (a thread
reads its partition, the control thread folds what it read, a piece at a time), active or failed;
requests for a slot that is not active are refused with the error that makes clients ask again.

Owned by the control thread; only `Host.post` may be called from another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import ClientError, DiskError, ErrorCode, LateError
from kbroker.group.appends import Appends
from kbroker.group.codes import coordinator_code
from kbroker.group.host import Host
from kbroker.group.outcome import (
    DEFERRED,
    Answer,
    Now,
    Outcome,
    Response,
    send_when_durable,
)
from kbroker.group.part import Call, Operation, Part, keep_last
from kbroker.group.partition import group_partition
from kbroker.group.pauses import Pauses, waits
from kbroker.group.settings import GroupSettings
from kbroker.group.shard import Shard
from kbroker.group.slot import Slot, SlotReply
from kbroker.group.slot_loads import (
    ACTIVE,
    FAILED,
    LOADING,
    LoadFigures,
    SlotLoads,
    check_all_served,
    load_figures,
)
from kbroker.group.timers import Timers
from kbroker.group.unwritten import Unwritten
from kbroker.operations import Steps
from kbroker.storage.manager import LogPort

if TYPE_CHECKING:
    from kbroker.group.commits import Commit, CommitBatch, TxnCommit
    from kbroker.group.records import Records
    from kbroker.group.rooms import Rooms

_LOG: Final = logging.getLogger("kbroker.group")

Refusal = Callable[[GroupSettings], "Response | None"]
"""What is wrong with a request whatever its group: its answer, None for nothing; may raise
ClientError."""

def _nothing_wrong(settings: GroupSettings) -> None:
    return None


class GroupCoordinator:
    """See the module."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._timers = Timers()
        self._loads = SlotLoads(_LOG, host, self._timers, self._open)
        self._slots: list[Slot] = []
        self._appended = 0
        self._due_ms: int | None = None
        self._opened_ms = 0
        self._stopped = False
        self._appends = Appends(host)
        self._unwritten = Unwritten(self._appends.plain_bytes_max)
        self._pauses = Pauses(host.clock, coordinator_code)

    # ---- the partitions

    def open(self) -> None:
        """Take over the partitions of `__consumer_offsets` that are ready and were not: load them.
        The others stay in loading until their logs are made. To be called whenever topics or logs
        have come.

        Partitions that are added later get no groups before the next start, as in Apache Kafka:
        the number of partitions decides where a group is.
        """
        if self._stopped or not self._host.partitions():
            return
        if not self._slots:
            self._opened_ms = self._host.clock.monotonic_ms()
            self._slots = [
                Slot(partition, partial(self._furnish, partition))
                for partition in range(self._host.partitions())
            ]
        self._loads.load_ready(self._slots, self._host.log, self._host.is_offline)

    def _furnish(self, partition: int) -> tuple[Rooms, Records]:
        # A broker without groups starts 40 ms sooner without their rooms.
        from kbroker.group.records import Records  # noqa: PLC0415
        from kbroker.group.rooms import Rooms  # noqa: PLC0415

        host = self._host
        shard = Shard(partition, host.settings(), host.topics, host.pulses, self._unwritten)
        return Rooms(shard), Records(partition)

    def close(self) -> None:
        """Give up all partitions: `__consumer_offsets` was deleted."""
        slots, self._slots = self._slots, []
        self._timers.clear()
        self._pauses.clear()
        self._due_ms = None
        for slot in slots:
            slot.state = FAILED
            slot.rooms.unload()
            for reply in list(slot.waiting):
                reply.fail(ErrorCode.NOT_COORDINATOR)

    def stop(self) -> None:
        """Answer what waits, take nothing more."""
        self._stopped = True
        self._loads.stop()
        self.close()

    def reconfigure(self) -> None:
        """The settings may have changed."""
        settings = self._host.settings()
        for slot in self._slots:
            slot.shard.settings = settings

    def topics_deleted(self, names: Sequence[str]) -> Steps[None]:
        """Delete the committed offsets of topics that were deleted."""
        for slot in list(self._slots):
            if slot.state == ACTIVE:
                self._forget_topics(slot, names, self._now())
            yield

    def _forget_topics(self, slot: Slot, names: Sequence[str], now: Now) -> None:
        if slot.paused:
            slot.missed.append(partial(self._forget_topics, slot, names))
            return
        try:
            self._carry_out(slot, slot.rooms.offsets.forget_topics(names, now), None)
        except Exception:
            _LOG.exception("offsets of deleted topics in __consumer_offsets-%d stay",
                           slot.partition)  # fmt: skip

    def _open(self, slot: Slot) -> None:
        """A slot is loaded: its groups go on."""
        for outcome in slot.shard.loaded(self._now()):
            self._carry_out(slot, outcome, None)
        if slot.log is not None and slot.log.log_end_offset and not self.loading:
            self._tell_loaded()

    def _tell_loaded(self) -> None:
        _LOG.info(
            "loaded %d groups and %d committed offsets in %d ms",
            sum(len(slot.shard.groups) for slot in self._slots),
            sum(len(slot.rooms.offsets.committed) for slot in self._slots),
            self._host.clock.monotonic_ms() - self._opened_ms,
        )

    def load_figures(self) -> LoadFigures:
        """For metrics; any thread may ask."""
        return load_figures(self._slots)

    @property
    def loading(self) -> bool:
        """Whether a partition is still being read."""
        return any(slot.state == LOADING for slot in self._slots)

    # ---- requests

    def handle(
        self,
        group_id: str,
        answer: Answer,
        operation: Operation,
        *,
        refusal: Refusal = _nothing_wrong,
        gated: bool = True,
    ) -> Response:
        """Run the operation of a request on its group's slot; answers DEFERRED.

        What `refusal` finds wrong is answered where the slot cannot serve, too; the operation looks
        at it by itself. Not gated: the answer does not wait for the disk, for heartbeats. Raises
        ClientError with the coordinator's code where the operation did not take place.
        """
        slot = self._slots[group_partition(group_id, len(self._slots))] if self._slots else None
        if slot is not None and waits(slot):
            slot.resumed.on_done(
                lambda _: self._handle_later(group_id, answer, operation, refusal, gated)
            )
            return DEFERRED
        try:
            slot = self._slot(group_id)
            slot.check_active()
        except ClientError:
            refused = None if self._stopped else refusal(self._host.settings())
            if refused is None:
                raise
            return refused
        reply = SlotReply(slot, answer, gated)
        try:
            self._carry_out(slot, self._operate(operation, slot, reply), reply)
        except Exception:
            if not reply.done:
                reply.drop()
                raise
            _LOG.exception("a group request went wrong after its answer")
        if not reply.done:
            slot.waiting.add(reply)
        return DEFERRED

    def commit_batch(self, commit: Commit | TxnCommit) -> Steps[CommitBatch]:
        """Build the batch of a commit, before it is handled."""
        from kbroker.group.commits import build_batch  # noqa: PLC0415  as Rooms

        settings = self._slots[0].shard.settings if self._slots else self._host.settings()
        return (yield from build_batch(
            commit, self._host.clock.wall_ms(), settings.offset_metadata_max_bytes,
            self._appends.plain_bytes_max(),
        ))  # fmt: skip

    def _handle_later(
        self,
        group_id: str,
        answer: Answer,
        operation: Operation,
        refusal: Refusal,
        gated: bool,
    ) -> None:
        """Handle a request that has waited for a pause to end."""
        try:
            response = self.handle(group_id, answer, operation, refusal=refusal, gated=gated)
        except ClientError as error:
            answer.fail(error.code, str(error))
        except Exception as error:
            _LOG.exception("a group request failed")
            answer.fail(coordinator_code(error))
        else:
            if response is not DEFERRED:
                answer.send(response)

    def _operate(self, operation: Operation, slot: Slot, reply: SlotReply) -> Outcome:
        try:
            return operation(slot.rooms, reply, self._now())
        except (ClientError, DiskError, OSError) as error:
            raise ClientError(coordinator_code(error), str(error)) from None

    def each(
        self,
        calls: Iterable[Call],
        answer: Answer,
        finish: Callable[[list[Response]], Steps[Response]],
    ) -> Steps[Response]:
        """Run parts of one request, each on its own slot and in a step of its own; the answer waits
        for all of them.

        The operations answer at once, by their outcome. Returns DEFERRED.
        """
        parts: list[Response] = []
        last: dict[int, Slot] = {}
        for call in calls:
            yield
            part = Part()
            try:
                slot = self._slot(call.group_id)
                if waits(slot):
                    yield slot.resumed
                    slot = self._slot(call.group_id)
                slot.check_active()
                reply = SlotReply(slot, part, False)
                self._carry_out(slot, call.operation(slot.rooms, reply, self._now()), reply)
                if part.response is None and part.error is None:
                    yield slot.resumed
                    if part.response is None and part.error is None:  # the slot was given up
                        raise ClientError(ErrorCode.NOT_COORDINATOR)
                if not slot.paused:
                    keep_last(last, slot)
            except (ClientError, DiskError, OSError) as error:
                part.fail(coordinator_code(error), str(error))
            if part.error is not None:
                part.response = call.failed(*part.error)
            assert part.response is not None
            parts.append(part.response)
        logs = [slot.log for slot in last.values() if slot.log is not None]
        timeouts = [slot.shard.settings.offsets_commit_timeout_ms for slot in last.values()]
        response = yield from finish(parts)
        send_when_durable(logs, answer, response, max(timeouts, default=0))
        return DEFERRED

    # ---- transactions

    @property
    def partitions(self) -> int:
        """Partitions that hold groups; 0 where there are none."""
        return len(self._slots)

    def in_transaction(self, group_id: str, producer_id: int, epoch: int) -> bool:
        """Whether the group's partition has an open transaction of the producer. Raises ClientError
        while its slot cannot serve."""
        slot = self._slot(group_id)
        slot.check_active()
        try:
            return slot.log is not None and slot.log.in_transaction(producer_id, epoch)
        except ClientError as error:  # somebody stands in the disk with the log
            raise ClientError(coordinator_code(error)) from None

    def end_transaction(
        self, partition: int, producer_id: int, committed: bool, append: Callable[[LogPort], None]
    ) -> LogPort:
        """Have the marker appended to a partition, and end what is pending of the producer there.
        Raises ClientError while the partition is loading or lost, and what `append` raises."""
        slot = self._slots[partition] if partition < len(self._slots) else None
        log = self._host.log(partition) if slot is None else slot.log
        if log is None or (slot is not None and not slot.serves):
            raise ClientError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if slot is None:
            append(log)
            return log
        end = partial(slot.rooms.offsets.end_transaction, producer_id, committed)
        try:
            append(log)
        except LateError as late:
            marked = Outcome(then=partial(_after_marker, end))
            self._begin_pause(slot, late, partial(self._resume, slot, marked, None))
            raise
        end()
        self._number(slot)
        return log

    def all_rooms(self) -> list[Rooms]:
        """The rooms of all partitions in order. Raises ClientError while a partition is loading, or
        cannot be read: some would be missing."""
        if self._stopped:
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        check_all_served(self._slots)
        return [slot.rooms for slot in self._slots]

    def rooms_now(self) -> list[Rooms]:
        """The rooms of all partitions that serve."""
        return [slot.rooms for slot in self._slots if slot.state == ACTIVE]

    def _slot(self, group_id: str) -> Slot:
        if self._stopped:
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self._slots:
            raise ClientError(ErrorCode.NOT_COORDINATOR)
        return self._slots[group_partition(group_id, len(self._slots))]

    # ---- outcomes

    def _now(self) -> Now:
        return Now(self._host.clock.wall_ms(), self._host.clock.monotonic_ms())

    def _carry_out(self, slot: Slot, outcome: Outcome | None, reply: SlotReply | None) -> None:
        while outcome is not None:
            try:
                error = ErrorCode.NONE
                if outcome.records:
                    error = self._appends.append(slot, outcome)
                    if error == ErrorCode.NONE:
                        self._number(slot)
            except LateError as late:
                self._pause(slot, outcome, reply, late)
                return
            outcome = self._settle(slot, outcome, reply, error)
        self._look_at_timers(slot)

    def _look_at_timers(self, slot: Slot) -> None:
        due_ms = slot.shard.timers.next_ms()
        if due_ms is not None and (self._due_ms is None or due_ms < self._due_ms):
            self._due_ms = due_ms

    def _settle(
        self, slot: Slot, outcome: Outcome, reply: SlotReply | None, error: ErrorCode
    ) -> Outcome | None:
        """The records are written, or an error has kept them from that; what comes next."""
        if error == ErrorCode.NONE:
            self._replay(slot, outcome)
        if outcome.response is not None and reply is not None:
            if error == ErrorCode.NONE:
                reply(outcome.response)
            else:
                reply.fail(error)
        return None if outcome.then is None else outcome.then(error)

    def _pause(
        self, slot: Slot, outcome: Outcome, reply: SlotReply | None, late: LateError
    ) -> None:
        """The operation continues when the append has ended."""
        self._begin_pause(slot, late, partial(self._resume, slot, outcome, reply), reply)

    def _begin_pause(
        self,
        slot: Slot,
        late: LateError,
        resume: Callable[[ErrorCode, int], None],
        reply: SlotReply | None = None,
    ) -> None:
        before = slot.appended
        self._number(slot)

        def over(error: ErrorCode, took_ms: int) -> None:
            if error != ErrorCode.NONE:  # it has no record to wait for
                slot.appended = before
            resume(error, took_ms)

        def give_up() -> None:
            if reply is not None:
                reply.give_up(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        self._pauses.begin(slot, late.append, over, give_up)

    def _resume(
        self,
        slot: Slot,
        outcome: Outcome,
        reply: SlotReply | None,
        error: ErrorCode,
        took_ms: int,
    ) -> None:
        if error == ErrorCode.NONE and slot.log is not None:
            self._appends.done(slot.log)
        missed, slot.missed = slot.missed, []
        try:
            self._carry_out(slot, self._settle(slot, outcome, reply, error), reply)
        except Exception:
            _LOG.exception("an operation on __consumer_offsets-%d went wrong", slot.partition)
        slot.shard.timers.delay(took_ms)  # those as well that it set by the time of its request
        self._look_at_timers(slot)
        for do in missed:
            do(self._now())

    @staticmethod
    def _replay(slot: Slot, outcome: Outcome) -> None:
        if outcome.batch is not None:
            producer_id = None if outcome.producer is None else outcome.producer[0]
            slot.rooms.offsets.take(outcome.batch, producer_id)
            return
        for record in outcome.records:
            if outcome.producer is None:
                slot.shard.replay(record)
            else:
                slot.rooms.offsets.replay_pending(outcome.producer[0], record)

    def _number(self, slot: Slot) -> None:
        self._appended += 1
        slot.appended = self._appended

    # ---- timers

    def next_due_ms(self) -> int | None:
        """When `run_due` has something to do (monotonic ms)."""
        return _earliest((self._due_ms, self._timers.next_ms(), self._pauses.next_ms()))

    def run_due(self, now_ms: int) -> None:
        """Do what is due in any slot, load again what could not be read, and go on with what has
        waited for the disk."""
        self._pauses.look()
        while (action := self._timers.pop_due(now_ms)) is not None:
            action(self._now())
        if self._due_ms is None or self._due_ms > now_ms:
            return
        for slot in self._slots:
            self._run_slot(slot, now_ms)
        self._due_ms = _earliest(
            slot.shard.timers.next_ms() for slot in self._slots if not slot.paused
        )

    def _run_slot(self, slot: Slot, now_ms: int) -> None:
        while not slot.paused and (action := slot.shard.timers.pop_due(now_ms)) is not None:
            try:
                self._carry_out(slot, action(self._now()), None)
            except Exception:
                _LOG.exception("a timer of __consumer_offsets-%d failed", slot.partition)


def _earliest(moments: Iterable[int | None]) -> int | None:
    return min((one for one in moments if one is not None), default=None)


def _after_marker(end: Callable[[], None], error: ErrorCode) -> None:
    """It was late. Where it is not there after all, its coordinator writes another."""
    if error == ErrorCode.NONE:
        end()
