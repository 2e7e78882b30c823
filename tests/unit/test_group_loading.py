"""Loading `__consumer_offsets`: what the disk refuses is read again, what is damaged is told."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import DiskError, ErrorCode
from kbroker.group.partition import group_partition
from kbroker.group.slot_loads import LoadFigures
from kbroker.protocol import ApiKey
from tests.support.control import ControlPlane, FakeLoad
from tests.support.ports import FakeLog
from tests.support.waits import wait_for

#: Of one of two partitions each.
HIT, SOUND = [next(name for name in map(str, range(20)) if group_partition(name, 2) == one)
              for one in (0, 1)]  # fmt: skip
MEMBER = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}


class Disk:
    """Gives out loads of the first partition's log: the first `refused` of them fail, after what
    they have read until then."""

    def __init__(self, groups: ControlPlane) -> None:
        self.log = groups.log("__consumer_offsets", 0)
        self.refused = 0
        self.problems: tuple[tuple[int, str], ...] = ()
        self.strict: list[bool] = []
        groups.services._group_host.load = self.load  # type: ignore[method-assign,assignment]

    def load(self, log: FakeLog, *, strict: bool) -> Any:
        if log is not self.log:
            return FakeLoad(log, strict=strict)
        self.strict.append(strict)
        if self.refused:
            self.refused -= 1
            return Refused(log)
        return Damaged(log, self.problems)


class Refused:
    """Its first step is read, the next one fails."""

    problem_count = 0
    problems = ()
    done = False

    def __init__(self, log: FakeLog) -> None:
        self._load = FakeLoad(log, strict=True)
        self._steps = 0

    def step(self) -> Any:
        self._steps += 1
        if self._steps > 1:
            raise DiskError("offsets", "the disk refuses to read it")
        return self._load.step()


class Damaged:
    """With these places that could not be read."""

    def __init__(self, log: FakeLog, problems: tuple[tuple[int, str], ...]) -> None:
        load = FakeLoad(log, strict=True)
        self.problems = problems
        self.problem_count = len(problems)
        self.done = False
        self._rows, self.packed, self.pending = load.step(), load.packed, load.pending

    def step(self) -> Any:
        self.done = True
        return self._rows


@pytest.fixture
def groups(control_with: Any) -> ControlPlane:
    control: ControlPlane = control_with(offsets_topic_num_partitions="2")
    control.create("a", 1)
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    for name, offset in ((HIT, 7), (SOUND, 8)):
        partition = {
            "partition_index": 0, "committed_offset": offset, "committed_metadata": None
        }  # fmt: skip
        topics = [{"name": "a", "partitions": [partition]}]
        control.call(ApiKey.OFFSET_COMMIT, 9, **MEMBER, group_id=name, topics=topics)
    return control


@pytest.fixture
def disk(groups: ControlPlane) -> Disk:
    return Disk(groups)


def restarted(groups: ControlPlane) -> None:
    groups.services.groups.close()
    groups.services.groups.open()
    until_loaded(groups)


def until_loaded(groups: ControlPlane) -> None:
    """What was begun to be loaded is, or has failed."""

    def is_done() -> bool:
        groups.run_posted()
        return not groups.services.groups.loading

    wait_for("the partitions are read", is_done, 10, pause_s=0.002)


def advance(groups: ControlPlane, ms: int) -> None:
    groups.clock.advance(ms)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    until_loaded(groups)


def fetched(groups: ControlPlane, name: str) -> tuple[int, list[int]]:
    """The error of OffsetFetch, and the offsets."""
    asked = [{"group_id": name, "topics": None}]
    (found,) = groups.call(ApiKey.OFFSET_FETCH, 8, groups=asked)["groups"]
    offsets = [
        one["committed_offset"] for topic in found["topics"] for one in topic["partitions"]
    ]
    return found["error_code"], offsets


def listed(groups: ControlPlane) -> tuple[int, set[str]]:
    told = groups.call(ApiKey.LIST_GROUPS, 5)
    return told["error_code"], {one["group_id"] for one in told["groups"]}


def test_a_read_that_fails_once_is_tried_again(
    groups: ControlPlane, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """The groups of the other partition go on meanwhile."""
    disk.refused = 1
    restarted(groups)
    coordinator = groups.services.groups
    assert coordinator.load_figures() == LoadFigures(loading=0, failed=1, passed_over=0)
    assert fetched(groups, HIT) == (ErrorCode.NOT_COORDINATOR, [])
    assert fetched(groups, SOUND) == (0, [8])
    assert "kbroker log repair" in caplog.text
    assert coordinator.next_due_ms() == groups.clock.monotonic_ms() + 1_000
    advance(groups, 999)
    assert len(disk.strict) == 1
    advance(groups, 1)
    assert disk.strict == [True, True]
    assert coordinator.load_figures() == LoadFigures(loading=0, failed=0, passed_over=0)
    assert fetched(groups, HIT) == (0, [7])
    assert listed(groups) == (0, {HIT, SOUND})


def test_groups_are_not_listed_where_some_would_be_missing(
    groups: ControlPlane, disk: Disk
) -> None:
    disk.refused = 1
    restarted(groups)
    assert listed(groups) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, set())
    groups.clock.advance(1_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    assert listed(groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, set())
    until_loaded(groups)
    assert listed(groups) == (0, {HIT, SOUND})
    groups.services.groups.stop()
    assert listed(groups) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, set())


def test_what_is_refused_again_and_again_is_passed_over_at_last(
    groups: ControlPlane, disk: Disk
) -> None:
    disk.refused = 6
    restarted(groups)
    pauses = []
    while groups.services.groups.load_figures().failed:
        due_ms = groups.services.groups._timers.when((0, "", "load"))
        assert due_ms is not None
        pauses.append(due_ms - groups.clock.monotonic_ms())
        advance(groups, pauses[-1])
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
    assert disk.strict == [True] * 5 + [False] * 2
    assert fetched(groups, HIT) == (0, [7])


def test_what_a_failed_load_had_read_is_forgotten(groups: ControlPlane, disk: Disk) -> None:
    """A group that the first load found is gone by the time of the second one."""
    join = {
        "group_id": HIT, "session_timeout": 30_000, "rebalance_timeout": 60_000, "member_id": "",
        "group_instance_id": "i", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x" * 100}],
    }  # fmt: skip
    request = groups.send(ApiKey.JOIN_GROUP, 5, **join)
    advance(groups, 3_000)
    member_id = groups.decoded(request)["member_id"]
    sync = {"group_id": HIT, "generation_id": 1, "member_id": member_id, "group_instance_id": "i"}
    groups.call(ApiKey.SYNC_GROUP, 3, **sync,
                assignments=[{"member_id": member_id, "assignment": b"y"}])  # fmt: skip
    held = groups.services.groups._unwritten.bytes
    disk.refused = 1
    restarted(groups)
    (slot, _) = groups.services.groups._slots
    assert set(slot.shard.groups) == {HIT}
    first = slot.rooms
    disk.log.batches.clear()
    advance(groups, 1_000)
    assert slot.rooms is not first
    assert not slot.shard.groups
    assert groups.services.groups._unwritten.bytes == held == 0


def test_damage_is_counted_and_told(
    groups: ControlPlane, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.problems = ((3, "x"), (5, "y"))
    restarted(groups)
    assert groups.services.groups.load_figures().passed_over == 2
    assert "__consumer_offsets-0 is damaged in 2 places" in caplog.text
    assert fetched(groups, HIT) == (0, [7])
    restarted(groups)
    assert groups.services.groups.load_figures().passed_over == 2, "of this life, not added up"


@pytest.mark.parametrize("end", ["close", "stop"])
def test_a_reload_that_comes_too_late_does_nothing(
    groups: ControlPlane, disk: Disk, end: str
) -> None:
    disk.refused = 1
    restarted(groups)
    getattr(groups.services.groups, end)()
    assert groups.services.groups.next_due_ms() is None
    advance(groups, 60_000)
    assert len(disk.strict) == 1
