"""CreateTopics, DeleteTopics, CreatePartitions and what metadata tells of it."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.harness import Script, same
from tests.support.messages import ZERO_UUID

CREATE_VERSIONS = range(2, 8)


def asked(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor} | fields


def create(s: Script, version: int, *topics: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return s.call(19, version, {"topics": topics, "timeout": 15000} | fields)


def config(name: str, value: str | None) -> dict[str, Any]:
    return {"name": name, "value": value}


def describe(
    s: Script, *names: str, version: int = 12, known: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Metadata of topics, once those in `known` are there."""
    for name in known:
        s.until_known(s.name(name))
    body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    return s.call(3, version, body)


@same(CREATE_VERSIONS)
def test_create(s: Script, version: int) -> None:
    """Counts, defaults of -1, and the answer's detail of version 5."""
    create(s, version, asked(s.name("one")))
    create(s, version, asked(s.name("three"), 3), asked(s.name("four"), 4, 1))
    if version >= 4:
        create(s, version, asked(s.name("default"), -1, -1))
    create(s, version, asked(s.name("again")))
    create(s, version, asked(s.name("again")))
    create(s, version)


@same(CREATE_VERSIONS)
def test_create_refused(s: Script, version: int) -> None:
    """Each of these alone, then all of them in one request with a good one among them."""
    bad = [
        asked("", 1), asked(".", 1), asked("..", 1), asked(s.name("sp ace")), asked(s.name("ä")),
        asked(s.name("x" * 250)), asked(s.name("zero"), 0), asked(s.name("less"), -2),
        asked(s.name("factor"), 1, 0), asked(s.name("factor2"), 1, 2),
        asked(s.name("factor-2"), 1, -2), asked(s.name("many"), 1, 32767),
        asked(s.name("unknown-key"), configs=[config("no.such.key", "1")]),
        asked(s.name("bad-value"), configs=[config("retention.ms", "soon")]),
        asked(s.name("null-value"), configs=[config("retention.ms", None)]),
        asked(s.name("range"), configs=[config("segment.bytes", "1")]),
        asked(s.name("enum"), configs=[config("cleanup.policy", "burn")]),
        asked(s.name("replicas"), configs=[config("min.insync.replicas", "0")]),
    ]  # fmt: skip
    for topic in bad:
        create(s, version, topic)
    create(s, version, *bad[:8], asked(s.name("good"), 2), *bad[8:])
    describe(s, s.name("good"), s.name("zero"), known=("good",))


@same(CREATE_VERSIONS)
def test_create_twice_in_one_request(s: Script, version: int) -> None:
    create(s, version, asked(s.name("a")), asked(s.name("b")), asked(s.name("a"), 2))
    describe(s, s.name("a"), s.name("b"), known=("b",))


@same((2, 5, 7))
def test_create_too_many_partitions(s: Script, version: int) -> None:
    """One partition too many in the request refuses all its topics; names given twice count none.
    """
    create(s, version, asked(s.name("wide"), 10_001))
    create(s, version, asked(s.name("half"), 5_000), asked(s.name("more"), 5_001), asked("sp ace"))
    create(s, version, *[asked(s.name("twice"), 5_001)] * 2, asked(s.name("good")))
    describe(s, *map(s.name, ("wide", "half", "more", "twice", "good")), known=("good",))


@same((2, 5, 7))
def test_create_with_colliding_names(s: Script, version: int) -> None:
    """A dot and an underscore are one in metric names."""
    create(s, version, asked(s.name("a.b_c")))
    create(s, version, asked(s.name("a_b.c")))
    create(s, version, asked(s.name("a.b.c")), asked(s.name("x.y")), asked(s.name("x_y")))
    describe(s, s.name("x.y"), s.name("x_y"), s.name("a_b.c"), known=("a.b_c",))


