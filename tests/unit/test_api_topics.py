"""Topics through the handlers: made, shown, grown, cut and deleted, at every version."""

from __future__ import annotations

import uuid

import pytest

from kbroker.protocol import ApiKey
from kbroker.txn.durable import Durable

CREATE, DELETE, METADATA = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.METADATA
GROW, PAGES, TRIM = (
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DELETE_RECORDS,
)


def topic(name, partitions=1, factor=1, configs=(), assignments=()):
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "configs": [{"name": k, "value": v} for k, v in dict(configs).items()],
        "assignments": [{"partition_index": p, "broker_ids": b} for p, b in assignments],
    }


def codes(answer, field="topics"):
    return {one["name"]: one["error_code"] for one in answer[field]}


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_at_every_version(control, version):
    answer = control.call(CREATE, version, topics=[topic("a", 3), topic("b", -1, -1)])
    assert [one["name"] for one in answer["topics"]] == ["a", "b"]
    assert codes(answer) == {"a": 0, "b": 0}
    offered = control.data_plane.topics
    assert list(offered) == ["a", "b"] and len(offered["a"]) == 3
    if version >= 5:
        made = answer["topics"][0]
        assert (made["num_partitions"], made["replication_factor"]) == (3, 1)
        configs = {one["name"]: one for one in made["configs"]}
        assert configs["retention.ms"]["value"] == "604800000"
        assert configs["retention.ms"]["config_source"] == 5
        assert configs["min.insync.replicas"]["config_source"] == 3
        assert "internal.segment.bytes" not in configs
        assert list(configs) == sorted(configs)
    if version >= 7:
        assert answer["topics"][0]["topic_id"] == control.store.image.topics["a"].uuid


def test_good_and_bad_topics_in_one_request_each_get_their_own_answer(control):
    control.create("old")
    control.create("x.y")
    asked = [
        topic("good"),
        topic("old"),
        topic("bad name"),
        topic(""),
        topic("."),
        topic("n" * 250),
        topic("x_y"),
        topic("none", 0),
        topic("minus", -2),
        topic("factor", 1, 0),
        topic("three", 1, 3),
        topic("config", configs={"no.such": "1"}),
        topic("range", configs={"retention.ms": "-7"}),
        topic("null", configs={"retention.ms": None}),
        topic("twice"),
        topic("twice"),
        topic("__cluster_metadata"),
    ]
    answer = control.call(CREATE, 7, topics=asked)
    found = [(one["name"], one["error_code"]) for one in answer["topics"]]
    assert found == [
        ("good", 0),
        ("old", 36),
        ("bad name", 17),
        ("", 17),
        (".", 17),
        ("n" * 250, 17),
        ("x_y", 17),
        ("none", 37),
        ("minus", 37),
        ("factor", 38),
        ("three", 38),
        ("config", 40),
        ("range", 40),
        ("null", 40),
        ("twice", 42),
        ("__cluster_metadata", 42),
    ]
    assert all((one["error_message"] is None) == (one["error_code"] == 0)
               for one in answer["topics"])  # fmt: skip
    assert set(control.store.image.topics) == {"old", "x.y", "good"}


def test_validate_only_answers_the_same_and_creates_nothing(control):
    asked = [topic("a", 2), topic("b", 1, 2)]
    told = control.call(CREATE, 7, topics=asked, validate_only=True)
    assert not control.store.image.topics and not control.data_plane.topics
    made = control.call(CREATE, 7, topics=asked)
    for answer in (told, made):
        answer["topics"][0]["topic_id"] = None
    assert told == made


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"assignments": [(0, [1]), (1, [1])]}, 0),
        ({"assignments": [(0, [1])], "partitions": 1}, 42),
        ({"assignments": [(0, [1])], "factor": 1}, 42),
        ({"assignments": [(0, [1]), (0, [1])]}, 39),
        ({"assignments": [(1, [1])]}, 39),
        ({"assignments": [(0, [])]}, 39),
        ({"assignments": [(0, [2])]}, 39),
        ({"assignments": [(0, [1, 1])]}, 39),
    ],
)
def test_manual_assignments(control, fields, code):
    asked = topic("a", **{"partitions": -1, "factor": -1, **fields})
    assert codes(control.call(CREATE, 7, topics=[asked])) == {"a": code}


def test_a_clamped_replication_factor_is_taken_and_stored_as_one(control_with):
    control = control_with(kbroker_replication_factor_clamp="true")
    asked = [topic("a", 1, 3), topic("b", -1, -1, assignments=[(0, [1, 2, 3])])]
    answer = control.call(CREATE, 7, topics=asked)
    assert [one["replication_factor"] for one in answer["topics"]] == [1, 1]
    assert control.store.image.partition("b", 0).replicas == [1]


