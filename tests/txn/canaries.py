"""Machines that are broken on purpose. A model that lets one of them pass proves nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from kbroker.errors import ClientError, ErrorCode
from kbroker.txn.steps import Producer
from kbroker.txn.transaction import PREPARED, Partition
from tests.txn.machine import Break, Machine

_SELDOM = 20


def _seldom() -> Callable[[], bool]:
    turns = itertools.count(1)
    return lambda: next(turns) % _SELDOM == 0


def answers_before_the_disk(machine: Machine) -> None:
    """What was told may be lost with the next crash."""
    machine.transactions.answer = (  # type: ignore[method-assign]
        lambda slot, answer, response: answer.send(response)
    )


def markers_that_are_left_out(machine: Machine) -> None:
    """Now and then a partition gets no marker, and counts as done."""
    markers, seldom = machine.transactions._markers, _seldom()
    write = markers.write

    def broken(partition: Partition, marker: Any, now_ms: int) -> Any:
        if seldom():
            return machine.logs[partition], machine.logs[partition].log_end_offset
        return write(partition, marker, now_ms)

    markers.write = broken  # type: ignore[method-assign]


def markers_that_say_the_contrary(machine: Machine) -> None:
    """Now and then a partition is told of another end than the others."""
    markers, seldom = machine.transactions._markers, _seldom()
    write = markers.write

    def broken(partition: Partition, marker: Any, now_ms: int) -> Any:
        return write(partition, marker._replace(commit=marker.commit ^ seldom()), now_ms)

    markers.write = broken  # type: ignore[method-assign]


def timeouts_that_never_come(machine: Machine) -> None:
    """What is open stays open."""
    look = machine.transactions._look_for_overdue
    machine.transactions._look_for_overdue = (  # type: ignore[method-assign]
        lambda now, first=False: look(now, first=True)
    )


def ids_that_are_given_twice(machine: Machine) -> None:
    """Now and then a producer that begins gets what another has, and fences nobody."""
    init, seldom = machine.transactions.init, _seldom()

    def broken(name: str, timeout_ms: int, expected: Any) -> Any:
        operation = init(name, timeout_ms, expected)

        def lax(slot: Any, now_ms: int) -> Producer:
            now = slot.transactions.get(name)
            if now is None or now.state in PREPARED or not seldom():
                return operation(slot, now_ms)
            return Producer(now.producer_id, now.epoch)

        return lax

    machine.transactions.init = broken  # type: ignore[method-assign]


def batches_that_nobody_verifies(machine: Machine) -> None:
    """A batch of version 0 opens a transaction, however late it comes (as before KIP-890)."""
    begin_on = machine.transactions.begin_on

    def broken(name: str, producer: Producer, partitions: Any, *, adds: bool, then: Any) -> None:
        if adds:
            begin_on(name, producer, partitions, adds=adds, then=then)
        else:
            then({})

    machine.transactions.begin_on = broken  # type: ignore[method-assign, assignment]
    machine.guard = -1


def starts_that_finish_nothing(machine: Machine) -> None:
    """What a start finds prepared stays so."""
    transactions = machine.transactions
    write = transactions._write_markers
    transactions._write_markers = (  # type: ignore[method-assign]
        lambda slot, name: write(slot, name) if name in slot.unmarked else None
    )


def offsets_that_stay_pending(machine: Machine) -> None:
    """A group's offsets do not hear of the marker."""
    groups = machine.groups

    def broken(partition: int, producer_id: int, committed: bool, append: Any) -> Any:
        log = machine.logs["__consumer_offsets", partition]
        append(log)
        return log

    groups.end_transaction = broken  # type: ignore[method-assign, assignment]


def partitions_that_are_not_added(machine: Machine) -> None:
    """Now and then a batch opens a transaction that the coordinator does not know of."""
    begin_on, seldom = machine.transactions.begin_on, _seldom()

    def broken(name: str, producer: Producer, partitions: Any, *, adds: bool, then: Any) -> None:
        if seldom():
            then({})
        else:
            begin_on(name, producer, partitions, adds=adds, then=then)

    machine.transactions.begin_on = broken  # type: ignore[method-assign, assignment]


def ends_without_a_decision(machine: Machine) -> None:
    """Now and then EndTxn is answered and nothing is written."""
    end, seldom = machine.transactions.end, _seldom()

    def broken(slot: Any, name: str, asked: Any, now_ms: int) -> Producer:
        if seldom():
            return Producer(asked.producer.id, asked.producer.epoch + 1)
        return end(slot, name, asked, now_ms)

    machine.transactions.end = broken  # type: ignore[method-assign]


def transactions_that_a_start_forgets(machine: Machine) -> None:
    """Now and then a record of the state is passed over when it is loaded."""
    load, seldom = machine.load, _seldom()

    def broken(log: Any, *, strict: bool) -> Any:
        found = load(log, strict=strict)
        step = found.step
        found.step = lambda: [one for one in step() if not seldom()]
        return found

    machine.load = broken  # type: ignore[method-assign]


def ids_that_are_asked_for_before_the_end(machine: Machine) -> None:
    """Who goes on under the id that came with an end is not known before that is complete."""
    add = machine.transactions.add

    def broken(slot: Any, name: str, asked: Any, now_ms: int) -> None:
        now = slot.transactions.get(name)
        if now is not None and now.producer_id != asked.producer.id:
            raise ClientError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        add(slot, name, asked, now_ms)

    machine.transactions.add = broken  # type: ignore[method-assign]


BREAKS: tuple[Break, ...] = (
    answers_before_the_disk,
    markers_that_are_left_out,
    markers_that_say_the_contrary,
    timeouts_that_never_come,
    ids_that_are_given_twice,
    batches_that_nobody_verifies,
    starts_that_finish_nothing,
    offsets_that_stay_pending,
    partitions_that_are_not_added,
    ends_without_a_decision,
    transactions_that_a_start_forgets,
    ids_that_are_asked_for_before_the_end,
)
