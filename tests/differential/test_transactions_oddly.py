"""Transactions asked for in ways that no client of Kafka's does: protocols mixed within one
transaction, batches and lists that are odd, several partitions of which some are refused."""

from __future__ import annotations

from typing import Any

from kbroker.group.partition import group_partition
from tests.differential.harness import Script, same
from tests.differential.test_transactions import (
    ADD_OFFSETS,
    LIST,
    MARKERS,
    OFFSETS,
    commit_body,
    fetched,
    read,
)
from tests.differential.transactional import ADD_PARTITIONS, DESCRIBE, END, INIT, Producer
from tests.reference.crafted_batches import CONTROL, TRANSACTIONAL

PRODUCE = 0


@same((4, 5))
def test_protocols_mixed(s: Script, version: int) -> None:
    """Begun by one protocol, ended by the other: `version` is that of EndTxn."""
    topic = s.topic()
    first, second = Producer(s, 2, "first"), Producer(s, 1, "second")
    for producer in (first, second):
        producer.init()
    first.send(topic, b"a")
    first.end(True, version)
    first.send(topic, b"b")
    first.add(topic)
    first.send(topic, b"b", version=9)
    first.end(False, version)
    second.add(topic)
    second.send(topic, b"c")
    second.send(topic, b"d", version=12)
    second.end(True, version)
    second.add(topic)
    second.send(topic, b"e")
    second.end(False, version)
    for producer in (first, second):
        producer.described()
        producer.init()
        producer.described()
    read(s, topic)


@same((9, 12))
def test_odd_batches(s: Script, version: int) -> None:
    """Plain ones of a producer whose transaction is open, control batches, no producer id."""
    topic = s.topic()
    producer = Producer(s, 2 if version >= 12 else 1)
    producer.init()
    if version < 12:
        producer.add(topic)
    producer.send(topic, b"a", version=version)
    for fields in (
        {"attributes": 0},
        {"attributes": CONTROL},
        {"attributes": CONTROL | TRANSACTIONAL},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
        {"producer_epoch": -1},
        {"base_sequence": -1},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": 0},
    ):
        producer.send(topic, b"b", version=version, **fields)
        producer.sequence = 1
    producer.described()
    producer.end(True)
    read(s, topic)


@same((9, 11, 12))
def test_several_partitions(s: Script, version: int) -> None:
    """One Produce for partitions of which some are added, some are not, and some are not there."""
    s.topic("t", 3)
    s.topic("u", 2)
    topic, other = s.name("t"), s.name("u")
    producer = Producer(s, 2 if version >= 12 else 1)
    producer.init()
    if version < 12:
        producer.add(topic)
    stamp = {"producer_id": producer.id, "producer_epoch": producer.epoch, "base_sequence": 0}

    def ask(**parts: dict[int, Any]) -> None:
        data = {s.name(short): found for short, found in parts.items()}
        body = s.produce_body(data, version) | {"transactional_id": producer.name}
        s.call(PRODUCE, version, body, without_log_starts)

    def one(**fields: Any) -> bytes:
        return s.batch(b"a", **{**stamp, "attributes": TRANSACTIONAL, **fields})

    ask(t={0: one(), 1: one(), 7: one()}, u={0: one()})
    ask(t={1: one(producer_epoch=5)}, u={1: one()})
    ask(t={2: one()}, missing={0: one()})
    ask(t={2: one()}, u={1: one(attributes=0)})
    ask(t={2: one(producer_id=producer.id + 1)}, u={1: one()})
    s.call(DESCRIBE, 0, {"transactional_ids": [producer.name]}, partitions_of)
    producer.end(True)
    for partition in range(3):
        s.call(1, 12, s.fetch_body(topic, 0, 12, partition=partition, isolation_level=1))
    for partition in range(2):
        s.call(1, 12, s.fetch_body(other, 0, 12, partition=partition, isolation_level=1))


def partitions_of(answer: dict[str, Any]) -> Any:
    """Kafka's order is that of a hash map."""
    topics = answer["transaction_states"][0]["topics"]
    return sorted((one["topic"], sorted(one["partitions"])) for one in topics)


def without_log_starts(answer: dict[str, Any]) -> Any:
    """As of one partition: which of the two refuses first is its own business."""
    for topic in answer["responses"]:
        for partition in topic["partition_responses"]:
            if partition["error_code"]:
                partition["log_start_offset"] = -1
    return answer


