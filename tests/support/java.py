"""Java for the tests: the jars of Apache Kafka 4.3 from Maven Central, and command lines.

The jars (kafka_2.13, kafka-tools and what they need, about 55 MB) are fetched once through Maven
into ~/.cache/kbroker/kafka-4.3.0. KBROKER_KAFKA_LIBS names a directory that holds them already.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.support.needs import missing, need_command

KAFKA_VERSION = "4.3.0"
LOG4J_VERSION = "2.25.4"

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


def log4j_config() -> Path:
    """Return a log4j2 configuration that prints warnings to stderr."""
    return Path(__file__).with_name("log4j2.xml")


def java_command(
    main_class: str, *arguments: str, heap_mib: int = 512, classes: Path | str | None = None
) -> list[str]:
    """The command line that runs a class of Kafka's jars, or one of `classes` on top of them."""
    path = f"{classes}:{kafka_libs()}/*" if classes else f"{kafka_libs()}/*"
    return [
        java(), *_JVM_SMALL, f"-Xmx{heap_mib}m", f"-Dlog4j2.configurationFile={log4j_config()}",
        "-cp", path, main_class, *arguments,
    ]  # fmt: skip
