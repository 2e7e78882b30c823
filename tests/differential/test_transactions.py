"""Transactions on the wire: both protocols, fencing, markers, offsets, and what is asked wrongly.

After an EndTxn the script waits until the transaction is complete: Kafka answers what comes before
with CONCURRENT_TRANSACTIONS or not, as it happens.
"""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Script, same
from tests.differential.transactional import ADD_PARTITIONS, DESCRIBE, END, INIT, Producer
from tests.support import wire
from tests.support.waits import wait_for

ADD_OFFSETS, MARKERS, OFFSETS = 25, 27, 28
DESCRIBE_PRODUCERS, LIST = 61, 66
COMMITTED = 1


def read(s: Script, topic: str, offset: int = 0) -> None:
    """Both readers' views."""
    for isolation in (0, COMMITTED):
        s.fetch(topic, offset, 12, isolation_level=isolation)
        for timestamp in (-1, -3, s.now_ms):
            asked = [{"partition_index": 0, "timestamp": timestamp}]
            body = {"replica_id": -1, "isolation_level": isolation,
                    "topics": [{"name": topic, "partitions": asked}]}  # fmt: skip
            s.call(2, 7, body, without_marker_time if timestamp == -3 else None)


def without_marker_time(answer: dict[str, Any]) -> Any:
    """Where the latest record is a marker, it has the broker's time, and which of several it is
    depends on whether they share a millisecond."""
    found = answer["topics"][0]["partitions"][0]
    return found["error_code"], found["leader_epoch"]


@same((1, 2))
def test_commit_and_abort(s: Script, version: int) -> None:
    """Two transactions: what each reader sees before, between and after."""
    topic = s.topic()
    producer = Producer(s, version)
    producer.init()
    for commit in (True, False, True):
        if version == 1:
            producer.add(topic)
        producer.send(topic, b"a", b"b")
        producer.described()
        read(s, topic)
        producer.send(topic, b"c")
        producer.end(commit)
        producer.described()
        read(s, topic)
    s.produce(topic, s.batch(b"plain"))
    read(s, topic)
    read(s, topic, 5)


@same((1, 2))
def test_several_producers(s: Script, version: int) -> None:
    """Transactions that overlap: the last stable offset is the first that is open."""
    topic = s.topic()
    producers = [Producer(s, version, f"id{n}") for n in range(3)]
    for producer in producers:
        producer.init()
        if version == 1:
            producer.add(topic)
        producer.send(topic, b"x")
    read(s, topic)
    producers[1].end(False)
    read(s, topic)
    producers[0].end(True)
    read(s, topic)
    producers[2].end(False)
    read(s, topic)


@same((9, 11, 12, 13))
def test_produce_without_a_transaction(s: Script, version: int) -> None:
    """Partitions that nobody added, ids that nobody has, epochs of the past and the future."""
    topic = s.topic()
    producer = Producer(s, 2 if version >= 12 else 1)
    producer.init()
    producer.send(topic, b"a", version=version, transactional_id=None)
    producer.send(topic, b"a", version=version, transactional_id="")
    producer.send(topic, b"a", version=version, transactional_id=s.name("other"))
    producer.send(topic, b"a", version=version, producer_id=producer.id + 5)
    producer.send(topic, b"a", version=version, producer_epoch=producer.epoch + 1)
    producer.send(topic, b"a", version=version, base_sequence=7)
    producer.send(topic, b"a", version=version, attributes=0)
    producer.send(topic, b"a", version=version)
    producer.send(topic, b"b", version=version, attributes=0)
    s.offset(topic, -1)


@same((1, 2))
def test_sequences_and_duplicates(s: Script, version: int) -> None:
    topic = s.topic()
    producer = Producer(s, version)
    producer.init()
    if version == 1:
        producer.add(topic)
    producer.send(topic, b"a", b"b")
    producer.send(topic, b"a", b"b", base_sequence=0)
    producer.send(topic, b"d", base_sequence=5)
    producer.end(True)
    producer.send(topic, b"a", b"b", base_sequence=0)
    producer.send(topic, b"z", base_sequence=3)
    if version == 1:
        producer.add(topic)
        producer.send(topic, b"c", base_sequence=2)
    s.offset(topic, -1)


