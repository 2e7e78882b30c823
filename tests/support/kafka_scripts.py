"""Kafka's scripts and ours of the same names, with the same arguments on the same broker.

What they print is compared with the names that differ between two runs (topics, ids, members) put
aside. Kafka's run one after the other in one JVM (tests/support/tool_jvm.py).
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

import pytest

from tests.support.kafka import TOOLS
from tests.support.tool_jvm import tool_jvm

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
    """Kafka's scripts by their names."""

    def run(self, tool: str, words: Sequence[str], stdin: str = "") -> Ended:
        """Run a script to its end."""
        done = tool_jvm().run(TOOLS[tool.removeprefix("kafka-")], words, stdin, _ANSWER_S)
        return Ended(*done)


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
