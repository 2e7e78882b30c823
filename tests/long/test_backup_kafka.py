"""Backups and Apache Kafka 4.3: it starts on what was restored; its own directory is backed up."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.care.backup import create
from kbroker.care.restore import restore, verify
from kbroker.cli import root
from kbroker.client.cluster import Cluster
from tests.care.traffic import BROKER, TOPICS, Traffic, judge, make_topics
from tests.support.fixtures import BrokerFactory
from tests.support.kafka import KafkaProcess, dump_log
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

#: Kafka has no such short roll of all topics; the rest is the same.
KAFKA = {
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "50",
}


def led(broker: BrokerProcess) -> bool:
    with Cluster(broker.bootstrap) as cluster:
        topics = {topic.name: topic for topic in cluster.topics()}
    wanted = {*TOPICS, "__consumer_offsets"}
    return wanted <= topics.keys() and all(
        part.leader == 1 for name in wanted for part in topics[name].partitions
    )


@pytest.mark.parametrize("directories", [1, 2])
@pytest.mark.parametrize("live", [True, False], ids=["live", "crashed"])
def test_kafka_starts_on_what_was_restored(
    start_kbroker: BrokerFactory, tmp_path: Path, live: bool, directories: int
) -> None:
    more = tuple(tmp_path / f"more-{number}" for number in range(1, directories))
    broker = start_kbroker(BROKER | {"kbroker.journal.bytes.max": "16777216"}, more_dirs=more)
    make_topics(broker.bootstrap)
    backup = tmp_path / "backup"
    back = [tmp_path / f"back-{number}" for number in range(directories)]
    with Traffic(broker.bootstrap) as traffic:
        traffic.wait_for_more(900, commits=50)
        told = traffic.told()
        if live:
            assert create(broker.data_dir, backup).manifest.live
        traffic.wait_for_more(100)
    broker.kill()
    if not live:
        assert not create(broker.data_dir, backup).manifest.live
    assert list(verify(backup)) == []
    files = [path for path in backup.glob("data*/*-[0-9]*/*")
             if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
             and not path.parent.name.startswith("__cluster")]  # fmt: skip
    if live:  # what a crash left may end in anything
        dump_log([path for path in files if path.suffix == ".log" or path.stat().st_size])
    restore(backup, back)
    log_dirs = {"log.dirs": ",".join(map(str, back))}
    kafka = KafkaProcess(tmp_path / "kafka", KAFKA | log_dirs, data_dir=back[0])
    kafka.start()
    try:
        wait_for("every topic is led", lambda: led(kafka), 120)
        judge(kafka.bootstrap, told)
    finally:
        kafka.kill()


def test_a_directory_of_kafka_is_read_and_backed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = KafkaProcess(tmp_path / "kafka", KAFKA)
    kafka.start()
    try:
        make_topics(kafka.bootstrap)
        with Traffic(kafka.bootstrap) as traffic:
            traffic.wait_for_more(600, commits=30)
        told = traffic.told()
        kafka.stop()
        status = root.run(["log", "verify", "--deep", "-q", "-D", str(kafka.data_dir)])
        assert status == 0, capsys.readouterr().out
        create(kafka.data_dir, tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "back")
        kbroker = KbrokerProcess(tmp_path / "kbroker", data_dir=tmp_path / "back")
        kbroker.start()
        try:
            wait_for("every topic is led", lambda: led(kbroker), 60)
            judge(kbroker.bootstrap, told)
        finally:
            kbroker.kill()
    finally:
        kafka.kill()
