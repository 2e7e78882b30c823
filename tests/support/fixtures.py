"""Fixtures that start brokers: one of each for the whole session, others as a test asks.

`target` runs a test twice, against Apache Kafka 4.3 and against kbroker. A test that Kafka does
not pass says nothing about kbroker; but what Kafka does is settled, so its half is `long`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support import wire
from tests.support.certificates import Authority
from tests.support.kafka import KafkaProcess
from tests.support.kafka_cluster import KafkaCluster, running_cluster
from tests.support.kbroker import KbrokerProcess, kbroker_is_built
from tests.support.members.team import Team
from tests.support.processes import BrokerProcess
from tests.support.secured_kafka import SecuredKafka
from tests.support.tool_jvm import program_classes

#: Settings that both session brokers get beyond their defaults. Records of 1970, which many tests
#: write, would go with the first look at retention, half a minute after the start, or a later one.
SESSION_SETTINGS = {
    "log.retention.ms": "-1",
    "num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

#: What Apache Kafka has to be told where it is broker and controller on one node (KafkaProcess),
#: and kbroker takes too. With them DescribeConfigs is compared key by key.
OF_ONE_NODE = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

#: Both kinds of broker; Kafka's half of a test runs in `make test-kafka`.
BOTH = (pytest.param("kafka", marks=pytest.mark.kafka), "kbroker")

_counter = itertools.count(1)

B = TypeVar("B", bound=BrokerProcess)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """The session's Apache Kafka 4.3."""
    broker = KafkaProcess(tmp_path_factory.mktemp("kafka"), SESSION_SETTINGS)
    yield from _running(broker)


@pytest.fixture(scope="session")
def kbroker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    """The session's kbroker."""
    _need_kbroker()
    broker = KbrokerProcess(tmp_path_factory.mktemp("kbroker"), SESSION_SETTINGS | OF_ONE_NODE)
    yield from _running(broker)


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three nodes of Apache Kafka; who kills one starts it again (`start`). For long tests."""
    yield from running_cluster(tmp_path_factory.mktemp("kafka-cluster"))


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Apache Kafka with SASL, ACLs and delegation tokens. For long tests."""
    broker = SecuredKafka(tmp_path_factory.mktemp("secured-kafka"))
    yield from _running(broker)


def _need_kbroker() -> None:
    if not kbroker_is_built():
        pytest.skip("kbroker is not built here: run make build")


def _running(broker: B) -> Iterator[B]:
    broker.start()
    try:
        yield broker
    finally:
        was_running = broker.is_running()
        broker.kill()
    assert was_running, f"{broker.name} died during the tests:\n{broker.log_tail()}"


@pytest.fixture(params=BOTH, scope="session")
def target(request: pytest.FixtureRequest) -> BrokerProcess:
    """Each of the session's brokers in turn."""
    broker: BrokerProcess = request.getfixturevalue(request.param)
    return broker


@pytest.fixture(scope="session")
def classes() -> Path:
    """Return the folder of the compiled Java programs of the tests."""
    return program_classes()


@pytest.fixture
def topic() -> str:
    """A topic name that no other test of the session uses."""
    return f"topic-{next(_counter)}"


@pytest.fixture
def team(
    target: BrokerProcess, topic: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Team]:
    """Members of one group, to be started, that read a topic of four partitions."""
    wire.create_topic(target.port, topic, 4)
    made = Team(
        target.bootstrap, topic, tmp_path, partitions=4,
        classes=lambda: request.getfixturevalue("classes"),
    )  # fmt: skip
    yield made
    made.end()


BrokerFactory = Callable[..., BrokerProcess]


@pytest.fixture(params=BOTH)
def start_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerFactory]:
    """Starts brokers of the test's own, of each kind in turn: start_target({"key": "value"})."""
    yield from _factory(request.param, tmp_path)


@pytest.fixture
def start_kbroker(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Starts kbrokers of the test's own."""
    yield from _factory("kbroker", tmp_path)


def _factory(kind: str, folder: Path) -> Iterator[BrokerFactory]:
    if kind == "kbroker":
        _need_kbroker()
    made: list[BrokerProcess] = []

    def start(settings: dict[str, str] | None = None, **options: object) -> BrokerProcess:
        home = folder / f"{kind}-{len(made)}"
        make = KafkaProcess if kind == "kafka" else KbrokerProcess
        broker = make(home, settings, **options)  # type: ignore[arg-type]
        made.append(broker)
        broker.start()
        return broker

    try:
        yield start
    finally:
        for broker in made:
            broker.kill()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs the certificates of a module's tests."""
    return Authority(tmp_path_factory.mktemp("authority"))
