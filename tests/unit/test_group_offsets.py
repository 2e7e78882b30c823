"""Committed offsets: OffsetCommit, OffsetFetch and OffsetDelete on a fake disk and clock."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from kbroker.api.k09_offset_fetch import offset_fetch
from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.ext import records
from kbroker.ext.offsets_build import commit_key, commit_value
from kbroker.ext.pulses import Pulses
from kbroker.group.commits import Commit, PartitionCommit, TopicCommit, build_batch
from kbroker.group.committed import unpack
from kbroker.group.offsets import Offsets
from kbroker.group.settings import GroupSettings
from kbroker.group.shard import Shard
from kbroker.group.unwritten import Unwritten
from kbroker.metadata.records.frame import encode_key
from kbroker.operations import run_to_end
from kbroker.protocol import ApiKey
from tests.support.topics import FakeTopics

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


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_compressed_as_the_setting_says_and_loaded_again(control_with, codec):
    groups = control_with(
        offsets_topic_compression_codec=str(codec), offsets_topic_num_partitions="1"
    )
    groups.create("a", 2)
    groups.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    commit(groups, p0=7, p1=8)
    commit(groups, p1=9)
    log = groups.log("__consumer_offsets", 0)
    found = [records.batches(batch)[0] for _, batch in log.batches]
    assert [batch.attributes & 7 for batch in found] == [codec, codec]
    restarted(groups)
    assert fetched(groups) == {("a", 0): 7, ("a", 1): 9}


def test_deleting_offsets(groups):
    commit(groups, p0=7, p1=8)
    topics = [
        {"name": "a", "partitions": [{"partition_index": index} for index in (0, 5)]},
        {"name": "b", "partitions": [{"partition_index": 0}]},
    ]
    answer = groups.call(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    assert answer["error_code"] == 0
    codes = {
        (topic["name"], one["partition_index"]): one["error_code"]
        for topic in answer["topics"]
        for one in topic["partitions"]
    }
    assert codes == {("a", 0): 0, ("a", 5): 3, ("b", 0): 3}
    assert fetched(groups) == {("a", 1): 8}
    for group, code in (("nobody", 69), ("", 24)):
        answer = groups.call(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=topics)
        assert answer["error_code"] == code and not answer["topics"]


def listed(control, version=5, **filters):
    answer = control.call(ApiKey.LIST_GROUPS, version, **filters)
    assert answer["error_code"] == 0
    return sorted(group["group_id"] for group in answer["groups"])


@pytest.mark.parametrize("version", range(6))
def test_listing_groups(groups, version):
    for group in ("g", "h", ""):
        commit(groups, group=group, p0=1)
    assert listed(groups, version) == ["", "g", "h"]
    if version >= 4:
        assert listed(groups, version, states_filter=["empty"]) == ["", "g", "h"]
        assert listed(groups, version, states_filter=["Stable", "nonsense"]) == []
    if version >= 5:
        assert listed(groups, version, types_filter=["CLASSIC"]) == ["", "g", "h"]
        assert listed(groups, version, types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(7))
def test_describing_groups(groups, version):
    commit(groups, p0=1)
    asked = {"include_authorized_operations": True} if version >= 3 else {}
    answer = groups.call(ApiKey.DESCRIBE_GROUPS, version, groups=["g", "nope"], **asked)
    simple, missing = answer["groups"]
    assert (simple["error_code"], simple["group_state"], simple["members"]) == (0, "Empty", [])
    assert missing["group_state"] == "Dead"
    assert missing["error_code"] == (69 if version >= 6 else 0)
    if version >= 3:
        assert simple["authorized_operations"] == 3400


@pytest.mark.parametrize("version", range(3))
def test_deleting_groups(groups, version):
    for group in ("g", "h"):
        commit(groups, group=group, p0=1, p1=2)
    answer = groups.call(ApiKey.DELETE_GROUPS, version, groups_names=["g", "nope", "g"])
    assert {one["group_id"]: one["error_code"] for one in answer["results"]} == {"g": 0, "nope": 69}
    assert listed(groups) == ["h"] and fetched(groups) == {}


def test_an_answer_about_several_groups_waits_for_the_last_append(groups):
    for group in "abcdef":
        commit(groups, group=group, p0=1)
    for index in range(50):
        groups.log("__consumer_offsets", index).durable = False
    request = groups.send(ApiKey.DELETE_GROUPS, 2, groups_names=["a", "b", "c"])
    log, offset, _, _ = request.waits
    assert log.log_end_offset == offset and log.high_watermark < offset
    assert log is groups.log("__consumer_offsets", 99 % 50)  # c's, by Java's hash


def test_the_topic_takes_its_offsets_along(groups):
    groups.create("b")
    commit(groups, p0=1)
    commit(groups, topic="b", p0=2)
    groups.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a"}])
    assert fetched(groups) == {("b", 0): 2}
    groups.create("a")
    assert fetched(groups) == {("b", 0): 2}


def test_a_full_disk_keeps_the_offsets_of_a_deleted_topic_only_for_a_while(groups, monkeypatch):
    commit(groups, p0=1)
    with monkeypatch.context() as full:
        full.setattr(type(groups.log("__consumer_offsets")), "append", _no_room)
        groups.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a"}])
    groups.create("a")
    groups.clock.advance(10_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    restarted(groups)
    assert fetched(groups) == {} and listed(groups) == []


def _no_room(*args, **kwargs):
    raise DiskError("x", OSError(28, "full"))


def restarted(control):
    """Fold the logs into new coordinators."""
    control.services.groups.close()
    control.services.groups.open()
    while control.services.groups.loading:
        control.run_posted()


def test_a_topic_that_was_deleted_while_groups_were_not_there(groups):
    groups.create("b")
    commit(groups, p0=1)
    commit(groups, topic="b", p0=2)
    groups.services.groups.close()
    groups.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a"}])
    groups.create("a")
    restarted(groups)
    assert fetched(groups) == {("b", 0): 2}
    restarted(groups)
    assert fetched(groups) == {("b", 0): 2}


def test_while_a_partition_is_loading_clients_ask_again(groups):
    commit(groups, p0=1)
    groups.services.groups.close()
    groups.services.groups.open()
    assert commit(groups, p0=2) == [14]
    assert groups.call(ApiKey.LIST_GROUPS, 5)["error_code"] == 14
    (found,) = groups.call(FETCH, 8, groups=[{"group_id": "g", "topics": None}])["groups"]
    assert found["error_code"] == 14
    while groups.services.groups.loading:
        groups.run_posted()
    assert commit(groups, p0=2) == [0]


def test_without_its_topic_the_coordinator_is_elsewhere(groups):
    commit(groups, p0=1)
    groups.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "__consumer_offsets"}])
    assert commit(groups, p0=1) == [16]
    groups.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    assert fetched(groups) == {} and commit(groups, p0=1) == [0]


def test_old_offsets_and_then_their_group_expire(control_with):
    control = control_with(offsets_retention_minutes="10")
    control.create("a", 2)
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    groups = control.services.groups
    commit(control, p0=1)
    control.clock.advance(400_000)
    commit(control, p1=1)
    control.clock.advance(200_000)
    groups.run_due(control.clock.monotonic_ms())
    assert fetched(control) == {("a", 1): 1} and listed(control) == ["g"]
    control.clock.advance(600_000)
    groups.run_due(control.clock.monotonic_ms())
    assert fetched(control) == {} and listed(control) == []
    assert groups.next_due_ms() > control.clock.monotonic_ms()


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("retention_ms", "kept"),
    [(-1, 1), (1000, 0), (0, 0), (-2, 0), (10**15, 1), (10**17, 1), (2**63 - 1, 0), (-(2**63), 0)],
)
def test_a_retention_that_the_client_asks_for(groups, version, retention_ms, kept):
    """Any number of 64 bits is one; a sum beyond them lies in the past, as in Apache Kafka."""
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
    groups.call(
        COMMIT, version, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        retention_time=retention_ms, topics=[{"name": "a", "partitions": [partition]}],
    )  # fmt: skip
    groups.clock.advance(600_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    assert len(fetched(groups)) == kept


def test_metadata_has_a_limit(groups):
    texts = ["x" * 4096, "x" * 4097, "\N{DNA DOUBLE HELIX}" * 2048, "\N{DNA DOUBLE HELIX}" * 2049]
    codes = []
    for text in texts:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": text}
        answer = groups.call(
            COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": "a", "partitions": [partition]}],
        )  # fmt: skip
        codes.append(answer["topics"][0]["partitions"][0]["error_code"])
    assert codes == [0, 12, 0, 12]
    groups_asked = [{"group_id": "g", "topics": [{"name": "a", "partition_indexes": [0]}]}]
    answer = groups.call(FETCH, 8, groups=groups_asked)
    assert answer["groups"][0]["topics"][0]["partitions"][0]["metadata"] == texts[2]


def test_a_commit_that_no_batch_can_hold(groups):
    groups.create("b", 300)
    partitions = [
        {"partition_index": index, "committed_offset": 5, "committed_metadata": "x" * 4000}
        for index in range(300)
    ]
    answer = groups.call(
        COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        topics=[{"name": "b", "partitions": partitions}],
    )  # fmt: skip
    assert {one["error_code"] for one in answer["topics"][0]["partitions"]} == {-1}
    assert fetched(groups) == {}


@pytest.mark.parametrize(
    ("error", "code"),
    ((DiskError("x", OSError(28, "full")), 15), (DiskError("x", "broken"), 16)),
)
def test_what_the_disk_denies(groups, monkeypatch, error, code):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(type(groups.log("__consumer_offsets")), "append", fail)
    assert commit(groups, p0=1, p9=1) == [3, code]
    assert fetched(groups) == {}


def test_records_that_nobody_can_read_are_passed_over(groups, caplog):
    commit(groups, p0=7)
    (log,) = [
        log
        for index in range(50)
        if (log := groups.log("__consumer_offsets", index)).log_end_offset
    ]
    number = {name: code.to_bytes(2, "big") for name, code in
              {"group": 2, "members": 3, "share": 11, "later": 99}.items()}  # fmt: skip
    name = b"\x00\x01x"
    junk = [
        (number["group"] + name, b"\x00\x03junk"), (number["group"] + name, b"\x7f\xffjunk"),
        (number["group"] + b"\x00\x09x", b"\x00\x03"), (number["members"] + name, b""),
        (number["share"] + name, b"\x00\x00"), (number["later"] + name, b"\x00\x00"),
        (b"\x00", b"x"), (b"\x00\x01" + name, b"junk"), (None, b"x"), (None, None),
    ]  # fmt: skip
    log.append(records.build([(0, *one) for one in junk]), leader_epoch=0)
    commit(groups, p1=8)
    restarted(groups)
    assert fetched(groups) == {("a", 0): 7, ("a", 1): 8}
    assert "damaged" in caplog.text


def test_commits_of_open_transactions_are_not_stable(groups):
    commit(groups, p0=7, p1=7)
    (log,) = [
        log
        for index in range(50)
        if (log := groups.log("__consumer_offsets", index)).log_end_offset
    ]

    def in_transaction(producer, **offsets):
        values = [
            (0, commit_key("g", "a", int(name[1:])),
             commit_value(offset, 0, "", 1, -1, groups.store.image.topics["a"].id, 4))
            for name, offset in offsets.items()
        ]  # fmt: skip
        log.append(records.build(values, producer_id=producer, producer_epoch=0, base_sequence=0,
                                 transactional=True), leader_epoch=0)  # fmt: skip

    in_transaction(1, p0=100)
    in_transaction(2, p0=200)
    in_transaction(3, p1=300)
    commit(groups, p1=8)
    restarted(groups)
    assert fetched(groups) == {("a", 0): 7, ("a", 1): 8}
    asked = [{"group_id": "g", "topics": None}]
    (found,) = groups.call(FETCH, 8, groups=asked, require_stable=True)["groups"]
    codes = [one["error_code"] for one in found["topics"][0]["partitions"]]
    assert codes == [88, 88]
    slot = next(slot for slot in groups.services.groups._slots if slot.log is log)
    offsets = slot.rooms.offsets
    offsets.end_transaction(2, committed=True)
    assert fetched(groups) == {("a", 0): 200, ("a", 1): 8}
    offsets.end_transaction(1, committed=True)
    offsets.end_transaction(3, committed=True)
    assert fetched(groups, stable=True) == {("a", 0): 200, ("a", 1): 8}
    assert not len(offsets.pending)


@pytest.mark.parametrize("authorized", [False, True])
def test_fetch_of_many_topics_lets_others_in_between_them(authorized):
    """However they are refused or told, there are slice points between the topics of one group."""
    services = SimpleNamespace(
        authorizer=object() if authorized else None,
        groups=SimpleNamespace(each=lambda calls, *_: iter(())),
    )
    context = SimpleNamespace(
        version=8, services=services, groups=services.groups, answer=None,
        may=lambda *_, **__: True,
    )  # fmt: skip
    topics = [SimpleNamespace(name=f"t{n}", partition_indexes=[0]) for n in range(1_000)]
    request = SimpleNamespace(groups=[SimpleNamespace(group_id="g", topics=topics)])
    points = sum(1 for _ in offset_fetch(request, context))
    assert points >= (3_000 if authorized else 2_000)


@pytest.mark.parametrize("producer_id", [None, 7])
def test_a_batch_takes_effect_as_its_records_do(producer_id):
    """A commit's offsets are taken in by topic, at a start record by record."""
    limit = 4
    topics = [
        TopicCommit("a", b"a" * 16, [PartitionCommit(0, 1), PartitionCommit(1, 2, 3, "long text"),
                                     PartitionCommit(1, 4, 5, "m"), PartitionCommit(0, 6)]),
        TopicCommit("b", b"b" * 16, [PartitionCommit(0, 7, metadata=None)]),
        TopicCommit("c", b"c" * 16, [PartitionCommit(0, 1, metadata="long text")]),
    ]  # fmt: skip
    batch = run_to_end(build_batch(Commit("g", topics, 8, retention_ms=9), 1_000, limit, None))
    codes = [[one["error_code"] for one in topic["partitions"]] for topic in batch.results]
    assert codes == [[0, 12, 0, 0], [0], [12]]
    found = []
    for by_batch in (True, False):
        offsets = Offsets(Shard(0, GroupSettings(), FakeTopics(), Pulses(), Unwritten()))
        offsets.put_pending(5, ("g", "a", 1), b"earlier")
        if by_batch:
            offsets.take(batch, producer_id)
        else:
            for record in batch.records:
                if producer_id is None:
                    offsets._shard.replay(record)
                else:
                    offsets.replay_pending(producer_id, record)
        offsets.end_transaction(5, True)
        pending = offsets.pending.of_group("g")
        offsets.end_transaction(producer_id or 0, True)
        found.append((offsets.committed.topics("g"), pending, list(offsets._shard.groups)))
    assert found[0] == found[1]
    assert {(name, index): unpack(data).offset for name, rows in found[0][0].items()
            for index, data in rows.items()} == {
        ("a", 0): 6, ("a", 1): 4, ("b", 0): 7}  # fmt: skip
    assert [records.records(records.build([pair]))[0].key for pair in batch.pairs] == [
        encode_key(record.key) for record in batch.records
    ]


def test_a_batch_that_is_too_large_ends_with_the_record_too_many():
    partitions = [PartitionCommit(0, number) for number in range(100)]
    steps = build_batch(Commit("g", [TopicCommit("a", bytes(16), partitions)], 8), 1, 4, 500)
    batch = run_to_end(steps)
    assert isinstance(batch.error, ClientError)
    assert batch.error.code == ErrorCode.MESSAGE_TOO_LARGE
    sizes = [len(key) + len(value or b"") for _, key, value in batch.pairs]
    assert 400 < sum(sizes) <= 500 and len(batch.records) == len(sizes) + 1
