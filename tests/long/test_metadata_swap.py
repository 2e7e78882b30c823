"""One metadata directory, two brokers in turn: Apache Kafka 4.3 and kbroker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.clock import SystemClock
from kbroker.metadata.batches import build_batch
from kbroker.metadata.builders import (
    Listener,
    allocate_producer_ids,
    alter_configs,
    create_topic,
    delete_topic,
)
from kbroker.metadata.image import Image
from kbroker.metadata.loader import FOLDER, load_image
from kbroker.metadata.registration import begin, end
from kbroker.metadata.snapshot import list_snapshots
from kbroker.metadata.store import MetadataStore
from kbroker.storage.checkpoints import take_clean_shutdown, write_clean_shutdown, write_topic_id
from kbroker.uuids import random_uuid
from tests.support.kafka import KafkaProcess, dump_log, run_tool, tool_output
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

KAFKA_MAY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class StaticKafka(KafkaProcess):
    """A Kafka whose voters are in its configuration (kraft.version 0), as before 3.9."""

    def properties(self) -> dict[str, str]:
        found = super().properties()
        del found["controller.quorum.bootstrap.servers"]
        return found | {"controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}"}

    def _format(self, config: Path) -> None:
        done = run_tool("storage", "format", "-t", "c3RhdGljLXZvdGVycy0wMQ", "-c", str(config))
        assert done.returncode == 0, done.stdout + done.stderr


def took_over(directory: Path) -> MetadataStore:
    """What a broker does with the store when it starts."""
    clean = take_clean_shutdown(directory) is not None
    store = MetadataStore(directory, SystemClock(), node_id=1)
    store.open()
    begin(store, [Listener("PLAINTEXT", "127.0.0.1", 9092)], clean=clean)
    return store


def stopped(store: MetadataStore) -> None:
    """What a broker does with the store when it stops in good order."""
    epoch = end(store)
    store.close()
    write_clean_shutdown(store.directory, epoch)


def made(store: MetadataStore, name: str, partitions: int, **settings: str) -> None:
    """A topic with its folders, each with one batch of three records."""
    topic_id = random_uuid()
    store.append(create_topic(name, topic_id, partitions, store.replica, settings))
    for index in range(partitions):
        folder = store.directory / f"{name}-{index}"
        folder.mkdir()
        write_topic_id(folder, topic_id)
        values = [(None, f"{name} {index} {number}".encode()) for number in range(3)]
        data = build_batch(0, 0, SystemClock().wall_ms(), values)
        (folder / f"{0:020}.log").write_bytes(data)


def consumed(kafka: KafkaProcess, topic: str, partition: int) -> list[str]:
    return tool_output(
        "console-consumer", "--bootstrap-server", kafka.bootstrap, "--topic", topic,
        "--partition", str(partition), "--offset", "earliest", "--max-messages", "3",
        "--timeout-ms", "30000",
    ).splitlines()[:3]  # fmt: skip


def described(kafka: KafkaProcess) -> str:
    return tool_output("topics", "--bootstrap-server", kafka.bootstrap, "--describe")


def configured(kafka: KafkaProcess, *arguments: str) -> str:
    return tool_output("configs", "--bootstrap-server", kafka.bootstrap, *arguments)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "crashed"])
@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
def test_kafka_serves_what_kbroker_wrote(tmp_path: Path, *, clean: bool, snapshot: bool) -> None:
    kafka = KafkaProcess(tmp_path)
    store = took_over(kafka.data_dir)
    made(store, "one", 1)
    made(store, "three", 3, **{"cleanup.policy": "compact"})
    made(store, "gone", 1)
    store.append(delete_topic(store.image.topics["gone"]))
    records, _ = allocate_producer_ids(store.image, 1)
    store.append(records)
    if snapshot:
        store.snapshot()
    store.append(alter_configs(("topic", "one"), {"retention.ms": "77777777"}))
    if clean:
        stopped(store)
    else:
        store.close()
    kafka.start()
    try:
        text = wait_for("every partition is led", lambda: _led(kafka), 30)
        assert "one\tTopicId" in text and "gone" not in text
        assert "cleanup.policy=compact" in text and "retention.ms=77777777" in text
        assert text.count("Partition: ") == 4
        for topic, partition in (("one", 0), ("three", 2)):
            expected = [f"{topic} {partition} {number}" for number in range(3)]
            assert consumed(kafka, topic, partition) == expected
        complaints = [line for line in kafka.log_text().splitlines() if line.startswith("ERROR")]
        assert all("offset index file" in line for line in complaints)  # `made` writes none
    finally:
        kafka.stop()
    image = load_image(kafka.data_dir)
    assert set(image.topics) - {"__consumer_offsets"} == {"one", "three"}
    assert image.next_producer_id == 1000


def _led(kafka: KafkaProcess) -> str:
    text = described(kafka)
    return text if text.count("Leader: 1") == text.count("Partition: ") else ""


def test_kbroker_keeps_what_kafka_wrote(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path, KAFKA_MAY)
    kafka.start()
    try:
        server = ("--bootstrap-server", kafka.bootstrap)
        for name in ("t1", "t2", "t3"):
            tool_output("topics", *server, "--create", "--topic", name, "--partitions", "2",
                        "--config", "segment.bytes=2000000")  # fmt: skip
        tool_output("topics", *server, "--delete", "--topic", "t2")
        tool_output("topics", *server, "--alter", "--topic", "t3", "--partitions", "5")
        configured(kafka, "--alter", "--entity-type", "users", "--entity-name", "alice",
                   "--add-config", "SCRAM-SHA-256=[password=secret]")  # fmt: skip
        configured(kafka, "--alter", "--entity-type", "users", "--entity-name", "alice",
                   "--add-config", "producer_byte_rate=1024")  # fmt: skip
        acls = ("acls", *server)
        tool_output(*acls, "--add", "--allow-principal", "User:bob", "--operation", "Read",
                   "--topic", "t1")  # fmt: skip
        users = configured(kafka, "--describe", "--entity-type", "users")
        allowed = tool_output(*acls, "--list")
    finally:
        kafka.stop()

    image = _check(took := took_over(kafka.data_dir))
    assert image.features["metadata.version"] == 30
    assert len(image.scram) == len(image.quotas) == len(image.acls) == 1
    assert len(image.controllers) == 1
    took.snapshot()  # from here on nothing is left but what the image kept
    before = list(map(repr, image.records()))
    took.close()
    assert list(map(repr, load_image(kafka.data_dir).records())) == before

    kafka.start()
    try:
        assert wait_for("every partition is led", lambda: _led(kafka), 30).count("Partition:") == 7
        acls = ("acls", "--bootstrap-server", kafka.bootstrap)
        assert configured(kafka, "--describe", "--entity-type", "users") == users
        assert tool_output(*acls, "--list") == allowed and "User:bob" in allowed
    finally:
        kafka.kill()
    stopped(store := took_over(kafka.data_dir))
    _check(store)


def _check(store: MetadataStore) -> Image:
    image = store.image
    assert set(image.topics) == {"t1", "t3"}
    assert image.configs(("topic", "t3")) == {"segment.bytes": "2000000"}
    assert list(image.topics["t3"].partitions) == [0, 1, 2, 3, 4]
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            assert (partition.leader, partition.isr) == (1, [1])
            assert partition.directories == [store.directory_id]
            assert partition.leader_recovery_state == 0
    return image


def test_snapshots_of_kafka_are_loaded(tmp_path: Path) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    kafka = KafkaProcess(tmp_path, settings)
    kafka.start()
    try:
        server = ("--bootstrap-server", kafka.bootstrap)
        for number in range(3):
            tool_output("topics", *server, "--create", "--topic", f"t{number}",
                        "--partitions", "20")  # fmt: skip
        folder = kafka.data_dir / FOLDER
        wait_for("Kafka takes a snapshot", lambda: len(list_snapshots(folder)) > 2, 30)
    finally:
        kafka.stop()
    assert list_snapshots(folder)[-1].offset > 50
    store = took_over(kafka.data_dir)
    assert [len(topic) for topic in store.image.topics.values()] == [20, 20, 20]
    stopped(store)


def test_static_voters_stay_static(tmp_path: Path) -> None:
    kafka = StaticKafka(tmp_path)
    kafka.start()
    tool_output("topics", "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "t")
    kafka.stop()
    store = took_over(kafka.data_dir)
    assert set(store.image.topics) == {"t"}
    made(store, "u", 2)
    store.snapshot()
    stopped(store)
    kafka.start()
    try:
        assert "u\tTopicId" in wait_for("every partition is led", lambda: _led(kafka), 30)
        assert consumed(kafka, "u", 1)[0] == "u 1 0"
    finally:
        kafka.stop()


def test_the_directory_changes_hands_again_and_again(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path)
    epochs = []
    for turn in range(3):
        store = took_over(kafka.data_dir)
        made(store, f"kbroker{turn}", 1)
        epochs.append(store.epoch)
        if turn == 1:
            store.snapshot()
        stopped(store)
        dump_log(sorted((kafka.data_dir / FOLDER).glob("*.log")), "--cluster-metadata-decoder")
        kafka.start()
        try:
            tool_output("topics", "--bootstrap-server", kafka.bootstrap, "--create",
                        "--topic", f"kafka{turn}")  # fmt: skip
            assert consumed(kafka, f"kbroker{turn}", 0)[0] == f"kbroker{turn} 0 0"
        finally:
            kafka.kill() if turn == 0 else kafka.stop()
    assert epochs == sorted(set(epochs))
    image = load_image(kafka.data_dir)
    expected = {f"{who}{turn}" for who in ("kafka", "kbroker") for turn in range(3)}
    assert set(image.topics) - {"__consumer_offsets"} == expected
    snapshots = sorted((kafka.data_dir / FOLDER).glob("*.checkpoint"))
    assert snapshots
    dump_log(snapshots, "--cluster-metadata-decoder")
