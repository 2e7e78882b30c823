"""`kbroker top`: what it shows of a broker at work, and through a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kbroker import runfile
from kbroker.cli.scrape import Scrape
from kbroker.cli.top_figures import figures
from kbroker.client import Consumer, Producer
from tests.cli.conftest import Run, Start
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for


def test_a_broker_at_work(
    start_kbroker: Callable[..., KbrokerProcess], start: Start, run: Run, topic: str
) -> None:
    """Rates by API and topic between two looks, sizes, lag of groups. A broker of its own: those
    that lag most come first."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 2)
    words = ("top", "-D", str(broker.data_dir), "-i", "0.2", "-o", "json")
    looking = start(*words)
    settings = {"bootstrap.servers": broker.bootstrap}
    with Producer(settings) as producer, Consumer(settings, group_id=f"of-{topic}") as consumer:
        producer.send(topic, b"first", partition=0).result()
        consumer.assign([(topic, 0), (topic, 1)])
        consumer.seek_to_beginning()
        wait_for("the first record", lambda: consumer.poll(1.0), 60)
        consumer.commit()

        def busy() -> dict[str, object] | None:
            """A look that has seen records come."""
            for number in range(20):
                producer.send(topic, b"%d" % number, partition=1).result()
            told = json.loads(looking.stdout.readline())  # type: ignore[union-attr]
            rows = {row["topic"]: row for row in told["topics"]}
            apis = {row["request"] for row in told["requests_by_api"]}
            return told if rows[topic]["rate"] > 0 and "Produce" in apis else None

        told = wait_for("a busy look", busy, 60)
    assert told["connections"] >= 1 and told["disk"]["used"] > 0  # type: ignore[index, operator]
    out = run(*words[:-2], "-n", "1").out.decode()
    assert f"of-{topic}" in out and topic in out and "group commits/s" in out


def test_it_ends_when_nobody_answers(tmp_path: Path, run: Run) -> None:
    assert "no broker runs on" in run("top", "-D", str(tmp_path), status=1).err
    runfile.prepare(tmp_path, listeners=[], durability="fsync", version="1",
                    http=["http://127.0.0.1:1"])()  # fmt: skip
    assert "127.0.0.1:1 does not answer" in run("top", "-D", str(tmp_path), status=1).err


def test_counters_that_began_anew() -> None:
    """A broker that was started again between two looks has no rates below zero."""

    def look(at_s: float, uptime_s: float, count: float) -> Scrape:
        names = ("kbroker_requests_total", "kbroker_journal_groups_total")
        samples = {name: {(): count} for name in names}
        ends = {(("topic", "t"), ("partition", "0")): 700.0}
        return Scrape(at_s, {
            **samples, "kbroker_uptime_seconds": {(): uptime_s},
            "kafka_topic_partitions": {(("topic", "t"),): 1.0},
            "kafka_topic_partition_current_offset": ends,
        })  # fmt: skip

    told = figures(look(0, 1000, 5000), look(2, 1, 10))
    assert (told["requests"], told["journal"]["groups"], told["topics"][0]["rate"]) == (5, 5, 0)
