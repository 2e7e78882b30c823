"""Kafka Streams from Maven Central, beside Kafka's other jars.

Fetched once into ~/.cache/kbroker/kafka-streams-4.3.0; KBROKER_KAFKA_STREAMS_LIBS names a directory
that holds them already. Most of it is RocksDB.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from tests.support.java import KAFKA_VERSION, fetched_libs, java_command, kafka_libs
from tests.support.needs import need_command

NEEDED = (("org.apache.kafka", "kafka-streams", KAFKA_VERSION),)


@cache
def streams_libs() -> Path:
    """The directory of the jars; fetches them where they are not there yet."""
    told = os.environ.get("KBROKER_KAFKA_STREAMS_LIBS")
    return Path(told) if told else fetched_libs(f"kafka-streams-{KAFKA_VERSION}", NEEDED)


def compiled(source: Path, folder: Path) -> str:
    """The class path of a program that was compiled into `folder`."""
    compiler = need_command("javac", "openjdk-17-jdk-headless")
    libs = f"{streams_libs()}/*:{kafka_libs()}/*"
    command = [compiler, "-d", str(folder), "-cp", libs, str(source)]
    subprocess.run(command, check=True, timeout=300)
    return f"{folder}:{streams_libs()}/*"


def streams_command(class_path: str, main_class: str, *arguments: str) -> list[str]:
    """The command line that runs it."""
    return java_command(main_class, *arguments, heap_mib=256, classes=class_path)
