"""What a client knows of a cluster: later epochs win, whoever tells them."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from kbroker.client.address import Address
from kbroker.client.metadata import NO_ID, Leader, Metadata, Node

ONE = uuid.uuid4()


def answer(*topics: Any, brokers: int = 2) -> Any:
    return SimpleNamespace(
        brokers=[
            SimpleNamespace(node_id=n, host="h", port=n + 1, rack=None) for n in range(brokers)
        ],
        cluster_id="c",
        controller_id=0,
        topics=topics,
    )


def topic(*leaders: tuple[int, int], topic_id: uuid.UUID | None = ONE, error: int = 0) -> Any:
    return SimpleNamespace(
        name="t", topic_id=topic_id, is_internal=False, error_code=error,
        partitions=[
            SimpleNamespace(
                partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[0, 1],
                isr_nodes=[0], offline_replicas=[], error_code=0,
            )
            for index, (leader, epoch) in enumerate(leaders)
        ],
    )  # fmt: skip


def leaders(metadata: Metadata) -> list[tuple[int, int]]:
    return [(part.leader, part.leader_epoch) for part in metadata.topics["t"].partitions]


def test_an_older_epoch_does_not_bring_an_older_leader_back():
    known = Metadata().after_answer(answer(topic((0, 5), (1, 7))))
    assert leaders(known.after_answer(answer(topic((1, 4), (0, 8))))) == [(0, 5), (0, 8)]
    assert leaders(known.after_answer(answer(topic((1, 5), (1, 7))))) == [(1, 5), (1, 7)]


def test_a_topic_created_anew_begins_anew():
    known = Metadata().after_answer(answer(topic((0, 5))))
    assert leaders(known.after_answer(answer(topic((1, 0), topic_id=uuid.uuid4())))) == [(1, 0)]


def test_brokers_that_tell_no_epoch_are_believed():
    known = Metadata().after_answer(answer(topic((0, 5))))
    assert leaders(known.after_answer(answer(topic((1, -1))))) == [(1, -1)]


def test_leaders_told_by_produce_and_fetch():
    known = Metadata().after_answer(answer(topic((0, 5), (1, 7)), brokers=1))
    one = Node(1, Address("new", 9), "rack")
    moved = known.after_leaders(
        [Leader("t", 0, 1, 6), Leader("t", 1, 0, 7), Leader("t", 9, 0, 1), Leader("u", 0, 0, 1)],
        [one],
    )
    assert leaders(moved) == [(1, 6), (1, 7)]
    assert moved.nodes[1] is one and moved.nodes[0] == known.nodes[0]
    assert leaders(known) == [(0, 5), (1, 7)]
    assert leaders(moved.after_leaders([Leader("t", 0, -1, 9)], [])) == [(1, 6), (1, 7)]


def test_a_topic_with_an_error_is_not_known():
    known = Metadata().after_answer(answer(topic((0, 5), topic_id=None)))
    assert known.topics["t"].topic_id == NO_ID
    assert known.partition("t", 0) is not None and known.partition("t", 1) is None
    assert known.after_answer(answer(topic(error=3))).topics == {}
    assert known.topic_of_id(NO_ID) is known.topics["t"]