def test_a_request_for_too_many_partitions_fails_as_a_whole(control):
    answer = control.call(CREATE, 7, topics=[topic("a", 6000), topic("b", 6000)])
    assert codes(answer) == {"a": 44, "b": 44}


def test_topics_that_are_refused_one_by_one_count_as_a_partition_each(control):
    most = [topic(f"t{n}", 0) for n in range(10_000)]
    assert set(codes(control.call(CREATE, 7, topics=most)).values()) == {37}
    answer = control.call(CREATE, 7, topics=[*most, topic("one-more", 0)])
    assert set(codes(answer).values()) == {44}


@pytest.mark.parametrize("version", range(14))
def test_metadata_at_every_version(control, version):
    control.create("a", 2)
    control.create("b")
    answer = control.call(METADATA, version, topics=[] if version == 0 else None)
    assert codes(answer) == {"a": 0, "b": 0}
    (broker,) = answer["brokers"]
    assert (broker["node_id"], broker["host"], broker["port"]) == (1, "localhost", 9092)
    first = answer["topics"][0]["partitions"]
    assert [one["partition_index"] for one in first] == [0, 1]
    assert first[0]["leader_id"] == 1 and first[0]["isr_nodes"] == [1]
    if version >= 1:
        assert answer["controller_id"] == 1
        assert control.call(METADATA, version, topics=[])["topics"] == []
    if version >= 2:
        assert answer["cluster_id"] == control.store.meta.cluster_id
    if version >= 7:
        assert first[0]["leader_epoch"] == 0
    if version >= 10:
        assert answer["topics"][0]["topic_id"] == control.store.image.topics["a"].uuid


def test_metadata_creates_what_is_missing_once(control):
    asked = [{"name": "new"}, {"name": "new"}, {"name": "bad name"}]
    answer = control.call(METADATA, 9, topics=asked)
    assert codes(answer) == {"new": 3, "bad name": 17}
    assert set(control.store.image.topics) == {"new"}
    assert codes(control.call(METADATA, 9, topics=asked)) == {"new": 0, "bad name": 17}


def test_metadata_creates_no_more_at_once_than_a_request_may(control_with):
    control = control_with(num_partitions="4000")
    asked = [{"name": name} for name in "abc"]
    assert codes(control.call(METADATA, 9, topics=asked)) == {"a": 3, "b": 3, "c": 3}
    assert set(control.store.image.topics) == {"a", "b"}
    assert codes(control.call(METADATA, 9, topics=asked)) == {"a": 0, "b": 0, "c": 3}
    assert set(control.store.image.topics) == {"a", "b", "c"}


def test_metadata_creates_nothing_where_request_or_broker_forbid_it(control, control_with):
    answer = control.call(METADATA, 9, topics=[{"name": "a"}], allow_auto_topic_creation=False)
    assert codes(answer) == {"a": 3}
    control.close()
    silent = control_with(auto_create_topics_enable="false")
    assert codes(silent.call(METADATA, 3, topics=[{"name": "a"}])) == {"a": 3}


def test_internal_topics_are_made_with_settings_of_their_own(control):
    for _ in range(2):
        answer = control.call(METADATA, 9, topics=[{"name": "__consumer_offsets"}])
    (made,) = answer["topics"]
    assert made["is_internal"] and len(made["partitions"]) == 50
    assert control.data_plane.internal == {"__consumer_offsets"}
    configs = control.store.image.configs(("topic", "__consumer_offsets"))
    assert configs["cleanup.policy"] == "compact"
    assert control.log("__consumer_offsets").config["cleanup_compact"] == 1


def test_metadata_by_topic_id(control):
    control.create("a")
    known, unknown = control.store.image.topics["a"].uuid, uuid.UUID(int=5)
    asked = [{"topic_id": unknown, "name": None}, {"topic_id": known, "name": None}]
    answer = control.call(METADATA, 12, topics=asked)
    assert [(one["name"], one["error_code"], one["topic_id"]) for one in answer["topics"]] == [
        (None, 100, unknown),
        ("a", 0, known),
    ]
    refused = control.call(METADATA, 11, topics=[{"topic_id": known, "name": "a"}])
    assert codes(refused) == {"a": 42}


def test_authorized_operations_are_all_without_an_authorizer(control):
    control.create("a")
    answer = control.call(
        METADATA, 8, topics=None, include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )  # fmt: skip
    assert answer["topics"][0]["topic_authorized_operations"] == 3576
    assert answer["cluster_authorized_operations"] == 8096


