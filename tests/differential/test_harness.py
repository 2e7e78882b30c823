"""The comparison itself: it must see what differs, and only let pass what the rules name."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.differential.harness import RULES, Naming, comparable, differences
from tests.reference.crafted_batches import batch
from tests.support.messages import ZERO_UUID


def seen(left: Any, right: Any) -> list[str]:
    one = comparable(left, Naming(own_port=1, prefix="left-", ids={}))
    other = comparable(right, Naming(own_port=2, prefix="right-", ids={}))
    return differences(one, other)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"error_code": 0}, {"error_code": 1}),
        ({"error_code": 0}, {}),
        ({}, {"error_code": 0}),
        ([1], [1, 2]),
        ({"name": "left-a"}, {"name": "right-b"}),
        ({"error_message": None}, {"error_message": "text"}),
        ({"topic_id": uuid.UUID(int=1)}, {"topic_id": ZERO_UUID}),
        ({"producer_id": -1}, {"producer_id": 1}),
        ({"log_append_time": -1}, {"log_append_time": 5}),
        ({"port": 2}, {"port": 2}),
        ({"records": batch(b"a")}, {"records": batch(b"b")}),
        ({"records": batch(b"a", base_offset=1)}, {"records": batch(b"a")}),
        ({"records": batch(b"a")}, {"records": None}),
        ([{"name": "x", "v": 1}, {"name": "y"}], [{"name": "x"}, {"name": "y", "v": 1}]),
    ],
)  # fmt: skip
def test_differences_are_seen(left: Any, right: Any) -> None:
    assert seen(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"throttle_time": 0}, {"throttle_time": 9}),
        ({"name": "left-a"}, {"name": "right-a"}),
        ({"error_message": "one"}, {"error_message": "another"}),
        ({"topic_id": uuid.UUID(int=1)}, {"topic_id": uuid.UUID(int=2)}),
        ([{"name": "x"}, {"name": "y"}], [{"name": "y"}, {"name": "x"}]),
        ({"port": 1}, {"port": 2}),
    ],
    ids=str,
)
def test_what_may_differ_passes(left: Any, right: Any) -> None:
    assert not seen(left, right)


def test_each_rule_has_its_reason() -> None:
    assert all(len(reason) > 10 for _, reason in RULES.values())
