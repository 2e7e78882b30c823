"""kcat: list, produce, consume, query."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.clients.data import CODECS
from tests.support import wire
from tests.support.needs import need_command
from tests.support.processes import BrokerProcess


def kcat(broker: BrokerProcess, *arguments: str, stdin: str | None = None) -> str:
    program = need_command("kcat", "kcat")
    done = subprocess.run(
        [program, "-b", broker.bootstrap, *arguments], check=False, input=stdin,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(target: BrokerProcess, topic: str, codec: str) -> None:
    wire.create_topic(target.port, topic)
    lines = [f"k{number}:value {number}" for number in range(500)]
    kcat(target, "-P", "-t", topic, "-K", ":", "-z", codec, stdin="\n".join(lines) + "\n")
    output = kcat(target, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-K", ":")
    assert output.splitlines() == lines
    tail = kcat(target, "-C", "-t", topic, "-p", "0", "-o", "-3", "-e", "-q", "-f", "%o %s\n")
    assert tail.splitlines() == [f"{number} value {number}" for number in (497, 498, 499)]


def test_list(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 3)
    listed = json.loads(kcat(target, "-L", "-J", "-t", topic))
    assert listed["brokers"] == [{"id": 1, "name": target.bootstrap}]
    assert [part["leader"] for part in listed["topics"][0]["partitions"]] == [1, 1, 1]


def test_query(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic)
    kcat(target, "-P", "-t", topic, stdin="a\nb\nc\n")
    assert "offset 3" in kcat(target, "-Q", "-t", f"{topic}:0:-1")
    assert "offset 0" in kcat(target, "-Q", "-t", f"{topic}:0:-2")
    assert "offset 0" in kcat(target, "-Q", "-t", f"{topic}:0:1")
