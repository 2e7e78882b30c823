"""Kafka's own tools against a broker, as a user of Kafka would type them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.kafka import dump_log, run_tool, tool_output
from tests.support.processes import BrokerProcess


def test_topics(target: BrokerProcess, topic: str) -> None:
    """TopicCommand: create, describe, alter, list, delete."""
    server = ("--bootstrap-server", target.bootstrap)
    named = (*server, "--topic", topic)
    created = tool_output("topics", *named, "--create", "--partitions", "2",
                          "--config", "retention.ms=86400000")  # fmt: skip
    assert f"Created topic {topic}." in created
    described = tool_output("topics", *named, "--describe")
    assert "PartitionCount: 2" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=86400000" in described
    assert re.search(r"Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)
    tool_output("topics", *named, "--alter", "--partitions", "3")
    wire.wait_for_topic(target.port, topic, 3)
    assert topic in tool_output("topics", *server, "--list").split()
    assert run_tool("topics", *named, "--create").returncode != 0
    tool_output("topics", *named, "--delete")


def test_configs(target: BrokerProcess, topic: str) -> None:
    """ConfigCommand on a topic and on the broker."""
    wire.create_topic(target.port, topic)
    server = ("--bootstrap-server", target.bootstrap)
    named = (*server, "--entity-type", "topics", "--entity-name", topic)
    tool_output("configs", *named, "--alter", "--add-config", "retention.ms=1234567")
    described = tool_output("configs", *named, "--describe")
    assert "retention.ms=1234567" in described
    everything = tool_output("configs", *named, "--describe", "--all")
    assert "segment.bytes=1073741824" in everything
    tool_output("configs", *named, "--alter", "--delete-config", "retention.ms")
    broker = tool_output("configs", *server, "--entity-type", "brokers", "--entity-name", "1",
                         "--describe", "--all")  # fmt: skip
    assert "num.io.threads=8" in broker


def test_offsets(target: BrokerProcess, topic: str) -> None:
    """ProducerPerformance fills a topic; GetOffsetShell tells its ends."""
    wire.create_topic(target.port, topic, 2)
    performance = tool_output(
        "producer-perf", "--topic", topic, "--num-records", "20000", "--record-size", "100",
        "--throughput", "-1", "--bootstrap-server", target.bootstrap,
        "--command-property", "acks=all",
    )  # fmt: skip
    assert "20000 records sent" in performance
    for time, total in (("-1", 20000), ("-2", 0), ("latest", 20000), ("earliest", 0)):
        output = tool_output("get-offsets", "--bootstrap-server", target.bootstrap,
                             "--topic", topic, "--time", time)  # fmt: skip
        offsets = [int(line.rsplit(":", 1)[1]) for line in output.split()]
        assert sum(offsets) == total
    newest = tool_output("get-offsets", "--bootstrap-server", target.bootstrap,
                         "--topic", topic, "--time", "max-timestamp")  # fmt: skip
    assert len(newest.split()) == 2


def test_console_producer_and_consumer(target: BrokerProcess, topic: str) -> None:
    """The console consumer reads one partition from its beginning, without a group."""
    wire.create_topic(target.port, topic)
    lines = [f"line {number}" for number in range(50)]
    server = ("--bootstrap-server", target.bootstrap, "--topic", topic)
    tool_output("console-producer", *server, stdin="\n".join(lines) + "\n")
    read = tool_output("console-consumer", *server, "--partition", "0", "--offset", "earliest",
                       "--max-messages", "50", "--timeout-ms", "20000")  # fmt: skip
    assert read.splitlines() == lines


def test_delete_records(target: BrokerProcess, topic: str, tmp_path: Path) -> None:
    wire.create_topic(target.port, topic)
    tool_output("console-producer", "--bootstrap-server", target.bootstrap, "--topic", topic,
                stdin="a\nb\nc\n")  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 2}]}))
    output = tool_output("delete-records", "--bootstrap-server", target.bootstrap,
                         "--offset-json-file", str(plan))  # fmt: skip
    assert "low_watermark: 2" in output


def test_log_dirs_and_versions(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic)
    output = tool_output("log-dirs", "--bootstrap-server", target.bootstrap, "--describe",
                         "--topic-list", topic)  # fmt: skip
    assert f'"partition":"{topic}-0"' in output
    assert str(target.data_dir) in output
    versions = tool_output("broker-api-versions", "--bootstrap-server", target.bootstrap)
    assert "Produce(0): 0 to 13" in versions
    assert "Fetch(1): 4 to 18" in versions


@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.long), "lz4"])
def test_dump_log(target: BrokerProcess, topic: str, codec: str) -> None:
    """DumpLogSegments with its index checks passes over what the broker wrote.

    The indexes of the active segment are longer than what is in them, and only the others pass.
    """
    wire.create_topic(target.port, topic, 1, {"segment.bytes": "1048576"})
    tool_output(
        "producer-perf", "--topic", topic, "--num-records", "30000", "--record-size", "100",
        "--throughput", "-1", "--bootstrap-server", target.bootstrap,
        "--command-property", "acks=all", f"compression.type={codec}",
    )  # fmt: skip
    folder = target.partition_dir(topic, 0)
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 1
    dump_log(logs)
    for suffix in ("*.index", "*.timeindex"):
        dump_log(sorted(folder.glob(suffix))[:-1], "--index-sanity-check")
    assert "producerId" in dump_log(sorted(folder.glob("*.snapshot")))


@pytest.mark.long
def test_features(target: BrokerProcess) -> None:
    """FeatureCommand: describe, downgrade, upgrade, what cannot be."""
    server = ("--bootstrap-server", target.bootstrap)
    told = tool_output("features", *server, "describe")
    level = re.search(r"Feature: streams.version\s.*FinalizedVersionLevel: (\d)", told)
    assert level and level[1] == "1", told
    assert re.search(r"Feature: kraft.version\s.*FinalizedVersionLevel: 1", told)
    down = tool_output("features", *server, "downgrade", "--feature", "streams.version=0")
    assert "streams.version was downgraded to 0." in down
    up = tool_output("features", *server, "upgrade", "--feature", "streams.version=1")
    assert "streams.version was upgraded to 1." in up
    bad = run_tool("features", *server, "downgrade", "--feature", "metadata.version=25")
    assert bad.returncode == 1 and "Could not downgrade metadata.version to 25" in bad.stdout


def test_metadata_quorum(target: BrokerProcess) -> None:
    """MetadataQuorumCommand: who leads, and how far each replica is."""
    server = ("--bootstrap-server", target.bootstrap)
    status = tool_output("metadata-quorum", *server, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\n", status)
    assert re.search(r"MaxFollowerLag:\s+0\n", status)
    voters = r'CurrentVoters:\s+\[\{"id": 1, "directoryId": "[\w-]{22}"'
    assert re.search(voters, status)
    # kbroker opens no controller listener, and names none.
    assert ("CONTROLLER://" in status) == (target.name == "kafka")
    table = tool_output("metadata-quorum", *server, "describe", "--replication")
    assert re.search(r"^1\s+[\w-]{22}\s+\d+\s+0\s+\d+\s+\d+\s+Leader", table, re.MULTILINE)
