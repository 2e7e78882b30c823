"""Committed offsets: OffsetCommit, OffsetFetch and OffsetDelete on a fake disk and clock."""

from __future__ import annotations

from uuid import UUID

import pytest

from kbroker.protocol import ApiKey

COMMIT, FETCH = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH


@pytest.fixture
def groups(control):
    """A control plane with a topic of two partitions and coordinators."""
    control.create("a", 2)
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    return control


def commit(control, version=9, group="g", topic="a", **offsets):
    """(error code by partition); offsets are p0=7, p1=8."""
    named = {"topic_id": topic_id(control, topic)} if version >= 10 else {"name": topic}
    partitions = [
        {"partition_index": int(name[1:]), "committed_offset": offset, "committed_metadata": "m"}
        for name, offset in offsets.items()
    ]
    answer = control.call(
        COMMIT, version, group_id=group, generation_id_or_member_epoch=-1, member_id="",
        topics=[{**named, "partitions": partitions}],
    )  # fmt: skip
    return [one["error_code"] for one in answer["topics"][0]["partitions"]]


def topic_id(control, name):
    return UUID(bytes=control.store.image.topics[name].id)


def fetched(control, group="g", topics=None, stable=False):
    """{(topic, partition): offset} of a group."""
    asked = [{"group_id": group, "topics": topics}]
    answer = control.call(FETCH, 8, groups=asked, require_stable=stable)
    (found,) = answer["groups"]
    assert found["error_code"] == 0
    return {
        (topic["name"], one["partition_index"]): one["committed_offset"]
        for topic in found["topics"]
        for one in topic["partitions"]
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_are_found_again(groups, version):
    assert commit(groups, version, p0=7, p1=8) == [0, 0]
    assert commit(groups, version, p0=9) == [0]
    assert fetched(groups) == {("a", 0): 9, ("a", 1): 8}


def test_without_a_coordinator_there_is_none(control):
    control.create("a")
    assert commit(control, p0=1) == [16]


@pytest.mark.parametrize("version", (2, 9, 10))
def test_topics_and_partitions_that_are_not_there(groups, version):
    assert commit(groups, version, p1=5, p7=5) == [3, 0]
    named = {"topic_id": UUID(int=5)} if version == 10 else {"name": "nope"}
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    answer = groups.call(
        COMMIT, version, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[{**named, "partitions": [partition]}],
    )  # fmt: skip
    assert answer["topics"][0]["partitions"][0]["error_code"] == (100 if version == 10 else 3)
    assert fetched(groups) == {("a", 1): 5}


def test_an_answer_waits_for_the_disk(groups):
    logs = [groups.log("__consumer_offsets", index) for index in range(50)]
    for log in logs:
        log.durable = False
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
    fields = {"generation_id_or_member_epoch": -1, "member_id": "", "group_id": "g",
              "topics": [{"name": "a", "partitions": [partition]}]}  # fmt: skip
    first, second = (groups.send(COMMIT, 9, **fields) for _ in range(2))
    (log,) = [log for log in logs if log.log_end_offset]
    assert first.answer is None and first.waits[:2] == (log, 1) and second.waits[:2] == (log, 2)
    log.high_watermark = 1
    first.durable()
    second.durable()
    codes = [groups.decoded(one)["topics"][0]["partitions"][0]["error_code"]
             for one in (first, second)]  # fmt: skip
    assert codes == [0, 16]
    assert groups.dispatcher.parked.requests == 0


def test_nobody_commits_for_a_generation_that_is_not(groups):
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
    for version, code in ((8, 22), (9, 69)):
        answer = groups.call(
            COMMIT, version, group_id="g", generation_id_or_member_epoch=3, member_id="m",
            topics=[{"name": "a", "partitions": [partition]}],
        )  # fmt: skip
        assert answer["topics"][0]["partitions"][0]["error_code"] == code
    assert fetched(groups) == {}


def test_a_restart_replays_the_log(groups):
    commit(groups, p0=7, p1=8)
    commit(groups, p1=9)
    groups.services.groups.close()
    groups.services.groups.open()
    assert groups.services.groups.loading
    while groups.services.groups.loading:
        groups.run_posted()
    assert fetched(groups) == {("a", 0): 7, ("a", 1): 9}
