"""Kafka's scripts and ours of the same names, with the same arguments on the same broker.

What they print is compared with the names that differ between two runs (topics, ids, members) put
aside. Kafka's run one after the other in one JVM (tests/clients/java/Scripts.java).
"""

from __future__ import annotations

import base64
import io
import re
import select
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.kafka import java_command

_ROOMS = {
    "kafka-topics": "topics",
    "kafka-configs": "configs",
    "kafka-consumer-groups": "groups",
    "kafka-console-producer": "console_producer",
    "kafka-console-consumer": "console_consumer",
}

_APART = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: ID"),
    (re.compile(r"[\w.-]+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "MEMBER"),
    (re.compile(r"(CreateTime|LogAppendTime):\d+"), r"\1:MS"),
    (re.compile(r"(Configs: |\()('.*'|[^\s)]+)"), lambda found: found[1] + _sorted(found[2])),
)  # fmt: skip


def _sorted(commas: str) -> str:
    return ",".join(sorted(word.strip() for word in commas.split(",")))


_ANSWER_S = 60.0


class Ended(NamedTuple):
    """How a script ended."""

    status: int
    out: str
    err: str

    def seen(self, mark: str) -> tuple[int, list[str]]:
        """What is compared: status and lines of output, in no order, without what may differ.
        mark: what this run's names end in."""
        text = self.out.replace(mark, "-@")
        for pattern, instead in _APART:
            text = pattern.sub(instead, text)
        return self.status, sorted(text.split("\n"))


class JavaScripts:
    """One JVM with Kafka's scripts."""

    def __init__(self, classes: Path) -> None:
        self._process = subprocess.Popen(
            java_command("Scripts", classes=classes),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def run(self, tool: str, words: Sequence[str], stdin: str = "") -> Ended:
        """Runs a script to its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        parts = [base64.b64encode(word.encode()).decode() for word in (tool, stdin, *words)]
        self._process.stdin.write(" ".join(parts) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER_S)
        assert ready, f"{tool} {words} does not end"
        status, out, err = self._process.stdout.readline().removesuffix("\n").split(" ")
        return Ended(int(status), *(base64.b64decode(part).decode() for part in (out, err)))

    def close(self) -> None:
        """Ends the JVM."""
        self._process.kill()
        self._process.communicate()


def run_ours(
    monkeypatch: pytest.MonkeyPatch, tool: str, words: Sequence[str], stdin: str = ""
) -> Ended:
    """Runs our script of a name in this process."""
    from kbroker.cli.kafka.tool import start

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        status = start(import_module(f"kbroker.cli.kafka.{_ROOMS[tool]}").TOOL, words)
    told = []
    for stream in (out, err):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        told.append(stream.buffer.getvalue().decode())
    return Ended(status, *told)
