"""`kbroker quota`: set, listed, deleted, and what is not there."""

from __future__ import annotations

import json

from tests.cli.conftest import Run


def test_set_listed_deleted(run: Run, topic: str) -> None:
    user = ("--user", topic)
    said = run("quota", "set", *user, "produce=10000000", "request=12.25").out.decode()
    assert said == (
        f"producer_byte_rate of user {topic} is 10000000\n"
        f"request_percentage of user {topic} is 12.25\n"
    )
    rows = json.loads(run("quota", "list", *user, "-o", "json").out)
    assert [row["value"] for row in rows] == [10_000_000, 12.25]
    said = run("quota", "delete", *user, "fetch", "request", status=1)
    assert said.out.decode() == f"request_percentage of user {topic} is deleted\n"
    assert said.err == f"kbroker: there is no consumer_byte_rate of user {topic}\n"
    assert run("quota", "delete", *user).out.decode().startswith("producer_byte_rate of ")
    for words, what in (((), "quota"), (("produce",), "producer_byte_rate")):
        there = f"there is no {what} of user {topic}\n"
        assert run("quota", "delete", *user, *words, status=1) == (b"", f"kbroker: {there}")
        assert run("quota", "delete", *user, *words, "--if-exists") == (there.encode(), "")
