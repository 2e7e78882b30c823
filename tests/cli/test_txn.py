"""`kbroker txn`: transactions listed, described, looked for and aborted."""

from __future__ import annotations

import json
from typing import Any

from kbroker.client import Producer
from tests.cli.conftest import Run
from tests.support import wire
from tests.support.kbroker import KbrokerProcess


def rows(run: Run, *words: str) -> list[dict[str, Any]]:
    told = run("txn", *words, "-o", "json").out
    found: Any = json.loads(told)
    return list(found)


def test_a_transaction_is_seen_and_aborted(kbroker: KbrokerProcess, run: Run, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    with Producer(bootstrap_servers=kbroker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions(60)
        producer.begin()
        producer.send(topic, b"x", partition=0).result(60)
        assert [one["state"] for one in rows(run, "list", topic)] == ["Ongoing"]
        assert rows(run, "list", topic, "--state", "Empty") == []
        (told,) = rows(run, "describe", topic)
        assert (told["transactional_id"], told["state"]) == (topic, "Ongoing")
        assert f"{topic}-0" in run("txn", "describe", topic).out.decode()
        assert rows(run, "find-hanging", topic, "--quiet-for", "0") == []
        run("txn", "abort", topic, "0", "--start-offset", "0")
        producer.abort(60)
    assert f"{topic}-0" not in run("txn", "describe", topic).out.decode()


def test_what_is_not_there(kbroker: KbrokerProcess, run: Run, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    said = run("txn", "abort", topic, "0", "--start-offset", "7", status=1)
    assert "no such transaction" in said.err