@same((2, 5, 7))
def test_create_internal(s: Script, version: int) -> None:
    s.until_coordinator(0)  # another test may have had a group on one of the two
    create(s, version, asked("__cluster_metadata"), validate_only=True)
    create(s, version, asked("__consumer_offsets"), validate_only=True)


@same(CREATE_VERSIONS)
def test_create_with_assignments(s: Script, version: int) -> None:
    def assigned(short: str, *replicas: list[int], **fields: Any) -> dict[str, Any]:
        rows = [{"partition_index": i, "broker_ids": r} for i, r in enumerate(replicas)]
        return asked(s.name(short), -1, -1, assignments=rows) | fields

    create(s, version, assigned("good", [1], [1], [1]))
    create(s, version, assigned("unknown-broker", [1], [2]))
    create(s, version, assigned("no-replicas", [1], []))
    create(s, version, assigned("twice", [1, 1]))
    create(s, version, assigned("both", [1], num_partitions=1, replication_factor=1))
    create(s, version, assigned("counted", [1], num_partitions=1))
    gap = [{"partition_index": i, "broker_ids": [1]} for i in (0, 2)]
    create(s, version, asked(s.name("gap"), -1, -1, assignments=gap))
    same_index = [{"partition_index": 0, "broker_ids": [1]}] * 2
    create(s, version, asked(s.name("same"), -1, -1, assignments=same_index))
    describe(s, s.name("good"), s.name("gap"), known=("good",))


@same(CREATE_VERSIONS)
def test_create_with_configs(s: Script, version: int) -> None:
    """What differs from the broker's default is told back."""
    settings = [config("retention.ms", "1000"), config("cleanup.policy", "compact,delete")]
    create(s, version, asked(s.name("a"), configs=settings))
    repeated = [config("retention.ms", "1"), config("retention.ms", "2")]
    create(s, version, asked(s.name("b"), configs=repeated))
    create(s, version, asked(s.name("c"), configs=[config("", "x")]))
    create(s, version, asked(s.name("d"), configs=[config("compression.type", "zstd")]))


@same(CREATE_VERSIONS)
def test_validate_only(s: Script, version: int) -> None:
    create(s, version, asked(s.name("a")), asked(s.name("b"), 0), validate_only=True)
    describe(s, s.name("a"), s.name("b"))


# --- DeleteTopics -------------------------------------------------------------------------------


@same((1, 2, 3, 4, 5))
def test_delete_by_name(s: Script, version: int) -> None:
    def delete(*names: str) -> None:
        s.call(20, version, {"topic_names": names, "timeout": 15000})

    topics = [s.topic(short) for short in "abc"]
    delete(topics[0])
    delete(topics[0])
    delete(topics[1], s.name("unknown"), topics[2])
    delete(s.name("unknown"))
    delete("")
    delete()
    twice = s.topic("d")
    delete(twice, twice)
    for name in topics:
        s.until_unknown(name)
    describe(s, *topics, twice)


@same((6,))
def test_delete_by_id(s: Script, version: int) -> None:
    def delete(*topics: dict[str, Any]) -> None:
        s.call(20, version, {"topics": topics, "timeout": 15000})

    first, second, third = (s.topic(short) for short in "abc")
    delete({"name": None, "topic_id": s.id_of(first)})
    delete({"name": None, "topic_id": s.id_of(first)})
    delete({"name": second, "topic_id": ZERO_UUID})
    delete({"name": None, "topic_id": uuid.UUID(int=0xABC)})
    delete({"name": third, "topic_id": s.id_of(third)})
    delete({"name": None, "topic_id": ZERO_UUID})
    delete({"name": third, "topic_id": ZERO_UUID}, {"name": None, "topic_id": s.id_of(third)})


@same((12, 13))
def test_produce_and_fetch_after_delete(s: Script, version: int) -> None:
    topic = s.topic()
    s.produce(topic, s.batch(b"x"), version)
    s.call(20, 5, {"topic_names": [topic], "timeout": 15000})
    s.until_unknown(topic)
    if version >= 13:
        s.produce(topic, s.batch(b"x"), version)
        s.fetch(topic, 0, version)
    again = s.topic()
    s.produce(again, s.batch(b"y"), version)
    s.fetch(again, 0, version)


