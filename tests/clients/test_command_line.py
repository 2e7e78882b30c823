"""The command line against a broker, Apache Kafka first: what it says is what the broker holds."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.cli import root
from tests.support.processes import BrokerProcess

Run = Callable[..., str]


@pytest.fixture
def run(
    target: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> Callable[..., str]:
    """Runs a command on the broker; gives its standard output, and fails unless it ends with 0."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", target.bootstrap)

    def run(*words: str, stdin: bytes = b"", status: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        ended = root.run(words)
        said = capfdbinary.readouterr()
        assert ended == status, said.err.decode()
        return (said.out if status == 0 else said.err).decode()

    return run


def test_a_topic_from_its_creation_to_its_end(run: Run, topic: str) -> None:
    assert run("topic", "create", topic, "-p", "3", "-c", "retention.ms=60000000") == (
        f"topic {topic} created with 3 partitions\n"
    )
    assert "exists already" in run("topic", "create", topic, "--if-not-exists")
    assert "TOPIC_ALREADY_EXISTS" in run("topic", "create", topic, status=1)
    listed = json.loads(run("topic", "list", "-o", "json"))
    assert {"name": topic, "partitions": 3} in [
        {key: row[key] for key in ("name", "partitions")} for row in listed
    ]
    assert topic in run("topic", "list")
    assert f"topic {topic} could have 5 partitions\n" == run(
        "topic", "add-partitions", topic, "-n", "2", "--dry-run"
    )
    assert f"topic {topic} has 4 partitions\n" == run("topic", "add-partitions", topic, "-t", "4")
    assert "INVALID_PARTITIONS" in run("topic", "add-partitions", topic, "-t", "2", status=1)
    run("topic", "alter-config", topic, "-s", "max.message.bytes=5000", "-d", "retention.ms")
    assert "INVALID_CONFIG" in run("topic", "alter-config", topic, "-s", "a.b=c", status=1)
    (told,) = json.loads(run("topic", "describe", topic, "-o", "json"))
    settings = {entry["name"]: entry["value"] for entry in told["configs"]}
    assert settings["max.message.bytes"] == "5000"
    assert "retention.ms" not in settings
    assert [part["partition"] for part in told["partitions"]] == [0, 1, 2, 3]
    assert run("topic", "delete", topic, "--dry-run") == f"topic {topic} would be deleted\n"
    assert run("topic", "delete", topic) == f"topic {topic} deleted\n"
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("topic", "delete", topic, status=1)
    assert "does not exist" in run("topic", "delete", topic, "--if-exists")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_goes_in_comes_out(run: Run, topic: str, codec: str) -> None:
    run("topic", "create", topic, "-p", "1")
    lines = b"".join(b"k%d:value %d\n" % (n % 7, n) for n in range(500))
    run("produce", topic, "-K", ":", "-z", codec, "-H", "a=b", "-H", "c", stdin=lines)
    assert run("consume", topic, "-e", "-K", ":").encode() == lines
    shown = run("consume", topic, "-e", "-o", "-2", "-f", "%o %k %h %S\\n", "-Z")
    assert shown == "498 k1 a=b,c=NULL 9\n499 k2 a=b,c=NULL 9\n"
    one = json.loads(run("consume", topic, "-J", "-o", "17", "-c", "1"))
    assert (one["offset"], one["key"], one["payload"]) == (17, "k3", "value 17")


def test_keys_choose_the_partition_as_javas_partitioner_does(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "4")
    words = ["21", "foobar", "abc", "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8"]
    run("produce", topic, "-K", ":", stdin="".join(f"{word}:x\n" for word in words).encode())
    shown = run("consume", topic, "-e", "-f", "%k %p\\n").splitlines()
    assert sorted(shown) == sorted(f"{words[n]} {partition}" for n, partition in enumerate(
        (-973932308 & 3, -790332482 & 3, 479470107 & 3, -58897971 & 3)
    ))  # fmt: skip


def test_partitions_and_nulls_and_acks(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    run("produce", topic, "-p", "1", "-Z", stdin=b"\n")
    run("produce", topic, "-p", "1", "--acks", "1", stdin=b"one\n")
    run("produce", topic, "-p", "1", "--acks", "0", stdin=b"none")
    shown = run("consume", topic, "-c", "3", "-f", "%p %s\\n", "-Z")
    assert shown == "1 NULL\n1 one\n1 none\n"
    assert "has no partition 2" in run("produce", topic, "-p", "2", stdin=b"x", status=1)
    assert "has no partition 7" in run("consume", topic, "-p", "7", "-e", status=1)


def test_offsets_and_trim(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, stdin=b"a\nb\nc\nd\n")
    (row,) = json.loads(run("topic", "offsets", topic, "-o", "json"))
    assert (row["log_start_offset"], row["log_end_offset"], row["records"]) == (0, 4, 4)
    (row,) = json.loads(run("topic", "offsets", topic, "--at", "0", "-o", "json"))
    assert row["offset"] == 0
    (row,) = json.loads(run("topic", "offsets", topic, "--at", "99999999999999", "-o", "json"))
    assert row["offset"] is None
    assert run("topic", "trim", topic, "-o", "3", "--dry-run") == (
        f"{topic}-0 would start at 3, 3 records fewer\n"
    )
    assert run("topic", "trim", topic, "-o", "3") == f"{topic}-0 starts at 3, 3 records fewer\n"
    assert run("consume", topic, "-e") == "d\n"
    assert "offset 0 is not in" in run("consume", topic, "-o", "0", "-e", status=1)
    told = run("topic", "trim", topic, "-o", "9", status=1)
    assert told == f"kbroker: offset 9 is beyond the end of {topic}-0, which goes on at 4\n"
    run("topic", "trim", topic, "-o", "end")
    assert run("consume", topic, "-e") == ""


def test_a_batch_too_large_is_told(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "1", "-c", "max.message.bytes=1000")
    told = run("produce", topic, stdin=b"x" * 5000, status=1)
    assert "MESSAGE_TOO_LARGE" in told
    assert told.count("\n") == 1


def test_a_topic_is_created_by_producing_unless_told_not_to(run: Run, topic: str) -> None:
    told = run("produce", topic, "--no-create", stdin=b"x", status=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in told
    run("produce", topic, stdin=b"x")
    assert run("consume", topic, "-e") == "x\n"


def test_compacted_topics_want_keys(run: Run, topic: str) -> None:
    run("topic", "create", topic, "--compact")
    assert "INVALID_RECORD" in run("produce", topic, stdin=b"x", status=1)
    run("produce", topic, "-k", "key", stdin=b"x")


def test_an_unknown_topic_is_told(run: Run) -> None:
    for words in (["consume", "nope"], ["topic", "describe", "nope"], ["topic", "offsets", "nope"]):
        assert "UNKNOWN_TOPIC_OR_PARTITION" in run(*words, status=1)
    assert "INVALID_TOPIC_EXCEPTION" in run("topic", "create", "a b", status=1)