@same((1, 2))
def test_sequences_after_an_abort(s: Script, version: int) -> None:
    """An abort of version 1 keeps the epoch, and what was aborted counts as sent: its number again
    is answered with its offset, and nothing is appended."""
    topic = s.topic()
    producer = Producer(s, version)
    producer.init()
    if version == 1:
        producer.add(topic)
    producer.send(topic, b"aborted")
    producer.end(False)
    if version == 1:
        producer.add(topic)
    s.offset(topic, -1)
    again = producer.send(topic, b"another", base_sequence=0)
    assert again["base_offset"] == (0 if version == 1 else 2)  # 1 is the marker
    s.offset(topic, -1)


@same((1, 2))
def test_end_txn(s: Script, version: int) -> None:
    """Ends that are asked again, that contradict, or that have nothing to end."""
    topic = s.topic()
    producer = Producer(s, version)
    producer.end(True)
    producer.init()
    producer.end(True)
    if version == 2:
        producer.end(False, producer_epoch=producer.epoch + 1)
        producer.end(False)
        producer.described()
    for commit in (True, False):
        if version == 1:
            producer.add(topic)
        producer.send(topic, b"a")
        producer.end(commit, producer_id=producer.id + 7)
        producer.end(commit, producer_epoch=producer.epoch + 1)
        if producer.epoch:
            producer.end(commit, producer_epoch=producer.epoch - 1)
        before = producer.epoch
        producer.end(commit)
        for again in (commit, not commit):
            s.call(
                END, 5 if version == 2 else 3,
                producer.who | {"producer_epoch": before, "committed": again},
            )  # fmt: skip
        if version == 2:
            producer.end(True)
            producer.end(False)
    producer.end(False, transactional_id="")
    producer.end(False, transactional_id=s.name("nobody"))
    read(s, topic)


@same(range(6))
def test_versions_of_end_txn(s: Script, version: int) -> None:
    """PRODUCER_FENCED in each version."""
    producer = Producer(s, 1)
    producer.init()
    producer.end(True, version, producer_epoch=9)
    producer.end(False, version)
    producer.end(False, version, producer_id=producer.id + 1)


@same(range(4))
def test_add_partitions(s: Script, version: int) -> None:
    topic, other = s.topic(), s.topic("other", 3)
    producer = Producer(s, 1)
    producer.add(topic, version=version)
    producer.init()
    producer.add(topic, s.name("missing"), version=version)
    producer.described()
    producer.add(topic, version=version, producer_id=producer.id + 3)
    producer.add(topic, version=version, producer_epoch=4)
    producer.add(topic, version=version, transactional_id="")
    producer.add(topic, other, version=version)
    producer.add(other, version=version)
    producer.described()
    producer.end(False)
    producer.described()


@same((4, 5))
def test_add_partitions_of_brokers(s: Script, version: int) -> None:
    """Several transactions in one request, some of which only want to know."""
    topic = s.topic()
    first, second = Producer(s, 2, "a"), Producer(s, 2, "b")
    for producer in (first, second):
        producer.init()

    def ask(*asked: dict[str, Any]) -> None:
        topics = [{"name": topic, "partitions": [0]}]
        body = [{"verify_only": False, "topics": topics} | one for one in asked]
        s.call(ADD_PARTITIONS, version, {"transactions": body}, by_id)

    def by_id(answer: dict[str, Any]) -> Any:
        results = answer["results_by_transaction"]
        return answer["error_code"], sorted(results, key=lambda one: str(one["transactional_id"]))

    missing = [{"name": s.name("missing"), "partitions": [0]}, {"name": topic, "partitions": [0]}]
    ask(first.who | {"verify_only": True}, second.who)
    ask(first.who | {"topics": missing}, second.who | {"verify_only": True})
    ask(first.who | {"producer_epoch": 7}, second.who | {"producer_id": 5})
    ask(first.who | {"producer_epoch": 7, "verify_only": True})
    first.end(False)
    second.end(True)


@same((1, 2))
def test_fencing(s: Script, version: int) -> None:
    """Who comes second wins; what was open is aborted."""
    topic = s.topic()
    zombie, heir = Producer(s, version), Producer(s, version)
    zombie.init()
    if version == 1:
        zombie.add(topic)
    zombie.send(topic, b"of the zombie")
    heir.init()
    heir.described()
    zombie.send(topic, b"late")
    zombie.end(True)
    if version == 1:
        zombie.add(topic)
    zombie.init(producer_id=zombie.id, producer_epoch=zombie.epoch)
    if version == 1:
        heir.add(topic)
    heir.send(topic, b"of the heir")
    heir.end(True)
    read(s, topic)


