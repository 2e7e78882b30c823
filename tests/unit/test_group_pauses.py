"""Groups whose record stands in a disk that hangs: what was asked takes place when that is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.errors import DiskError, ErrorCode, LateError
from kbroker.group.partition import group_partition
from kbroker.protocol import ApiKey
from tests.support.ports import FakeLog

LATE_MS = 4_000
JOIN = {
    "group_id": "g", "session_timeout": 30_000, "rebalance_timeout": 60_000, "member_id": "",
    "group_instance_id": "i", "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}  # fmt: skip


class Late:
    """An append that is not over until `land`."""

    def __init__(self, append: Callable[[], tuple[int, int]]) -> None:
        self._append = append
        self._result: tuple[int, int] | Exception = (-1, -1)
        self.done = False

    def land(self, error: Exception | None = None) -> None:
        self._result = self._append() if error is None else error
        self.done = True

    def result(self) -> tuple[int, int]:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class Disk:
    """Of the control plane under test: `hang`, and the append that stands in it."""

    def __init__(self, control: Any, patch: pytest.MonkeyPatch) -> None:
        self.control = control
        self._patch = patch
        self.late: Late | None = None
        self.entered_twice = False

    def hang(self, only: FakeLog | None = None) -> None:
        real = FakeLog.append

        def append(log: FakeLog, *given: Any, **named: Any) -> tuple[int, int]:
            if only not in (None, log):
                return real(log, *given, **named)
            self.entered_twice |= self.late is not None
            self.late = Late(lambda: real(log, *given, **named))
            raise LateError(self.late)

        self._patch.setattr(FakeLog, "append", append)

    def thaw(self, error: Exception | None = None, after_ms: int = LATE_MS) -> None:
        self._patch.undo()
        self.control.clock.advance(after_ms)
        assert self.late is not None
        self.late.land(error)
        self.run()

    def run(self) -> None:
        """Requests stand in the queue: it is run by the time of one that came a moment ago."""
        self.control.clock.advance(20)
        self.control.services.groups.run_due(self.control.clock.monotonic_ms() - 500)
        self.control.services.groups.run_due(self.control.clock.monotonic_ms())


@pytest.fixture
def groups(control):
    control.create("a", 2)
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    return control


@pytest.fixture
def disk(groups) -> Disk:
    with pytest.MonkeyPatch.context() as patch:
        made = Disk(groups, patch)
        yield made
    assert not made.entered_twice, "another append to a partition that is paused"


def answered(groups: Any, request: Any) -> dict[str, Any]:
    """The answer of a request; one that waits for a disk has it when the disk counts as hung."""
    if request.answer is None:
        groups.clock.advance(1_000)
        groups.services.groups.run_due(groups.clock.monotonic_ms())
        groups.run_operations()
    answer: dict[str, Any] = groups.decoded(request)
    return answer


def commit(
    groups: Any, offset: int, generation: int = -1, member: str = "", group: str = "g"
) -> ErrorCode:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
    request = groups.send(
        ApiKey.OFFSET_COMMIT, 8, group_id=group, generation_id_or_member_epoch=generation,
        member_id=member, topics=[{"name": "a", "partitions": [partition]}],
    )  # fmt: skip
    answer = answered(groups, request)
    return ErrorCode(answer["topics"][0]["partitions"][0]["error_code"])


def fetch(groups: Any) -> dict[str, Any]:
    answer: dict[str, Any] = groups.call(
        ApiKey.OFFSET_FETCH, 5, group_id="g", topics=[{"name": "a", "partition_indexes": [0]}]
    )
    return answer


def committed(groups: Any) -> int:
    answer = fetch(groups)
    return int(answer["topics"][0]["partitions"][0]["committed_offset"])


def join(groups: Any) -> str:
    """The only member of generation 1, not synced yet."""
    request = groups.send(ApiKey.JOIN_GROUP, 5, **JOIN)
    groups.clock.advance(3_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    return str(groups.decoded(request)["member_id"])


def sync(groups: Any, member: str) -> dict[str, Any]:
    request = groups.send(
        ApiKey.SYNC_GROUP, 3, group_id="g", generation_id=1, member_id=member,
        group_instance_id="i", assignments=[{"member_id": member, "assignment": b"all"}],
    )  # fmt: skip
    return answered(groups, request)


def beat(groups: Any, member: str, instance: str) -> ErrorCode:
    answer = groups.call(
        ApiKey.HEARTBEAT, 3, group_id="g", generation_id=1, member_id=member,
        group_instance_id=instance,
    )  # fmt: skip
    return ErrorCode(answer["error_code"])


def test_a_commit_that_is_late(groups, disk, caplog):
    assert commit(groups, 1) is ErrorCode.NONE
    disk.hang()
    assert commit(groups, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit(groups, 3) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetch(groups)["error_code"] == ErrorCode.NOT_COORDINATOR  # which old consumers know
    disk.run()
    disk.thaw()
    assert committed(groups) == 2
    assert commit(groups, 4) is ErrorCode.NONE and committed(groups) == 4
    assert "twice" not in caplog.text


def test_requests_wait_for_an_append_that_is_slow(groups, disk, caplog):
    """No client sees an error for a disk that takes less than a second."""
    assert commit(groups, 1) is ErrorCode.NONE
    disk.hang()
    partition = {"partition_index": 0, "committed_offset": 2, "committed_metadata": None}
    slow = groups.send(
        ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": "a", "partitions": [partition]}],
    )  # fmt: skip
    behind = groups.send(
        ApiKey.OFFSET_FETCH, 5, group_id="g", topics=[{"name": "a", "partition_indexes": [0]}]
    )
    assert slow.answer is None and behind.answer is None
    disk.thaw(after_ms=500)
    groups.run_operations()
    answer = groups.decoded(slow)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    answer = groups.decoded(behind)
    assert answer["topics"][0]["partitions"][0]["committed_offset"] == 2
    assert "twice" not in caplog.text


def test_a_refusal_that_is_late(groups, disk, caplog):
    assert commit(groups, 1) is ErrorCode.NONE
    disk.hang()
    commit(groups, 2)
    disk.thaw(DiskError("x", OSError(28, "full")))
    assert "failed after the pause: x: full" in caplog.text
    assert committed(groups) == 1
    assert commit(groups, 3) is ErrorCode.NONE and committed(groups) == 3


def test_a_generation_that_is_late(groups, disk, caplog):
    """Its leader asks again, as clients do, and has the assignment that it gave."""
    member = join(groups)
    disk.hang()
    assert sync(groups, member)["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.thaw()
    again = sync(groups, member)
    assert (again["error_code"], again["assignment"]) == (0, b"all")
    assert "twice" not in caplog.text


def test_a_generation_that_is_late_by_more_than_a_session(groups, disk):
    """Those whose session begins with it have all of it then."""
    first = groups.send(ApiKey.JOIN_GROUP, 5, **JOIN)
    second = groups.send(ApiKey.JOIN_GROUP, 5, **(JOIN | {"group_instance_id": "j"}))
    groups.clock.advance(3_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    leader, follower = (groups.decoded(one)["member_id"] for one in (first, second))
    parked = groups.send(
        ApiKey.SYNC_GROUP, 3, group_id="g", generation_id=1, member_id=follower,
        group_instance_id="j", assignments=[],
    )  # fmt: skip
    disk.hang()
    assert sync(groups, leader)["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert parked.answer is None
    disk.thaw(after_ms=31_000)
    assert groups.decoded(parked)["error_code"] == 0
    groups.clock.advance(29_000)
    disk.run()
    assert beat(groups, follower, "j") is beat(groups, leader, "i") is ErrorCode.NONE


def test_sessions_stand_still(groups, disk):
    """A member that could not be heard for longer than its session, for what the disk did."""
    member = join(groups)
    sync(groups, member)
    groups.clock.advance(20_000)
    disk.hang()
    assert commit(groups, 1, 1, member) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(10):
        groups.clock.advance(10_000)
        disk.run()
    disk.thaw()
    assert sync(groups, member)["error_code"] == 0
    groups.clock.advance(31_000)
    disk.run()
    assert sync(groups, member)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_topic_that_goes_meanwhile(groups, disk):
    commit(groups, 1)
    disk.hang()
    commit(groups, 2)
    for _ in groups.services.groups.topics_deleted(["a"]):
        pass
    disk.thaw()
    assert committed(groups) == -1


def test_several_groups_of_one_request(groups, disk):
    """The part of the group that waits fails, and no more."""
    commit(groups, 1)
    disk.hang()
    request = groups.send(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "none"])
    answer = answered(groups, request)
    codes = {one["group_id"]: one["error_code"] for one in answer["results"]}
    assert codes["g"] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes["none"] == ErrorCode.GROUP_ID_NOT_FOUND
    disk.thaw()
    assert committed(groups) == -1


def test_a_part_that_waits_is_none_to_be_durable_with_the_others(groups, disk):
    """Of a request of two groups one is deleted, not durable yet, when the other's disk hangs: the
    answer waits for the first."""
    here, hung = (groups.log("__consumer_offsets", group_partition(name, 50)) for name in "hg")
    assert here is not hung
    commit(groups, 1)
    commit(groups, 1, group="h")
    here.durable = False
    disk.hang(hung)
    request = groups.send(ApiKey.DELETE_GROUPS, 2, groups_names=["h", "g"])
    assert request.answer is None and request.waits is None
    groups.clock.advance(1_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    groups.run_operations()
    assert request.answer is None and request.waits[:2] == (here, here.log_end_offset)
    hung.durable = False
    disk.thaw()  # what has come late is behind all else of the directory
    both = [{"group_id": name, "topics": None} for name in "gh"]
    request = groups.send(ApiKey.OFFSET_FETCH, 8, groups=both, require_stable=False)
    assert request.waits[:2] == (hung, hung.log_end_offset)


def test_stopping_answers_and_forgets(groups, disk):
    disk.hang()
    commit(groups, 1)
    groups.services.groups.stop()
    disk.thaw()
    assert commit(groups, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.services.groups.next_due_ms() is None


def test_close_answers_a_request_of_several_groups(groups, disk):
    """`__consumer_offsets` is deleted while the append of one part is under way."""
    commit(groups, 1)
    disk.hang()
    request = groups.send(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "none"])
    groups.run_operations()
    assert request.answer is None
    groups.services.groups.close()
    answer = answered(groups, request)
    codes = {one["group_id"]: one["error_code"] for one in answer["results"]}
    assert codes == dict.fromkeys(["g", "none"], ErrorCode.NOT_COORDINATOR)
    disk.thaw()
