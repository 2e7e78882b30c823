"""Offsets that a user gives to be committed: taken as they are, or the error names which."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

from kbroker.client.group.subscribed import Subscribed
from kbroker.client.partitions import (
    OffsetAndMetadata,
    TopicPartition,
    checked_offsets,
    checked_partition,
)

WHERE = ("t", 0)


class Topic(enum.StrEnum):
    """Names as an application may keep them."""

    T = "t"


def test_a_topic_of_an_enumeration_is_a_string() -> None:
    found = checked_partition((Topic.T, 0))
    assert found == WHERE and type(found.topic) is str
    subscribed = Subscribed()
    subscribed.set([Topic.T], None)
    assert [type(name) for name in subscribed.topics] == [str]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (7, OffsetAndMetadata(7)),
        (np.int64(7), OffsetAndMetadata(7)),
        ((7, "m"), OffsetAndMetadata(7, "m")),
        (OffsetAndMetadata(2**63 - 1, "m", 3), OffsetAndMetadata(2**63 - 1, "m", 3)),
        (OffsetAndMetadata(0, None), OffsetAndMetadata(0)),  # type: ignore[arg-type]
    ],
)
def test_what_is_taken(given: Any, taken: OffsetAndMetadata) -> None:
    made = checked_offsets({WHERE: given})
    assert made == {TopicPartition(*WHERE): taken}
    assert [type(part) for part in made[TopicPartition(*WHERE)]] == [int, str, int]


@pytest.mark.parametrize(
    ("offsets", "error", "told"),
    [
        ([(WHERE, 1)], TypeError, "offsets: list is no mapping of (topic, partition) to offsets"),
        (None, TypeError, "offsets: NoneType is no mapping"),
        ({"over": 1}, TypeError, "offsets: 'over' is no (topic, partition)"),
        ({("t",): 1}, TypeError, "offsets: ('t',) is no (topic, partition)"),
        ({(b"t", 0): 1}, TypeError, "offsets: (b't', 0) is no (topic, partition)"),
        ({("t", "0"): 1}, TypeError, "partition '0' of 't' is no whole number"),
        ({("t", -1): 1}, ValueError, "partition -1 of 't' is negative"),
        ({("t", 2**31): 1}, ValueError, "partition 2147483648 of 't' is above 2147483647"),
        ({WHERE: -5}, ValueError, "offset -5 of t-0 is negative"),
        ({WHERE: OffsetAndMetadata(-1)}, ValueError, "offset -1 of t-0 is negative"),
        ({WHERE: 2**63}, ValueError, "offset 9223372036854775808 of t-0 is above"),
        ({WHERE: 1.5}, TypeError, "offset 1.5 of t-0 is no whole number"),
        ({WHERE: None}, TypeError, "offset None of t-0 is no whole number"),
        ({WHERE: (1, b"m")}, TypeError, "metadata b'm' of t-0 is not str"),
        ({WHERE: (1, "m", -2)}, ValueError, "leader_epoch -2 of t-0 is below -1"),
        ({WHERE: (1, "m", 0, 0)}, TypeError, "offsets: (1, 'm', 0, 0) of t-0 is no offset"),
    ],
)
def test_what_is_refused(offsets: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error) as caught:
        checked_offsets(offsets)
    assert str(caught.value).startswith(told)