@same((0, 1, 2, 3, 4, 5))
def test_init(s: Script, version: int) -> None:
    producer = Producer(s, 1)
    ask = {"transactional_id": producer.name, "transaction_timeout": 60000}
    producer.init()
    s.call(INIT, version, ask)
    s.call(INIT, version, ask | {"transaction_timeout": 900_001})
    s.call(INIT, version, ask | {"transaction_timeout": 0})
    s.call(INIT, version, ask | {"transaction_timeout": -1})
    if version >= 3:
        # KIP-360: who knows its id and epoch goes on, and may ask again.
        for epoch in (1, 1, 0, 2, 2, 7):
            s.call(INIT, version, ask | {"producer_id": producer.id, "producer_epoch": epoch})
        s.call(INIT, version, ask | {"producer_id": producer.id + 9, "producer_epoch": 0})
        s.call(INIT, version, ask | {"producer_id": producer.id, "producer_epoch": -1})


def commit_body(producer: Producer, group: str, topic: str, offset: int, **fields: Any) -> Any:
    parts = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}]
    topics = [{"name": topic, "partitions": parts}]
    return producer.who | {"group_id": group, "topics": topics} | fields


def fetched(s: Script, group: str, topic: str) -> None:
    for stable in (True, False):
        topics = [{"name": topic, "partition_indexes": [0]}]
        body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": stable}
        s.call(9, 8, body)


@same(range(6))
def test_offsets(s: Script, version: int) -> None:
    """Offsets take effect with the transaction, and are unstable until then."""
    s.until_coordinator(0)
    topic, group = s.topic(), s.name("group")
    protocol = 2 if version >= 5 else 1
    producer = Producer(s, protocol)
    producer.init()
    s.call(OFFSETS, version, commit_body(producer, group, topic, 1))
    for offset, commit in ((5, True), (9, False), (12, True)):
        if protocol == 1:
            s.call(ADD_OFFSETS, 3, producer.who | {"group_id": group})
        s.call(OFFSETS, version, commit_body(producer, group, topic, offset))
        fetched(s, group, topic)
        producer.described()
        producer.end(commit)
        wait_for("the offset", lambda: is_stable(s, group, topic), 30)
        fetched(s, group, topic)


def is_stable(s: Script, group: str, topic: str) -> bool:
    topics = [{"name": topic, "partition_indexes": [0]}]
    body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
    answer = wire.call_once(s.broker.port, 9, 8, body)
    return bool(answer["groups"][0]["topics"][0]["partitions"][0]["error_code"] == 0)


@same((3, 4, 5))
def test_offsets_asked_wrongly(s: Script, version: int) -> None:
    s.until_coordinator(0)
    topic, group = s.topic(), s.name("group")
    producer = Producer(s, 2 if version >= 5 else 1)
    producer.init()
    if version < 5:
        s.call(ADD_OFFSETS, 3, producer.who | {"group_id": group})
    for fields in (
        {"group_id": ""},
        {"transactional_id": s.name("nobody")},
        {"producer_id": producer.id + 4},
        {"producer_epoch": 6},
        {"generation_id": 5},
        {"generation_id": 5, "member_id": "somebody"},
        {"member_id": "somebody"},
        {"group_instance_id": "somebody"},
    ):
        s.call(OFFSETS, version, commit_body(producer, group, topic, 3) | fields)
    s.call(OFFSETS, version, commit_body(producer, group, s.name("missing"), 3))
    s.call(OFFSETS, version, commit_body(producer, group, topic, 3))
    producer.end(True)


@same(range(5))
def test_add_offsets(s: Script, version: int) -> None:
    s.until_coordinator(0)
    producer = Producer(s, 1)
    ask = {"group_id": s.name("group")}
    s.call(ADD_OFFSETS, version, producer.who | ask)
    producer.init()
    s.call(ADD_OFFSETS, version, producer.who | ask | {"producer_epoch": 3})
    s.call(ADD_OFFSETS, version, producer.who | ask | {"producer_id": producer.id + 1})
    s.call(ADD_OFFSETS, version, producer.who | ask | {"transactional_id": ""})
    s.call(ADD_OFFSETS, version, producer.who | ask)
    s.call(ADD_OFFSETS, version, producer.who | ask)
    producer.end(False)