def test_a_partition_without_a_log_has_no_leader(control):
    control.create("a", 2)
    control.logs.offline["a", 1] = "disk"
    partitions = control.call(METADATA, 9, topics=None)["topics"][0]["partitions"]
    assert [one["error_code"] for one in partitions] == [0, 5]
    assert partitions[1]["leader_id"] == -1 and partitions[1]["offline_replicas"] == [1]


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_at_every_version(control, version):
    control.create("a", 2)
    control.create("b")
    named = {"topics": [{"name": "a"}, {"name": "no"}]} if version > 5 else {
        "topic_names": ["a", "no"]
    }  # fmt: skip
    log = control.log("a", 1)
    answer = control.call(DELETE, version, **named)
    assert codes(answer, "responses") == {"a": 0, "no": 3}
    assert log.deleted and set(control.data_plane.topics) == {"b"}
    assert not [path for path in control.logs.directory.iterdir() if path.name == "a-0"]
    assert len(list(control.logs.directory.glob("a-*-delete"))) == 2
    control.logs.dead.remove(control.clock.monotonic_ms() + 60_000)
    assert not list(control.logs.directory.glob("a-*"))
    assert not control.store.image.deleted_topics  # the next start has nothing to look for
    control.create("a")


def test_deletion_by_id_and_its_mistakes(control):
    for name in "abc":
        control.create(name)
    ids = {name: control.store.image.topics[name].uuid for name in "abc"}
    unknown = uuid.UUID(int=9)
    asked = [
        {"name": None, "topic_id": ids["a"]},
        {"name": None, "topic_id": unknown},
        {"name": None},
        {"name": "b", "topic_id": ids["b"]},
        {"name": "twice"},
        {"name": "twice"},
        {"name": None, "topic_id": ids["c"]},
        {"name": "c"},
    ]
    answer = control.call(DELETE, 6, topics=asked)
    found = {(one["name"], one["topic_id"].int): one["error_code"] for one in answer["responses"]}
    assert found == {
        ("a", ids["a"].int): 0,
        (None, unknown.int): 100,
        (None, 0): 42,
        ("b", ids["b"].int): 42,
        ("twice", 0): 42,
        ("c", ids["c"].int): 42,
    }
    assert set(control.store.image.topics) == {"b", "c"}


def test_deletion_can_be_disabled(control_with):
    control = control_with(delete_topic_enable="false")
    assert codes(control.call(DELETE, 2, topic_names=["a"]), "responses") == {"a": 42}
    assert codes(control.call(DELETE, 3, topic_names=["a"]), "responses") == {"a": 73}


def test_a_deleted_topics_name_no_longer_collides(control):
    control.create("a.b")
    assert codes(control.call(CREATE, 7, topics=[topic("a_b")])) == {"a_b": 17}
    control.call(DELETE, 5, topic_names=["a.b"])
    assert codes(control.call(CREATE, 7, topics=[topic("a_b")])) == {"a_b": 0}


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_at_every_version(control, version):
    control.create("a", 2)
    answer = control.call(
        GROW, version, topics=[
            {"name": "a", "count": 4, "assignments": None},
            {"name": "no", "count": 4, "assignments": None},
        ],
    )  # fmt: skip
    assert codes(answer, "results") == {"a": 0, "no": 3}
    assert len(control.data_plane.topics["a"]) == 4
    assert control.log("a", 3).opening.spec.partition == 3


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, 37),
        (1, None, 37),
        (4, [[1]], 39),
        (3, [[2]], 39),
        (3, [[1]], 0),
        (20_000, None, 44),
    ],
)
def test_growth_that_is_none_or_goes_elsewhere_is_refused(control, count, assignments, code):
    control.create("a", 2)
    placed = None if assignments is None else [{"broker_ids": one} for one in assignments]
    asked = {"name": "a", "count": count, "assignments": placed}
    told = control.call(GROW, 3, topics=[asked], validate_only=True)
    assert codes(told, "results") == {"a": code} and len(control.data_plane.topics["a"]) == 2
    assert control.call(GROW, 3, topics=[asked]) == told
    assert codes(control.call(GROW, 3, topics=[asked, asked]), "results") == {"a": 42}


