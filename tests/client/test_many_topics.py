"""An assignment of many topics: metadata and offsets are asked for together."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kbroker.client import Admin, Consumer, NewTopic, Producer
from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.errors import UnknownTopicOrPartitionError
from kbroker.client.group.commits import _named
from kbroker.client.partitions import TopicPartition
from kbroker.protocol import ApiKey
from tests.client.test_consumer import taken
from tests.support.processes import BrokerProcess

TOPICS = 40


@pytest.fixture
def names(target: BrokerProcess, topic: str) -> list[str]:
    names = [f"{topic}-{index}" for index in range(TOPICS)]
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=2) for name in names]).checked()
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for name in names:
            producer.send(name, b"x", partition=1)
    return names


@pytest.mark.parametrize("grouped", [False, True], ids=["assigned", "subscribed"])
def test_assignment_of_many_topics_takes_few_requests(
    target: BrokerProcess, topic: str, names: list[str], grouped: bool
) -> None:
    given: dict[str, Any] = {"group_id": topic} if grouped else {}
    with Consumer(
        bootstrap_servers=target.bootstrap, auto_offset_reset="earliest", **given
    ) as consumer:
        if grouped:
            consumer.subscribe(names)
        else:
            consumer.assign([(name, index) for name in names for index in range(2)])
        assert {record.topic for record in taken(consumer, TOPICS)} == {*names}
        assert consumer.metrics()["metadata-request-total"] < 10


def test_offsets_of_many_topics_take_two_requests(
    target: BrokerProcess, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ApiKey] = []
    with Consumer(bootstrap_servers=target.bootstrap) as consumer:
        connect = consumer._cluster.connection

        def counted(node: int) -> Any:
            asked.append(ApiKey.LIST_OFFSETS)
            return connect(node)

        monkeypatch.setattr(consumer._cluster, "connection", counted)
        found = consumer.end_offsets([(name, 1) for name in names])
        assert found == {TopicPartition(name, 1): 1 for name in names}
        assert len(asked) == 1
        assert consumer.metrics()["metadata-request-total"] < 4


def test_topics_of_tells_each_topic_or_its_error(target: BrokerProcess, names: list[str]) -> None:
    with Cluster(target.bootstrap) as cluster:
        missing = f"{names[0]}-missing"
        found = cluster.topics_of([*names, missing])
        assert [found[name].name for name in names] == names  # type: ignore[union-attr]
        assert isinstance(found[missing], UnknownTopicOrPartitionError)
        before = cluster.metrics()["metadata-request-total"]
        again = cluster.topics_of(names)
        assert all(isinstance(info, TopicInfo) for info in again.values())
        assert cluster.metrics()["metadata-request-total"] == before


def test_names_of_many_topics_take_linear_time() -> None:
    """Looking through all ids for each topic took seconds."""

    class Topic:
        def __init__(self, topic_id: int) -> None:
            self.topic_id = topic_id

    ids: Any = {f"t{index}": index for index in range(20_000)}
    began_s = time.process_time()
    assert [name for name, _ in _named([Topic(index) for index in range(20_000)], ids)] == [*ids]
    assert time.process_time() - began_s < 2
