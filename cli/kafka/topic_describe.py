"""kafka-topics --describe: a line for each topic, and one for each of its partitions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cli.kafka.options import Given
from kbroker.cli.kafka.tool import say

if TYPE_CHECKING:
    from kbroker.client.admin_configs import ConfigEntry
    from kbroker.client.admin_replicas import Reassignment
    from kbroker.client.cluster import Cluster

__all__ = ["describe"]

_PAGE_PARTITIONS = 2000


class _Partition(NamedTuple):
    """leader -1: none. elr, last_elr: eligible leaders (KIP-966); None: brokers do not tell."""

    number: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] | None
    last_elr: Sequence[int] | None


class _Topic(NamedTuple):
    name: str
    topic_id: uuid.UUID
    partitions: list[_Partition]


def describe(cluster: Cluster, given: Given, names: Callable[[], list[str]]) -> None:
    """Shows the one topic of --topic-id, else those of these names."""
    from kbroker.client.admin_configs import TOPIC, describe_resources
    from kbroker.client.admin_replicas import list_reassignments
    from kbroker.client.partitions import TopicPartition

    limit = given.integer("partition-size-limit-per-response")
    topics = _by_id(cluster, given)
    if topics is None:
        topics = sorted(_by_name(cluster, names(), limit or _PAGE_PARTITIONS))
    configs = describe_resources(cluster, [(TOPIC, topic.name) for topic in topics])
    cluster.refresh([])
    live = set(cluster.nodes)
    keys = [TopicPartition(t.name, part.number) for t in topics for part in t.partitions]
    moves = list_reassignments(cluster, keys) if keys else {}
    for topic in topics:
        entries = configs[TOPIC, topic.name]
        under_way = {key.partition: move for key, move in moves.items() if key.topic == topic.name}
        _show(given, topic, entries, under_way, live)


def _show(
    given: Given,
    topic: _Topic,
    entries: list[ConfigEntry],
    moves: dict[int, Reassignment],
    live: set[int],
) -> None:
    own = [f"{entry.name}={entry.value}" for entry in entries if not entry.is_default]
    overridden = given.has("topics-with-overrides")
    fewest = next((int(e.value or 1) for e in entries if e.name == "min.insync.replicas"), 1)
    tests: dict[str, Callable[[_Partition], bool]] = {
        "under-replicated-partitions": lambda p: _factor(p, moves.get(p.number)) > len(p.isr),
        "unavailable-partitions": lambda p: p.leader not in live,
        "under-min-isr-partitions": lambda p: p.leader < 0 or len(p.isr) < fewest,
        "at-min-isr-partitions": lambda p: len(p.isr) == fewest,
    }
    wanted = [test for name, test in tests.items() if given.has(name)]
    if not wanted and (own or not overridden):
        first = topic.partitions[0]
        topic_id = f"\tTopicId: {_id_text(topic.topic_id)}" if topic.topic_id.int else ""
        factor = _factor(first, moves.get(first.number))
        say(
            f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {factor}\tConfigs: {','.join(own)}"
        )
    for part in () if overridden else topic.partitions:
        if not wanted or any(test(part) for test in wanted):
            say(_line(topic.name, part, moves.get(part.number)))


def _line(topic: str, part: _Partition, move: Reassignment | None) -> str:
    def ids(nodes: Sequence[int] | None) -> str:
        return "N/A" if nodes is None else ",".join(map(str, nodes))

    moving = ""
    if move is not None:
        moving = f"\tAdding Replicas: {ids(move.adding)}\tRemoving Replicas: {ids(move.removing)}"
    return (
        f"\tTopic: {topic}\tPartition: {part.number}"
        f"\tLeader: {part.leader if part.leader >= 0 else 'none'}\tReplicas: {ids(part.replicas)}"
        f"\tIsr: {ids(part.isr)}{moving}\tElr: {ids(part.elr)}\tLastKnownElr: {ids(part.last_elr)}"
    )


def _factor(part: _Partition, move: Reassignment | None) -> int:
    """How many replicas the partition has when its move, if any, is over."""
    if move is not None and {*move.adding, *move.removing} & set(part.replicas):
        return len(move.replicas) - len(move.adding)
    return len(part.replicas)


def _id_text(topic_id: uuid.UUID) -> str:
    from kbroker.uuids import uuid_text

    return uuid_text(topic_id.bytes)


def _by_id(cluster: Cluster, given: Given) -> list[_Topic] | None:
    """The topic of --topic-id; None where there is no such option, or it is zero."""
    told = given.value("topic-id")
    if told is None:
        return None
    topic_id = _read_id(told)
    if not topic_id.int:
        return None
    topic = next((t for t in cluster.topics() if t.topic_id == topic_id), None)
    if topic is None:
        if given.has("if-exists"):
            return []
        raise ValueError(f"TopicId '{_id_text(topic_id)}' does not exist as expected")
    parts = [
        _Partition(part.index, part.leader, part.replicas, part.isr, None, None)
        for part in topic.partitions
    ]
    return [_Topic(topic.name, topic.topic_id, parts)]


def _read_id(told: str) -> uuid.UUID:
    import base64
    import binascii

    if len(told) > 24:
        raise ValueError(
            f"Input string with prefix `{told[:24]}` is too long to be decoded as a base64 UUID"
        )
    try:
        raw = base64.b64decode(told + "=" * (-len(told) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"Input string `{told}` is no base64") from None
    if len(raw) != 16:
        raise ValueError(
            f"Input string `{told}` decoded as {len(raw)} bytes, which is not equal to the expected"
            " 16 bytes of a base64-encoded UUID"
        )
    return uuid.UUID(bytes=raw)


def _by_name(cluster: Cluster, names: list[str], limit: int) -> Iterator[_Topic]:
    """Topics with eligible leaders where brokers tell them (Kafka 3.8)."""
    from kbroker.protocol import ApiKey

    if not names:
        return
    known = cluster.any_connection().broker_versions
    if ApiKey.DESCRIBE_TOPIC_PARTITIONS in known:
        yield from cluster.retry(lambda: _paged(cluster, names, limit))
        return
    for name in names:
        topic = cluster.topic(name)
        parts = [
            _Partition(part.index, part.leader, part.replicas, part.isr, None, None)
            for part in topic.partitions
        ]
        yield _Topic(name, topic.topic_id, parts)


def _paged(cluster: Cluster, names: list[str], limit: int) -> list[_Topic]:
    from kbroker.client.errors import check
    from kbroker.protocol import ApiKey

    found: dict[str, _Topic] = {}
    cursor = None
    while True:
        left = [name for name in sorted(names) if cursor is None or name >= cursor["topic_name"]]
        values = {
            "topics": [{"name": name} for name in left],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        body = cluster.any_connection().call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, values)
        for topic in body.topics:
            check(topic.error_code, f"topic {topic.name!r}")
            known = found.setdefault(topic.name, _Topic(topic.name, topic.topic_id, []))
            for part in topic.partitions:
                known.partitions.append(_Partition(
                    int(part.partition_index), int(part.leader_id), part.replica_nodes,
                    part.isr_nodes, part.eligible_leader_replicas or (),
                    part.last_known_elr or (),
                ))  # fmt: skip
        if body.next_cursor is None:
            break
        cursor = {
            "topic_name": body.next_cursor.topic_name,
            "partition_index": int(body.next_cursor.partition_index),
        }
    for topic in found.values():
        topic.partitions.sort()
    return list(found.values())
