"""Apache Kafka 4.3 from Maven Central: a one-node broker, and its tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.java import java_command
from tests.support.processes import BrokerProcess
from tests.support.tool_jvm import tool_jvm
from tests.support.waits import free_ports

NODE_ID = 1

#: Main classes of Kafka's tools by short name.
TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def run_tool(
    tool: str, *arguments: str, stdin: str | None = None, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end; the caller looks at its exit status."""
    done = tool_jvm().run(TOOLS[tool], arguments, stdin or "", timeout_s)
    return subprocess.CompletedProcess([tool, *arguments], *done)


def tool_output(tool: str, *arguments: str, stdin: str | None = None) -> str:
    """Return what a tool prints; fail with all of it where its exit status is not zero."""
    done = run_tool(tool, *arguments, stdin=stdin)
    assert done.returncode == 0, f"{tool} {arguments}: {done.stdout}\n{done.stderr}"
    return done.stdout


def dump_log(files: list[Path], *options: str) -> str:
    """DumpLogSegments over .log, .index, .timeindex, .txnindex or .snapshot files.

    It exits with zero whatever it finds, so its complaints are looked for in its output.
    """
    assert files, "nothing to dump"
    output = tool_output("dump-log", "--files", ",".join(map(str, files)), *options)
    complaints = ("Mismatches in", "Found timestamp mismatch", "Found out of order timestamp",
                  "Found indexed offset", "is corrupt", "isvalid: false", "isValid: false",
                  "Exception")  # fmt: skip
    for line in output.splitlines():
        assert not any(complaint in line for complaint in complaints), line
    return output


class KafkaProcess(BrokerProcess):
    """Apache Kafka 4.3 in combined mode (broker and controller) on ports that the kernel picks."""

    name = "kafka"
    start_timeout_s = 180.0  # a few seconds of a processor, of which a busy machine gives little

    def __init__(
        self, home: Path, settings: dict[str, str] | None = None, data_dir: Path | None = None,
        heap_mib: int = 512,
    ) -> None:  # fmt: skip
        super().__init__(home, settings, data_dir)
        self.heap_mib = heap_mib
        self.port, self.controller_port = free_ports(2)

    def properties(self) -> dict[str, str]:
        """The contents of server.properties."""
        base = {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
            f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        return base | self.settings

    def command(self) -> list[str]:
        config = self.home / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties().items()))
        if not (self.data_dir / "meta.properties").exists():
            self._format(config)
        return java_command("kafka.Kafka", str(config), heap_mib=self.heap_mib)

    def _format(self, config: Path) -> None:
        cluster_id = "a2Jyb2tlci10ZXN0cy0wMQ"
        done = run_tool("storage", "format", "--standalone", "-t", cluster_id, "-c", str(config))
        assert done.returncode == 0, done.stdout + done.stderr

    def remove(self) -> None:
        """Kills the broker and removes its data."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
