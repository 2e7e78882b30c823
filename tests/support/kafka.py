"""Apache Kafka 4.3 from Maven Central: its jars, a one-node broker, and its tools.

The jars (kafka_2.13, kafka-tools and what they need, about 55 MB) are fetched once through Maven
into ~/.cache/kbroker/kafka-4.3.0. KBROKER_KAFKA_LIBS names a directory that holds them already.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.support.needs import missing, need_command
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports

KAFKA_VERSION = "4.3.0"
LOG4J_VERSION = "2.25.4"
NODE_ID = 1

#: Main classes of Kafka's tools by short name.
TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
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

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kbroker.tests</groupId>
  <artifactId>kafka-libs</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)

#: What a broker and its tools consist of, with what they need in turn.
_NEEDED = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)
Artifacts = tuple[tuple[str, str, str], ...]
"""Group, name, version."""

_LOG4J = """\
<Configuration status="WARN">
  <Appenders>
    <Console name="console" target="SYSTEM_ERR"><PatternLayout pattern="%p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""

# A test broker lives for seconds: no time for the optimising compiler, no need of a big heap.
_JVM_SMALL = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]


@cache
def kafka_libs() -> Path:
    """The directory of Kafka's jars; fetches them where they are not there yet."""
    told = os.environ.get("KBROKER_KAFKA_LIBS")
    return Path(told) if told else fetched_libs(f"kafka-{KAFKA_VERSION}", _NEEDED)


def fetched_libs(name: str, artifacts: Artifacts) -> Path:
    """The directory of this name in the cache; Maven fills it when it is not there."""
    cached = Path.home() / ".cache" / "kbroker" / name
    cached.parent.mkdir(parents=True, exist_ok=True)
    with (cached.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not cached.exists():
            _fetch_libs(cached, artifacts)
    return cached


def _fetch_libs(target: Path, artifacts: Artifacts) -> None:
    maven = need_command("mvn", "maven")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pom = Path(folder, "pom.xml")
        wanted = "".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
        pom.write_text(_POM.format(dependencies=wanted))
        fetched = Path(folder, "libs")
        subprocess.run(
            [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
             f"-DoutputDirectory={fetched}"],
            check=True, timeout=600,
        )  # fmt: skip
        fetched.rename(target)


@cache
def java() -> str:
    """The Java program, 17 or later."""
    program = need_command("java", "openjdk-17-jre-headless")
    told = subprocess.run([program, "-version"], check=False, capture_output=True, text=True)
    major = int(told.stderr.split('"')[1].split(".")[0])
    if major < 17:
        missing(f"Java 17 (this is {major})", "openjdk-17-jre-headless")
    return program


@cache
def log4j_config() -> Path:
    """A log4j2 configuration that prints warnings to stderr."""
    path = Path(tempfile.gettempdir()) / f"kbroker-tests-log4j2-{os.getuid()}.xml"
    if not path.exists() or path.read_text() != _LOG4J:
        path.write_text(_LOG4J)
    return path


def java_command(
    main_class: str, *arguments: str, heap_mib: int = 512, classes: Path | str | None = None
) -> list[str]:
    """The command line that runs a class of Kafka's jars, or one of `classes` on top of them."""
    path = f"{classes}:{kafka_libs()}/*" if classes else f"{kafka_libs()}/*"
    return [
        java(), *_JVM_SMALL, f"-Xmx{heap_mib}m", f"-Dlog4j2.configurationFile={log4j_config()}",
        "-cp", path, main_class, *arguments,
    ]  # fmt: skip


def run_tool(
    tool: str, *arguments: str, stdin: str | None = None, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's tools to its end; the caller looks at its exit status."""
    return subprocess.run(
        java_command(TOOLS[tool], *arguments), check=False, input=stdin, capture_output=True,
        text=True, timeout=timeout_s,
    )  # fmt: skip


def tool_output(tool: str, *arguments: str, stdin: str | None = None) -> str:
    """What a tool prints; an exit status other than zero fails with all that it printed."""
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
