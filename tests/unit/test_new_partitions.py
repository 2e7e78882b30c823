"""Logs of new partitions: made once, for the topic that has them, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from kbroker.api import publish
from kbroker.api.topic_creation import NewTopic, plan_topic
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.storage.folder_work import open_one
from kbroker.storage.folders import write_new_topic_id
from kbroker.storage.log_port import Opening, PartitionSpec
from tests.support.control import ControlPlane
from tests.support.ports import FakeLog

T = TypeVar("T")


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlPlane]:
    made = ControlPlane(tmp_path)
    yield made
    made.close()


def result_of(steps: Steps[T]) -> T:
    """Take the steps one after the other; what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def records_of(control: ControlPlane, *names: str) -> None:
    """The records of a CreateTopics are in the metadata log; no log is made yet."""
    records = [
        record
        for name in names
        for record in result_of(plan_topic(control.services, NewTopic(name, 1))).records
    ]
    control.store.append(records).result()


def creation(control: ControlPlane, *names: str) -> Steps[None]:
    """Return the steps that make logs of topics, the first of them done."""
    new = [
        publish.NewPartitions(name, control.services.image.topics[name].id, 0, 1)
        for name in names
    ]
    steps = publish._create(control.services, new)
    next(steps)
    return steps


def test_topic_that_is_deleted_before_its_logs_are_made_gets_none(
    control: ControlPlane, tmp_path: Path
) -> None:
    records_of(control, "a", "b")
    steps = creation(control, "a", "b")
    control.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a"}])
    list(steps)
    assert control.logs.get("a", 0) is None and control.logs.get("b", 0) is not None
    assert not list(tmp_path.glob("a-0*"))


def test_topic_that_is_created_again_meanwhile_keeps_its_logs(
    control: ControlPlane, tmp_path: Path
) -> None:
    records_of(control, "a", "b")
    steps = creation(control, "a", "b")
    control.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a"}])
    control.create("a")
    log = control.log("a")
    list(steps)
    assert control.log("a") is log and not list(tmp_path.glob("*-stray"))


def test_partition_with_a_log_is_not_made_again(control: ControlPlane, tmp_path: Path) -> None:
    control.create("a", 2)
    logs = [control.log("a", index) for index in range(2)]
    topic = control.services.image.topics["a"]
    control.logs.create(publish.specs_of(control.services, topic)).result()
    assert [control.log("a", index) for index in range(2)] == logs
    assert not list(tmp_path.glob("*-stray"))


def opening_of(folder: Path, topic_id: bytes) -> Opening:
    spec = PartitionSpec("t", topic_id, 0, {})
    return Opening(str(folder), spec, 0, 0, clean=True)


OURS, FOREIGN = b"\1" * 16, b"\2" * 16


@pytest.mark.parametrize("before", ["empty", "ours", "foreign", "unknown", "file"])
def test_folder_of_an_earlier_try_is_taken_and_others_are_put_aside(
    tmp_path: Path, before: str
) -> None:
    folder = tmp_path / "t-0"
    if before == "file":
        folder.write_text("not a folder")
    else:
        folder.mkdir()
    if before in ("ours", "foreign"):
        write_new_topic_id(str(folder), OURS if before == "ours" else FOREIGN)
    if before in ("ours", "foreign", "unknown"):
        (folder / "note").write_text("kept")
    opened: list[Opening] = []

    def open_log(opening: Opening) -> FakeLog:
        opened.append(opening)
        return FakeLog(opening)

    open_one(opening_of(folder, OURS), open_log, fresh=True)
    is_taken = before in ("empty", "ours")
    assert len(list(tmp_path.glob("t-0.*-stray"))) == (not is_taken)
    assert (folder / "note").exists() == (before == "ours")
    (opening,) = opened
    assert opening.fresh == (not is_taken) and opening.clean == (not is_taken)