@same((3,))
def test_odd_partitions(s: Script, version: int) -> None:
    """None, one twice, one that is not there, internal ones."""
    topic = s.topic("t", 2)
    s.until_coordinator(0)
    producer = Producer(s, 1)
    producer.init()

    def ask(*topics: tuple[str, list[int]]) -> None:
        who = {f"v3_and_below_{key}": value for key, value in producer.who.items()}
        asked = [{"name": name, "partitions": partitions} for name, partitions in topics]
        s.call(ADD_PARTITIONS, version, who | {"v3_and_below_topics": asked})

    ask()
    producer.described()
    ask((topic, []))
    producer.described()
    ask((topic, [0, 0]))
    ask((topic, [0]), (topic, [1]))
    ask((topic, [2]))
    ask((topic, [-1]))
    ask(("", [0]))
    ask(("no/topic", [0]), (topic, [1]))
    ask(("__consumer_offsets", [3]))
    ask(
        ("__consumer_offsets", [3]),
        (topic, [1]),
        (s.name("missing"), [0]),
        ("__transaction_state", [99]),
    )
    s.call(DESCRIBE, 0, {"transactional_ids": [producer.name]}, partitions_of)
    producer.end(True)
    producer.described()


@same((3, 5))
def test_odd_offsets(s: Script, version: int) -> None:
    s.until_coordinator(0)
    topic, group = s.topic(), s.name("group")
    producer = Producer(s, 2 if version >= 5 else 1)
    producer.init()
    if version < 5:
        s.call(ADD_OFFSETS, 3, producer.who | {"group_id": group})

    def ask(**fields: Any) -> None:
        body = commit_body(producer, group, topic, 3)
        body["topics"][0]["partitions"][0] |= fields
        s.call(OFFSETS, version, body)
        fetched(s, group, topic)

    ask(committed_offset=-1)
    ask(committed_offset=-7)
    ask(partition_index=-1)
    ask(partition_index=9)
    ask(committed_metadata="m" * 4096)
    ask(committed_metadata="m" * 4097)
    ask(committed_metadata=None)
    ask(committed_leader_epoch=77)
    s.call(OFFSETS, version, commit_body(producer, group, topic, 3, topics=[]))
    producer.described()
    producer.end(False)
    fetched(s, group, topic)


@same((1,))
def test_markers_of_offsets(s: Script, version: int) -> None:
    """An administrator's marker ends what is pending in a group."""
    s.until_coordinator(0)
    topic = s.topic()
    for commit in (True, False):
        group = s.name(f"group{commit}")
        producer = Producer(s, 1, f"id{commit}")
        producer.init()
        s.call(ADD_OFFSETS, 3, producer.who | {"group_id": group})
        s.call(OFFSETS, 3, commit_body(producer, group, topic, 8))
        fetched(s, group, topic)
        index = group_partition(group, 50)
        where = [{"name": "__consumer_offsets", "partition_indexes": [index]}]
        who = {"producer_id": producer.id, "producer_epoch": producer.epoch}
        marker = who | {"transaction_result": commit, "topics": where, "coordinator_epoch": 0}
        s.call(MARKERS, version, {"markers": [marker]}, without_partition)
        fetched(s, group, topic)
        producer.described()
        producer.end(not commit)
        fetched(s, group, topic)


def without_partition(answer: dict[str, Any]) -> Any:
    """The group's, whose name is not the same on both sides."""
    return answer["markers"][0]["topics"][0]["partitions"][0]["error_code"]


@same((4, 5))
def test_odd_ids(s: Script, version: int) -> None:
    """Of other alphabets, long ones, ones with a newline."""
    for name in ("\N{GREEK SMALL LETTER OMEGA} \N{GRINNING FACE}", "a\nb", " ", "x" * 5000):
        who = {"transactional_id": s.name(name), "producer_id": 5, "producer_epoch": 0}
        s.call(END, version, who | {"committed": True})
        ask = {"transactional_id": s.name(name), "transaction_timeout": 60000}
        s.call(INIT, version, ask)
        s.call(DESCRIBE, 0, {"transactional_ids": [s.name(name)]}, without_start)


def without_start(answer: dict[str, Any]) -> Any:
    for one in answer["transaction_states"]:
        one["transaction_start_time"] = one["transaction_start_time"] != -1
    return answer


@same((2,))
def test_odd_lists(s: Script, version: int) -> None:
    producer = Producer(s, 2)
    producer.init()

    def own(answer: dict[str, Any]) -> Any:
        found = [one for one in answer["transaction_states"]
                 if one["transactional_id"].startswith(s.prefix)]  # fmt: skip
        return answer["error_code"], sorted(answer["unknown_state_filters"]), found

    def ask(**fields: Any) -> None:
        s.call(LIST, version, {"state_filters": [], "producer_id_filters": []} | fields, own)

    ask(state_filters=["empty"])
    ask(state_filters=["Empty", "Empty"])
    ask(state_filters=["", "Dead"])
    ask(duration_filter=-1)
    ask(duration_filter=-7)
    ask(transactional_id_pattern=None)
    ask(transactional_id_pattern="[")
    ask(transactional_id_pattern="(?<id>.*)id")
    ask(transactional_id_pattern="\\p{Alnum}+id")
    for pattern in ("\\C*", "\\C*id", "\\Q\\C\\E", "\\Q\\C", "\\\\C", "[\\C]", "\\Q\\\\E\\C"):
        ask(transactional_id_pattern=pattern)
    ask(producer_id_filters=[producer.id, producer.id, -1])