# --- CreatePartitions ---------------------------------------------------------------------------


@same(range(4))
def test_create_partitions(s: Script, version: int) -> None:
    def grow(*topics: dict[str, Any], **fields: Any) -> None:
        s.call(37, version, {"topics": topics, "timeout": 15000} | fields)

    def to(name: str, count: int, *replicas: list[int]) -> dict[str, Any]:
        rows = [{"broker_ids": ids} for ids in replicas] if replicas else None
        return {"name": name, "count": count, "assignments": rows}

    topic, other = s.topic("a"), s.topic("b", 2)
    grow(to(topic, 3))
    grow(to(topic, 3))
    grow(to(topic, 2))
    grow(to(topic, 0), to(other, 4), to(s.name("unknown"), 2))
    grow(to(topic, -1))
    grow(to(topic, 4, [1]))
    grow(to(topic, 6, [1]))
    grow(to(topic, 5, [7]))
    grow(to(topic, 5, []))
    grow(to(topic, 5, [1, 1]))
    grow(to(topic, 9), validate_only=True)
    grow(to(other, 5), to(other, 6))
    grow()
    for name in (topic, other):
        s.until_known(name, 4)
    describe(s, topic, other)


# --- Metadata -----------------------------------------------------------------------------------


def own(s: Script) -> Any:
    """Keeps the topics of this script, as other scripts' come and go."""
    return lambda answer: (
        answer | {"topics": [t for t in answer["topics"] if (t["name"] or "").startswith(s.prefix)]}
    )


@same(range(14))
def test_metadata(s: Script, version: int) -> None:
    topic = s.topic("a", 3)
    s.topic("b")
    everything: dict[str, Any] = {"topics": None if version >= 1 else []}
    s.call(3, version, everything, keep=own(s))
    s.call(3, version, {"topics": [{"name": topic}]})
    s.call(3, version, {"topics": [{"name": topic}, {"name": topic}]})
    if version >= 1:
        s.call(3, version, {"topics": []})
    if version >= 4:
        quiet = {"allow_auto_topic_creation": False}
        for name in ("unknown", "bad name", "x" * 250):
            s.call(3, version, {"topics": [{"name": s.name(name)}]} | quiet)
        s.call(3, version, {"topics": [{"name": ""}]} | quiet)
        s.call(3, version, {"topics": [{"name": s.name("u")}, {"name": topic}]} | quiet)


@same(range(4, 14))
def test_metadata_creates_topics(s: Script, version: int) -> None:
    """The first answer is an error that asks to try again; then the topic is there."""
    name = s.name("auto")
    s.call(3, version, {"topics": [{"name": name}, {"name": s.name("bad/name")}]})
    s.until_known(name)
    describe(s, name)


@same((8, 9, 10))
def test_authorized_operations(s: Script, version: int) -> None:
    topic = s.topic()
    body: dict[str, Any] = {"topics": [{"name": topic}]}
    flags = ("include_topic_authorized_operations", "include_cluster_authorized_operations")
    for flag in flags:
        s.call(3, version, body | {flag: True})
    s.call(3, 13, body | {flags[0]: True})


@same((10, 12, 13))
def test_metadata_by_id(s: Script, version: int) -> None:
    topic = s.topic()
    by_id = {"topic_id": s.id_of(topic), "name": None}
    s.call(3, version, {"topics": [by_id]})
    s.call(3, version, {"topics": [by_id | {"topic_id": uuid.UUID(int=0x55)}]})
    s.call(3, version, {"topics": [by_id, {"name": topic}]})
    unknown = {"name": s.name("unknown")}
    s.call(3, version, {"topics": [by_id, unknown], "allow_auto_topic_creation": False})
