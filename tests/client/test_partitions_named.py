"""Partitions that are none: the call says what it was given, and asks no broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.client import Admin, Consumer
from tests.support.processes import BrokerProcess

CONSUMER_CALLS: dict[str, Callable[[Consumer, Any], object]] = {
    "assign": lambda consumer, given: consumer.assign(given),
    "pause": lambda consumer, given: consumer.pause(given),
    "resume": lambda consumer, given: consumer.resume(given),
    "seek_to_end": lambda consumer, given: consumer.seek_to_end(given),
    "end_offsets": lambda consumer, given: consumer.end_offsets(given),
    "offsets_for_times": lambda consumer, given: consumer.offsets_for_times(_mapping(given, 0)),
    "committed": lambda consumer, given: consumer.committed(given),
}
ADMIN_CALLS: dict[str, Callable[[Admin, Any], object]] = {
    "delete_records": lambda admin, given: admin.delete_records(_mapping(given, 0)),
    "list_offsets": lambda admin, given: admin.list_offsets(_mapping(given, -1)),
    "delete_group_offsets": lambda admin, given: admin.delete_group_offsets("g", given),
    "elect_leaders": lambda admin, given: admin.elect_leaders(given),
    "alter_reassignments": lambda admin, given: admin.alter_reassignments(_mapping(given, [0])),
    "list_reassignments": lambda admin, given: admin.list_reassignments(given),
    "describe_producers": lambda admin, given: admin.describe_producers(given),
}
GIVEN = ["topic", ["topic"], [("topic", "0")], [("topic", 0, 1)]]


def _mapping(given: Any, value: Any) -> dict[Any, Any]:
    return dict.fromkeys([given] if isinstance(given, str) else given, value)


@pytest.mark.parametrize("call", CONSUMER_CALLS.values(), ids=CONSUMER_CALLS)
def test_of_a_consumer(target: BrokerProcess, call: Callable[[Consumer, Any], object]) -> None:
    with Consumer(bootstrap_servers=target.bootstrap, group_id="g") as consumer:
        for given in GIVEN:
            with pytest.raises(TypeError, match=r"topic.*(is no|no whole number)"):
                call(consumer, given)


@pytest.mark.parametrize("call", ADMIN_CALLS.values(), ids=ADMIN_CALLS)
def test_of_an_admin(target: BrokerProcess, call: Callable[[Admin, Any], object]) -> None:
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        for given in GIVEN:
            with pytest.raises(TypeError, match=r"topic.*(is no|no whole number)"):
                call(admin, given)