def reach(log, offset):
    """The disk has it at once."""
    log.high_watermark = offset
    return True


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(control, version):
    control.create("a", 5)
    control.create("packed", cleanup_policy="compact")
    control.call(METADATA, 9, topics=[{"name": "__consumer_offsets"}])
    for index in range(5):
        control.log("a", index).hold(3, 9, 10, 12)
    del control.logs._logs["a", 4]
    control.services.durable = Durable(reach)
    wanted = {0: 7, 1: -1, 2: 13, 3: 1, 4: 5, 9: 1}
    answer = control.call(
        TRIM, version, topics=[
            {"name": "a", "partitions": [
                {"partition_index": p, "offset": o} for p, o in wanted.items()]},
            {"name": "packed", "partitions": [{"partition_index": 0, "offset": 0}]},
            {"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]},
        ],
    )  # fmt: skip
    found = {
        (one["name"], part["partition_index"]): (part["error_code"], part["low_watermark"])
        for one in answer["topics"]
        for part in one["partitions"]
    }
    assert found == {
        ("a", 0): (0, 7),
        ("a", 1): (0, 12),
        ("a", 2): (1, -1),
        ("a", 3): (0, 3),
        ("a", 4): (56, -1),
        ("a", 9): (3, -1),
        ("packed", 0): (44, -1),
        ("__consumer_offsets", 0): (17, -1),
    }


def trim(offset):
    return [{"name": "a", "partitions": [{"partition_index": 0, "offset": offset}]}]


@pytest.mark.parametrize("offset", [-1, 11, 12])
def test_records_that_are_not_durable_yet_are_waited_for(control, offset):
    control.create("a")
    log = control.log("a", 0)
    log.hold(3, 9, 10, 12)
    wanted = 12 if offset == -1 else offset
    asked = []
    control.services.durable = Durable(lambda log, offset: asked.append(offset))
    request = control.send(TRIM, 2, topics=trim(offset))
    assert request.answer is None and log.log_start_offset == 3 and asked == [wanted]
    control.services.durable.run_due(0)
    assert request.answer is None and asked == [wanted] * 2, "it is asked for again"
    log.high_watermark = wanted
    control.services.durable.run_due(0)
    control.run_operations()
    (part,) = control.decoded(request)["topics"][0]["partitions"]
    assert (part["error_code"], part["low_watermark"]) == (0, wanted) == (0, log.log_start_offset)


def test_partitions_wait_for_the_disk_together(control):
    """One that is not durable in time does not keep the others."""
    control.create("a", 3)
    logs = [control.log("a", index) for index in range(3)]
    for log in logs:
        log.hold(3, 9, 10, 12)
    control.services.durable = Durable(lambda log, offset: False)
    partitions = [{"partition_index": index, "offset": 11} for index in range(3)]
    request = control.send(TRIM, 2, topics=[{"name": "a", "partitions": partitions}], timeout=1)
    assert len(control.services.durable) == 3
    logs[0].high_watermark = logs[2].high_watermark = 12
    control.clock.advance(5_000)
    control.services.operations.run_due()
    control.run_operations()
    parts = control.decoded(request)["topics"][0]["partitions"]
    assert [part["error_code"] for part in parts] == [0, 7, 0]
    assert [log.log_start_offset for log in logs] == [11, 3, 11]


def test_records_that_never_get_durable_are_not_deleted(control):
    control.create("a")
    log = control.log("a", 0)
    log.hold(3, 9, 10, 12)
    control.services.durable = Durable(lambda log, offset: True)
    (part,) = control.call(TRIM, 2, topics=trim(-1))["topics"][0]["partitions"]
    assert (part["error_code"], part["low_watermark"]) == (56, -1) and log.log_start_offset == 3


def test_who_waits_for_the_disk_is_answered_at_the_deadline(control):
    control.create("a")
    control.log("a", 0).hold(3, 9, 10, 12)
    control.services.durable = Durable(lambda log, offset: False)
    request = control.send(TRIM, 2, topics=trim(-1), timeout=1)
    control.clock.advance(4_999)
    control.services.operations.run_due()
    assert request.answer is None
    control.clock.advance(1)
    control.services.operations.run_due()
    control.run_operations()
    (part,) = control.decoded(request)["topics"][0]["partitions"]
    assert part["error_code"] == 7


def pages(control, **fields):
    names = []
    cursor = None
    while True:
        answer = control.call(PAGES, 0, cursor=cursor, **fields)
        names += [
            (one["name"], part["partition_index"])
            for one in answer["topics"]
            for part in one["partitions"]
        ]
        cursor = answer["next_cursor"]
        if cursor is None:
            return names


@pytest.mark.parametrize("limit", [-1, 1, 2, 3, 4, 100])
def test_partitions_are_described_page_by_page(control, limit):
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        control.create(name, count)
    every = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages(control, topics=[], response_partition_limit=limit) == every
    some = [{"name": "c"}, {"name": "a"}]
    named = [one for one in every if one[0] != "b"]
    assert pages(control, topics=some, response_partition_limit=limit) == named


def test_pages_of_topics_that_are_not_there(control):
    control.create("a")
    asked = [{"name": "a"}, {"name": "no"}, {"name": "bad name"}]
    answer = control.call(PAGES, 0, topics=asked, response_partition_limit=10)
    assert [(one["name"], one["error_code"]) for one in answer["topics"]] == [
        ("a", 0),
        ("bad name", 17),
        ("no", 3),
    ]
    assert answer["topics"][0]["topic_authorized_operations"] == 3576
    for cursor in ({"topic_name": "zz", "partition_index": 0},
                   {"topic_name": "a", "partition_index": -1}):  # fmt: skip
        refused = control.call(PAGES, 0, topics=asked[:1], cursor=cursor)
        assert refused["topics"][0]["error_code"] == 42
