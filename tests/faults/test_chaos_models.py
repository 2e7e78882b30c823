"""The models of chaos: each finds the faults of a broken history."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults.chaos.health import FailedCheckError, led_partitions, wrong_folders
from tests.faults.chaos.latency import INTERVAL_S, Latency, Probe
from tests.faults.chaos.scenarios import random_scenario
from tests.faults.chaos.topic_churn import EXISTS, TIMED_OUT, UNKNOWN_TOPIC, TopicModel
from tests.faults.chaos.transactions import ABORTED, COMMITTED, UNKNOWN, Transactions
from tests.faults.chaos.workload import Session
from tests.support.processes import BrokerProcess


def filled() -> TopicModel:
    """A topic of two partitions with an acknowledged record in each."""
    model = TopicModel("t")
    model.created(0, 2)
    model.produced(0, b"first", 0, 0)
    model.produced(0, b"second", 1, 0)
    return model


STORED = [{0: b"first"}, {0: b"second"}]


def test_topic_as_answered_is_right() -> None:
    assert not filled().judge(2, STORED)
    assert not filled().judge(2, [STORED[0] | {1: b"check 1"}, STORED[1]])


@pytest.mark.parametrize(
    ("partitions", "stored", "what"),
    [
        (0, [], "has 0 partitions"),
        (2, [{0: b"first"}, {}], "was acknowledged"),
        (2, [{1: b"first"}, {0: b"second"}], "was acknowledged"),
        (2, [{0: b"first", 1: b"first"}, {0: b"second"}], "more than once"),
        (2, [{0: b"first", 1: b"foreign"}, {0: b"second"}], "of a deleted topic"),
    ],
)
def test_topic_that_differs_is_noticed(
    partitions: int, stored: list[dict[int, bytes]], what: str
) -> None:
    assert any(what in line for line in filled().judge(partitions, stored))


def test_records_of_the_topic_before_are_noticed() -> None:
    model = filled()
    model.deleted(0)
    model.created(0, 2)
    assert "of a deleted topic" in model.judge(2, STORED)[0]
    assert not model.faults


@pytest.mark.parametrize(
    "act",
    [
        lambda model: model.created(0, 3),
        lambda model: model.deleted(UNKNOWN_TOPIC),
        lambda model: model.deleted(-1),
        lambda model: model.grown(0, 2),
        lambda model: model.configured(UNKNOWN_TOPIC, "1"),
        lambda model: model.produced(56, b"third", 0, -1),
        lambda model: model.produced(0, b"third", 2, 0),
    ],
)
def test_answer_that_cannot_be_true_is_noticed(act: Callable[[TopicModel], None]) -> None:
    model = filled()
    act(model)
    assert len(model.faults) == 1


def test_unknown_outcome_allows_both_states() -> None:
    """Until a change succeeds: then the state is known again."""
    model = filled()
    model.deleted(TIMED_OUT)
    assert not model.judge(2, STORED) and not model.judge(0, [])
    model.deleted(UNKNOWN_TOPIC)
    assert not model.judge(2, STORED)
    model.created(EXISTS, 3)
    model.created(0, 3)
    assert not model.faults
    assert model.judge(0, []) and model.judge(2, STORED) and not model.judge(3, [{}, {}, {}])


def transactions(*outcomes: str) -> Transactions:
    made = Transactions("t", cast("BrokerProcess", None), "1", 2, "topic")
    made.outcomes = list(outcomes)
    return made


@pytest.mark.parametrize(
    ("outcome", "counts", "is_right"),
    [
        (COMMITTED, (1, 1), True), (COMMITTED, (1, 0), False), (COMMITTED, (0, 0), False),
        (COMMITTED, (2, 2), False), (ABORTED, (0, 0), True), (ABORTED, (1, 1), False),
        (UNKNOWN, (0, 0), True), (UNKNOWN, (1, 1), True), (UNKNOWN, (0, 1), False),
    ],
)  # fmt: skip
def test_transaction_that_is_torn_is_noticed(
    outcome: str, counts: tuple[int, int], is_right: bool
) -> None:
    values = [b"t 0 %d" % index for index in range(2) for _ in range(counts[index])]
    assert bool(transactions(outcome).judge_values(values)) != is_right


def test_offset_of_an_aborted_transaction_is_noticed() -> None:
    judged = transactions(COMMITTED, ABORTED, UNKNOWN)
    judged.offsets = [0, 1, 2]
    assert not judged.judge_offset(0) and not judged.judge_offset(2)
    assert judged.judge_offset(1) and judged.judge_offset(-1)


def test_probe_counts_requests_that_were_due_meanwhile() -> None:
    """A broker that answers nobody for half a second is slow for more than one request."""
    slow = threading.Event()

    def request() -> int:
        if not slow.is_set():
            threading.Event().wait(0.5)
            slow.set()
        return 7

    probe = Probe("probe", request)
    probe.start()
    assert slow.wait(30)
    probe.end()
    faults = probe.faults(p99_s=0.4)
    assert sum(one > 0.1 for one in probe.seconds) >= 0.3 / INTERVAL_S
    assert any("error 7" in line for line in faults) and any("p50/p99" in line for line in faults)


def test_latency_is_of_the_nearest_rank() -> None:
    assert Latency.of([n / 100 for n in range(1, 101)]) == (100, 0.5, 0.99, 1.0)
    assert Latency.of([]).p99_s > 1e9


class AnsweredMetadata(Session):
    """One topic of two partitions."""

    def __init__(self) -> None:
        super().__init__(cast("BrokerProcess", None))

    def call(self, *_: Any, **__: Any) -> dict[str, Any]:
        partitions = [{"partition_index": index} for index in range(2)]
        return {"topics": [{"name": "t", "partitions": partitions}]}


def test_folders_that_differ_from_metadata_are_noticed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first / "t-0", first / "__cluster_metadata-0", second / "t-1"):
        path.mkdir(parents=True)
    (first / f"gone-0.{'a' * 32}-delete").mkdir()
    assert not wrong_folders(AnsweredMetadata(), [first, second])
    for name in ("t-1", "gone-0", f"gone-0.{'a' * 32}-stray"):
        (first / name).mkdir()
        assert len(wrong_folders(AnsweredMetadata(), [first, second])) == 1
        (first / name).rmdir()
    (second / "t-1").rmdir()
    assert wrong_folders(AnsweredMetadata(), [first, second]) == ["folder t-1 is missing"]


def test_partition_without_leader_is_noticed() -> None:
    part = {"error_code": 0, "leader_id": 1, "partition_index": 0}
    topic = {"name": "t", "error_code": 0, "is_internal": False, "partitions": [part]}
    assert led_partitions({"topics": [topic]}) == [("t", 0)]
    for change in ({"leader_id": -1}, {"error_code": 5}):
        with pytest.raises(FailedCheckError):
            led_partitions({"topics": [topic | {"partitions": [part | change]}]})


def test_random_scenario_is_of_its_seed() -> None:
    drawn = [random_scenario(seed) for seed in range(50)]
    assert drawn == [random_scenario(seed) for seed in range(50)]
    assert {one.ending for one in drawn} == {"", "SIGTERM", "SIGKILL"}
