"""Clients of others under quotas: what they are told, how fast they are, what they push."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer

from tests.support import wire
from tests.support.kafka import run_tool, tool_output
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

StartBroker = Callable[..., BrokerProcess]
PAGE_CACHE = {"kbroker.durability": "page-cache"}
RATE = 500_000


@pytest.fixture
def limited(start_kbroker: StartBroker, topic: str) -> BrokerProcess:
    """With quotas that Kafka's ConfigCommand has set on a client id."""
    broker = start_kbroker(PAGE_CACHE)
    wire.create_topic(broker.port, topic)
    server = ("--bootstrap-server", broker.bootstrap)
    client = ("--entity-type", "clients", "--entity-name", "slow")
    rates = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
    tool_output("configs", *server, *client, "--alter", "--add-config", rates)
    described = tool_output("configs", *server, *client, "--describe")
    assert f"producer_byte_rate={RATE}.0" in described
    return broker


def test_the_java_client_counts_it(limited: BrokerProcess, topic: str) -> None:
    """Its metrics tell of the throttling, and it keeps to the quota."""
    done = run_tool(
        "producer-perf", "--topic", topic, "--num-records", "10000", "--record-size", "1000",
        "--throughput", "-1", "--print-metrics", "--producer-props",
        f"bootstrap.servers={limited.bootstrap}", "client.id=slow", "batch.size=16384",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)", done.stdout)
    assert told is not None and float(told[1]) > 0, done.stdout
    rate = re.findall(r"\(([\d.]+) MB/sec\)", done.stdout)[-1]
    # 10 MB, of which ten seconds' worth of 0.5 MB goes ahead
    assert float(rate) * 1024 * 1024 < 2.5 * RATE


def test_librdkafka_is_told(limited: BrokerProcess, topic: str) -> None:
    throttled: list[float] = []
    producer = Producer({
        "bootstrap.servers": limited.bootstrap, "client.id": "slow", "batch.size": 50_000,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    })  # fmt: skip
    began = time.monotonic()
    sent = 0
    while time.monotonic() < began + 20:
        try:
            producer.produce(topic, bytes(1000))
            sent += 1
        except BufferError:
            producer.poll(0.1)
        if sent % 100 == 0:
            producer.poll(0)
        if sent >= 15_000:
            break
    producer.flush(120)
    took = time.monotonic() - began
    assert max(throttled, default=0) > 0
    assert sent * 1000 / (took + 11) <= RATE * 1.05, "ten seconds and one window go ahead"


def test_a_consumer_goes_on_slowly(limited: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": limited.bootstrap, "client.id": "fast"})
    for number in range(10_000):
        producer.produce(topic, bytes(1000))
        if number % 1000 == 0:
            producer.flush()
    producer.flush()
    throttled: list[float] = []
    consumer = Consumer({
        "bootstrap.servers": limited.bootstrap, "client.id": "slow", "group.id": topic,
        "auto.offset.reset": "earliest", "fetch.message.max.bytes": 100_000,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    })  # fmt: skip
    consumer.subscribe([topic])
    began = time.monotonic()
    seen = 0
    while seen < 10_000 and time.monotonic() < began + 120:
        seen += len(consumer.consume(1000, 0.5))
    took = time.monotonic() - began
    consumer.close()
    assert seen == 10_000 and max(throttled, default=0) > 0
    assert took >= 10_000_000 / RATE - 12


def test_metrics_that_the_java_client_pushes(start_kbroker: StartBroker, topic: str) -> None:
    """KIP-714 end to end: a subscription by Kafka's tool, pushes, the page."""
    broker = start_kbroker(
        PAGE_CACHE | {"kbroker.client.telemetry": "true",
                      "kbroker.http.listeners": "HTTP://127.0.0.1:0"}
    )  # fmt: skip
    wire.create_topic(broker.port, topic)
    settings = ("interval.ms=1000,metrics=[org.apache.kafka.producer.,*],"
                "match=[client_software_name=apache-kafka-java]")  # fmt: skip
    tool_output("configs", "--bootstrap-server", broker.bootstrap, "--alter", "--entity-type",
                "client-metrics", "--entity-name", "all", "--add-config", settings)  # fmt: skip
    done = run_tool(
        "producer-perf", "--topic", topic, "--num-records", "3000", "--record-size", "100",
        "--throughput", "400", "--producer-props", f"bootstrap.servers={broker.bootstrap}",
        "client.id=told",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (run_file,) = broker.data_dir.glob(".kbroker-run*")
    (http,) = json.loads(run_file.read_text())["http"]

    def page() -> str:
        with urllib.request.urlopen(f"{http.lower()}/client-metrics", timeout=30) as answer:
            return str(answer.read().decode())

    wait_for("metrics of the client", lambda: 'client_id="told"' in page(), 60)
    assert "org.apache.kafka.producer" in page()
