"""kafka-configs beside Kafka's: quotas on both brokers, credentials and loggers on Apache Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.kafka_scripts.conftest import Both
from tests.support.kafka import KafkaProcess
from tests.support.kafka_scripts import JavaScripts

pytestmark = pytest.mark.long
_numbers = itertools.count(700)


@pytest.fixture
def on_kafka(
    kafka: KafkaProcess, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Both]:
    """Both scripts on Apache Kafka."""
    yield Both(kafka, JavaScripts(), monkeypatch, next(_numbers))


@pytest.fixture(params=["kafka", "kbroker"])
def on_both(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Both:
    """Both scripts on each broker in turn."""
    broker = request.getfixturevalue(request.param)
    return Both(broker, JavaScripts(), monkeypatch, next(_numbers))


def test_quotas(on_both: Both) -> None:
    both = on_both
    rates = "producer_byte_rate=1024,consumer_byte_rate=1.5e9"
    both(f"configs --alter --user u@ --add-config {rates}")
    both("configs --alter --entity-type users --entity-name u@ --entity-type clients"
         " --entity-default --add-config request_percentage=0.5")  # fmt: skip
    both("configs --alter --client c@ --add-config controller_mutation_rate=12345678")
    both("configs --alter --ip 127.0.0.9 --add-config connection_creation_rate=100000")
    both("configs --describe --user u@")
    both("configs --describe --user u@ --client-defaults")
    both("configs --describe --entity-type users --entity-name u@ --entity-type clients")
    both("configs --describe --client c@")
    both("configs --describe --ip 127.0.0.9")
    both("configs --describe --entity-type ips")
    both("configs --alter --user u@ --delete-config producer_byte_rate")
    both("configs --alter --user u@ --delete-config producer_byte_rate", status=1)
    both("configs --alter --user u@ --add-config nope=1", status=1)
    both("configs --alter --client c@ --add-config producer_byte_rate=x", status=1)
    both("configs --alter --client c@ --add-config SCRAM-SHA-256=[password=x]", status=1)
    both("configs --alter --ip 127.0.0.9 --add-config producer_byte_rate=1", status=1)
    both("configs --describe --user u@")
    both("configs --describe --user-defaults")
    end = "--alter --ip 127.0.0.9 --delete-config connection_creation_rate"
    server = ["--bootstrap-server", both.broker.bootstrap]
    assert both.ways[1]("kafka-configs", [*server, *end.split()]).status == 0


def test_credentials(on_kafka: Both) -> None:
    both = on_kafka
    both("configs --alter --user s@ --add-config SCRAM-SHA-256=[iterations=8192,password=a,b]")
    both("configs --alter --user s@ --add-config SCRAM-SHA-512=[password=c]")
    both("configs --alter --user s@ --add-config"
         " SCRAM-SHA-256=[password=c],SCRAM-SHA-512=[password=c]", status=1)  # fmt: skip
    both("configs --describe --user s@")
    both("configs --alter --user s@ --delete-config SCRAM-SHA-512")
    both("configs --describe --entity-type users --entity-name s@")
    both("configs --describe --user nobody@")
    for wrong in ("SCRAM-SHA-256=[iterations=7,password=a]", "SCRAM-SHA-256=x",
                  "SCRAM-SHA-256=[password=a],producer_byte_rate=1"):  # fmt: skip
        both(f"configs --alter --user s@ --add-config {wrong}", status=1)
    both("configs --alter --user-defaults --add-config SCRAM-SHA-256=[password=a]", status=1)


def test_metrics_and_loggers(on_kafka: Both) -> None:
    both = on_kafka
    both("configs --alter --client-metrics m@ --add-config interval.ms=9000")
    both("configs --describe --client-metrics m@")
    both("configs --describe --client-metrics none@")
    both("configs --describe --broker-logger 1")
    both("configs --alter --broker-logger 1 --add-config root=WARN")
    both("configs --alter --broker-logger 1 --add-config no.such=DEBUG", status=1)


def test_through_controllers(on_kafka: Both, kafka: KafkaProcess) -> None:
    both = on_kafka
    both("topics --create --topic t@")
    both.server = ["--bootstrap-controller", f"127.0.0.1:{kafka.controller_port}"]
    both("configs --alter --topic t@ --add-config retention.ms=99999")
    both("configs --alter --broker 1 --add-config log.cleaner.threads=1")
    both("configs --describe --broker 1")
    both("configs --alter --broker-defaults --add-config message.max.bytes=1048599")
    both("configs --describe --broker-defaults")
    both("configs --alter --user v@ --add-config producer_byte_rate=10", status=1)
    both("configs --alter --broker-defaults --delete-config message.max.bytes", status=None)
    both("configs --alter --broker 1 --delete-config log.cleaner.threads", status=None)