@same((1, 2))
def test_markers(s: Script, version: int) -> None:
    """Markers for nobody, of old epochs, of old coordinators, and of an administrator."""
    topic = s.topic(partitions=2)
    producer = Producer(s, 1)
    producer.init()
    producer.add(topic)
    producer.send(topic, b"a")

    def mark(epoch: int, **fields: Any) -> None:
        topics = [{"name": topic, "partition_indexes": [0]}]
        one = {"producer_id": producer.id, "producer_epoch": epoch, "transaction_result": False,
               "topics": topics, "coordinator_epoch": 0}  # fmt: skip
        s.call(MARKERS, version, {"markers": [one | fields]})
        s.call(DESCRIBE_PRODUCERS, 0, producers_body(topic, 0, 1), without_times)

    mark(-1)
    mark(0, coordinator_epoch=-1)
    mark(0, topics=[{"name": s.name("missing"), "partition_indexes": [0]},
                    {"name": topic, "partition_indexes": [1, 7]}])  # fmt: skip
    mark(0, producer_id=1 << 41)
    mark(0, coordinator_epoch=3)
    mark(0, coordinator_epoch=2)
    mark(1, coordinator_epoch=3)
    mark(0, coordinator_epoch=3)
    if version >= 2:
        mark(1, coordinator_epoch=3, transaction_version=2)
        mark(3, coordinator_epoch=3, transaction_version=2)
        mark(2, coordinator_epoch=3, transaction_version=2)
    s.call(MARKERS, version, {"markers": []})
    read(s, topic)


def producers_body(topic: str, *partitions: int) -> dict[str, Any]:
    return {"topics": [{"name": topic, "partition_indexes": list(partitions)}]}


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    """The time of a marker is the broker's."""
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            partition["active_producers"].sort(key=lambda one: int(one["producer_id"]))
            for one in partition["active_producers"]:
                one["last_timestamp"] = one["last_timestamp"] > 0
    return answer


@same((0,))
def test_describe_producers(s: Script, version: int) -> None:
    topic = s.topic(partitions=2)
    producer = Producer(s, 2)
    producer.init()
    s.call(DESCRIBE_PRODUCERS, 0, producers_body(topic, 0, 1, 5), without_times)
    producer.send(topic, b"a", b"b")
    s.call(DESCRIBE_PRODUCERS, 0, producers_body(topic, 0), without_times)
    producer.end(True)
    s.call(DESCRIBE_PRODUCERS, 0, producers_body(topic, 0), without_times)
    s.call(DESCRIBE_PRODUCERS, 0, producers_body(s.name("missing"), 0))
    s.call(DESCRIBE_PRODUCERS, 0, producers_body("no/topic", 0))


@same((0, 1, 2))
def test_list_and_describe(s: Script, version: int) -> None:
    topic = s.topic()
    producers = [Producer(s, 2, short) for short in ("alpha", "beta", "gamma")]
    for producer in producers:
        producer.init()
    producers[0].send(topic, b"a")
    producers[1].send(topic, b"b")
    producers[1].end(True)

    def own(answer: dict[str, Any]) -> Any:
        states = [
            one for one in answer["transaction_states"]
            if one["transactional_id"].startswith(s.prefix)
        ]  # fmt: skip
        states.sort(key=lambda one: str(one["transactional_id"]))
        return answer["error_code"], answer["unknown_state_filters"], states

    def ask(**fields: Any) -> None:
        s.call(LIST, version, {"state_filters": [], "producer_id_filters": []} | fields, own)

    ask()
    ask(state_filters=["Ongoing"])
    ask(state_filters=["Ongoing", "CompleteCommit", "Nonsense"])
    ask(state_filters=["Nonsense"])
    ask(producer_id_filters=[producers[2].id])
    ask(producer_id_filters=[1 << 50])
    if version >= 1:
        ask(duration_filter=0)
        ask(duration_filter=1 << 40)
    if version >= 2:
        ask(transactional_id_pattern=".*ph.*")
        ask(transactional_id_pattern="ph")
        ask(transactional_id_pattern="")
        s.call(LIST, version, {"transactional_id_pattern": "(", "state_filters": [],
                               "producer_id_filters": []})  # fmt: skip
    for producer in producers:
        producer.described()
    s.call(DESCRIBE, 0, {"transactional_ids": [s.name("nobody"), ""]})
    s.call(DESCRIBE, 0, {"transactional_ids": []})
    producers[0].end(False)
