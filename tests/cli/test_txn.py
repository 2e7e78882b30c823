"""`kbroker txn`: transactions listed, described, looked for and aborted."""

from __future__ import annotations

import json
from typing import Any

from kbroker.client import Producer
from tests.cli.conftest import Run
from tests.support import wire
from tests.support.hanging import hang, last_stable, unverified
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for

INT64_MAX = 2**63 - 1


def rows(run: Run, *words: str) -> list[dict[str, Any]]:
    told = run("txn", *words, "-o", "json").out
    found: Any = json.loads(told)
    return list(found)


def told_id(run: Run, name: str) -> int:
    (told,) = rows(run, "describe", name)
    return int(told["producer_id"])


def test_a_transaction_is_seen_and_aborted(kbroker: KbrokerProcess, run: Run, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    with Producer(bootstrap_servers=kbroker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions(60)
        producer.begin()
        producer.send(topic, b"x", partition=0).result(60)
        assert [one["state"] for one in rows(run, "list", topic)] == ["Ongoing"]
        assert len(rows(run, "list", topic, "--state", "ONGOING")) == 1
        assert rows(run, "list", topic, "--state", "Empty") == []
        (listed,) = rows(run, "list", topic, "--producer", str(told_id(run, topic)))
        assert listed["transactional_id"] == topic
        assert rows(run, "list", topic, "--producer", str(INT64_MAX)) == []
        assert len(rows(run, "list", topic, "--longer-than", "0")) == 1
        assert rows(run, "list", topic, "--longer-than", str(INT64_MAX)) == []
        (told,) = rows(run, "describe", topic)
        assert told["open_ms"] >= 0
        assert (told["transactional_id"], told["state"]) == (topic, "Ongoing")
        assert told["partitions"] == [f"{topic}-0"]
        assert f"{topic}-0" in run("txn", "describe", topic).out.decode()
        assert rows(run, "find-hanging", topic, "--quiet-for", "0") == []
        run("txn", "abort", topic, "0", "--start-offset", "0")
        producer.abort(60)

    def ended() -> bool:
        (told,) = rows(run, "describe", topic)
        return (told["state"], told["open_ms"]) == ("CompleteAbort", None)

    wait_for("the answered abort is complete", ended, 60)
    assert rows(run, "list", topic, "--longer-than", "0") == []
    assert f"{topic}-0" not in run("txn", "describe", topic).out.decode()


def test_what_is_not_there(kbroker: KbrokerProcess, run: Run, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    said = run("txn", "abort", topic, "0", "--start-offset", "7", status=1)
    assert "no such transaction" in said.err


def test_one_that_hangs_is_found_and_aborted(
    kbroker: KbrokerProcess, run: Run, topic: str
) -> None:
    """By its first offset, and by its producer; readers of committed data go on then."""
    wire.create_topic(kbroker.port, topic, 2)
    with unverified(kbroker):
        first, second = (hang(kbroker, f"{topic}-{n}", topic, n) for n in range(2))
    found = rows(run, "find-hanging", topic)
    assert [(one["partition"], one["producer_id"]) for one in found] == [
        (0, first.producer_id), (1, second.producer_id)
    ]  # fmt: skip
    (other,) = rows(run, "find-hanging", topic, "-p", "1")
    assert other["start_offset"] == second.start_offset
    assert topic in run("txn", "find-hanging").out.decode()
    assert last_stable(kbroker, topic) == (0, 1)
    words = ("txn", "abort", topic, "0", "--start-offset", str(first.start_offset))
    assert "would be aborted" in run(*words, "--dry-run").out.decode()
    said = run(*words)
    assert f"aborted in {topic}-0" in said.out.decode()
    run("txn", "abort", topic, "1", "--producer", str(second.producer_id))
    assert rows(run, "find-hanging", topic) == []
    assert last_stable(kbroker, topic) == (2, 2)
    assert "no such transaction" in run("txn", "abort", topic, "0", "--producer",
                                        str(first.producer_id), status=1).err  # fmt: skip
