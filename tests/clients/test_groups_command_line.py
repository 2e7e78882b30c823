"""`kbroker group` against a broker, Apache Kafka first: what it says is what the broker holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from kbroker.cli import root
from kbroker.client import Producer
from kbroker.client.cluster import Cluster
from kbroker.client.group_offsets import commit_offsets
from tests.support import wire
from tests.support.kafka import tool_output
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

Run = Callable[..., str]


@pytest.fixture
def run(target: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> Run:
    """Runs `kbroker group ...`; gives what it says, on stderr where it should fail."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", target.bootstrap)

    def run(*words: str, status: int = 0) -> str:
        capfd.readouterr()
        ended = root.run(["group", *words])
        said = capfd.readouterr()
        assert ended == status, said
        return str(said.out if status == 0 else said.err)

    return run


@pytest.fixture
def filled(target: BrokerProcess, topic: str) -> str:
    """A topic of two partitions with ten records each, at timestamps 1000, 2000, ... 10000 ms."""
    wire.create_topic(target.port, topic, 2, {"retention.ms": "-1"})
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for number in range(20):
            at = 1000 * (number // 2 + 1)
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=at)
    return topic


def commit(target: BrokerProcess, group: str, topic: str, *offsets: int) -> None:
    with Cluster(target.bootstrap) as cluster:
        commit_offsets(cluster, group, {(topic, at): offset for at, offset in enumerate(offsets)})


def offsets_of(run: Run, group: str) -> dict[int, int]:
    """Partition to committed offset, as `describe` tells."""
    (told,) = json.loads(run("describe", group, "-o", "json"))
    return {part["partition"]: part["committed"] for part in told["partitions"]}


@pytest.fixture
def member(target: BrokerProcess, filled: str) -> Iterator[Consumer]:
    """A consumer that has read all of `filled`, alone in group `live-TOPIC`, and committed."""
    consumer = Consumer({
        "bootstrap.servers": target.bootstrap, "group.id": f"live-{filled}",
        "client.id": "reader", "group.instance.id": "seat", "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "partition.assignment.strategy": "range",
    })  # fmt: skip
    consumer.subscribe([filled])
    read: list[Any] = []
    wait_for("20 records", lambda: read.extend(consumer.consume(20, 0.2)) or len(read) == 20, 30)
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


def test_a_group_with_a_member(run: Run, filled: str, member: Consumer) -> None:
    group = f"live-{filled}"
    listed = {row["group"]: row for row in json.loads(run("list", "-o", "json"))}
    assert listed[group] == {
        "group": group, "type": "classic", "state": "Stable", "protocol_type": "consumer",
        "coordinator": 1,
    }  # fmt: skip
    assert group in run("list", "--state", "stable", "--type", "classic")
    assert group not in run("list", "--state", "empty")
    assert group not in run("list", "--type", "consumer")
    (told,) = json.loads(run("describe", group, "-o", "json"))
    assert (told["state"], told["assignor"], told["members"], told["lag"]) == (
        "Stable", "range", 1, 0,
    )  # fmt: skip
    first, second = told["partitions"]
    assert (first["committed"], first["log_end_offset"], first["lag"]) == (10, 10, 0)
    assert (second["partition"], second["client_id"], second["host"]) == (1, "reader", "127.0.0.1")
    assert first["instance"] == "seat"
    said = run("describe", group)
    assert said.startswith(f"{group}  classic, Stable, range, 1 member, lag 0\n\nTOPIC ")
    (seat,) = json.loads(run("members", group, "-o", "json"))
    assert seat["member"].startswith("seat-")
    assert (seat["assigned"], seat["target"], seat["epoch"]) == ({filled: [0, 1]}, None, None)
    assert (seat["subscribed"], seat["partitions"]) == ([filled], 2)
    assert f"{filled}:0,1" in run("members", group)
    refusal = run("reset", group, "--to-earliest", "--all-topics", status=1)
    assert refusal == (
        f"kbroker: group '{group}' is in use (Stable, 1 member); stop its consumers first\n"
    )
    assert "it has members" in run("delete", group, status=1)
    assert "it has members" in run("delete", group, "--dry-run", status=1)
    assert "subscribe" in run("offset-delete", group, "--all-topics", status=1)
    assert member.memberid() == seat["member"]


def test_a_group_of_the_new_protocol(target: BrokerProcess, run: Run, filled: str) -> None:
    group = f"modern-{filled}"
    consumer = Consumer({
        "bootstrap.servers": target.bootstrap, "group.id": group, "client.id": "reader",
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "group.protocol": "consumer",
    })  # fmt: skip
    consumer.subscribe([f"^{filled}$"])
    read: list[Any] = []
    wait_for("20 records", lambda: read.extend(consumer.consume(20, 0.2)) or len(read) == 20, 30)
    consumer.commit(asynchronous=False)
    assert group in run("list", "--type", "consumer", "--state", "stable")
    assert group not in run("list", "--type", "classic")
    (told,) = json.loads(run("describe", group, "-o", "json"))
    assert (told["type"], told["state"], told["assignor"]) == ("consumer", "Stable", "uniform")
    assert told["group_epoch"] == told["assignment_epoch"] >= 1
    assert [part["lag"] for part in told["partitions"]] == [0, 0]
    assert f", 1 member, epoch {told['group_epoch']}, lag 0\n" in run("describe", group)
    (member,) = json.loads(run("members", group, "-o", "json"))
    assert member["assigned"] == member["target"] == {filled: [0, 1]}
    assert (member["subscribed"], member["epoch"]) == ([f"/(^{filled}$)/"], told["group_epoch"])
    assert "is in use (Stable, 1 member)" in run("delete", group, "--dry-run", status=1) + run(
        "reset", group, "-t", filled, "--to-latest", status=1
    )
    consumer.close()
    assert run("describe", group).startswith(f"{group}  consumer, Empty, uniform, no members")
    run("reset", group, "--all-topics", "--to-offset", "5", "--execute")
    assert offsets_of(run, group) == {0: 5, 1: 5}
    assert run("delete", group) == f"group {group} deleted\n"


def test_a_group_of_offsets_alone(target: BrokerProcess, run: Run, filled: str) -> None:
    group = f"alone-{filled}"
    commit(target, group, filled, 4, 10)
    assert run("describe", group).startswith(f"{group}  classic, Empty, no members, lag 6\n")
    (row,) = json.loads(run("lag", group, "-o", "json"))
    assert row == {
        "group": group, "state": "Empty", "members": 0, "topic": filled, "lag": 6,
        "largest": 6, "partitions": 2,
    }  # fmt: skip
    assert group in run("lag")
    assert group in run("describe", "--all-groups")
    assert run("members", group) == "GROUP  MEMBER  CLIENT  HOST  PARTITIONS  ASSIGNED\n"
    said = run("offset-delete", group, "-t", f"{filled}:0,7", "--dry-run")
    assert f"{filled}-0 offset 4 would be deleted\n{filled}-7 has no offset" in said
    run("offset-delete", group, "-t", f"{filled}:0")
    assert offsets_of(run, group) == {1: 10}
    assert run("delete", group, "--dry-run") == f"group {group} would be deleted\n"
    assert run("delete", group) == f"group {group} deleted\n"
    assert "GROUP_ID_NOT_FOUND" in run("delete", group, status=1)
    assert run("delete", group, "--if-exists") == f"group {group} does not exist\n"
    assert "there is none here" in run("describe", group, status=1)
    assert "there is none here" in run("offset-delete", group, "--all-topics", status=1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-current"], {0: 4, 1: 6}),
        (["--shift-by", "-3"], {0: 1, 1: 3}),
        (["--shift-by", "5"], {0: 9, 1: 10}),
        (["--shift-by", "-99"], {0: 0, 1: 0}),
        (["--to-offset", "7"], {0: 7, 1: 7}),
        (["--to-offset", "99"], {0: 10, 1: 10}),
        (["--to-datetime", "4500"], {0: 4, 1: 4}),
        (["--to-datetime", "1970-01-01T00:00:08Z"], {0: 7, 1: 7}),
        (["--to-datetime", "2001-01-01T00:00:00Z"], {0: 10, 1: 10}),
        (["--by-duration", "P1D"], {0: 10, 1: 10}),
        (["--by-duration", "90000d"], None),
    ],
)
def test_reset(
    target: BrokerProcess, run: Run, filled: str, words: list[str], expected: dict[int, int] | None
) -> None:
    group = f"reset-{filled}"
    commit(target, group, filled, 4, 6)
    if expected is None:  # before 1970
        said = run("reset", group, "--all-topics", *words, status=2)
        assert "'90000d ago' is before 1970" in said
        return
    planned = json.loads(run("reset", group, "--all-topics", *words, "-o", "json"))
    assert {row["partition"]: row["offset"] for row in planned} == expected
    assert {row["partition"]: row["committed"] for row in planned} == {0: 4, 1: 6}
    assert offsets_of(run, group) == {0: 4, 1: 6}
    run("seek", group, "--topic", f"{filled}:1", *words, "--execute")
    assert offsets_of(run, group) == {0: 4, 1: expected[1]}
    run("reset", group, "--topic", filled, *words, "--execute")
    assert offsets_of(run, group)[0] == expected[0]


def test_a_reset_makes_a_group_and_tells_what_it_moves(run: Run, filled: str) -> None:
    group = f"made-{filled}"
    assert run("reset", group, "-t", filled, "--to-offset", "99", status=0).endswith("10\n")
    assert "GROUP_ID_NOT_FOUND" in run("describe", group, status=1)
    assert "no committed offset" in run("reset", group, "-t", filled, "--shift-by", "1", status=1)
    assert "has no partition 5" in run("reset", group, "-t", f"{filled}:5", "--to-latest", status=1)
    assert "there is none here" in run("reset", group, "-t", "none", "--to-latest", status=1)
    run("reset", group, "-t", filled, "--to-current", "-x")
    assert offsets_of(run, group) == {0: 10, 1: 10}


def test_files_are_exchanged_with_kafkas_tool(
    target: BrokerProcess, run: Run, filled: str, tmp_path: Path
) -> None:
    one, two = f"one-{filled}", f"two-{filled}"
    commit(target, one, filled, 3, 4)
    commit(target, two, filled, 5, 6)
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    run("reset", one, "--to-file", str(ours))
    assert ours.read_text() == f"{filled},0,3\n{filled},1,4\n"
    run("reset", one, two, "--to-file", str(tmp_path / "both.csv"), "--to-latest", "--all-topics")
    assert (tmp_path / "both.csv").read_text() == "".join(
        f"{group},{filled},{index},10\n" for group in (one, two) for index in (0, 1)
    )
    kafkas = ("--bootstrap-server", target.bootstrap, "--group", one, "--reset-offsets")
    exported = tool_output(
        "consumer-groups", *kafkas, "--all-topics", "--shift-by", "1", "--export"
    )
    theirs.write_text("\n".join(sorted(exported.split())) + "\n")
    assert theirs.read_text().replace('"', "") == f"{filled},0,4\n{filled},1,5\n"
    run("reset", one, "--from-file", str(theirs), "--execute")
    assert offsets_of(run, one) == {0: 4, 1: 5}
    tool_output("consumer-groups", *kafkas, "--from-file", str(ours), "--execute")
    assert offsets_of(run, one) == {0: 3, 1: 4}
    run("reset", "--from-file", str(tmp_path / "both.csv"), "--execute")
    assert offsets_of(run, two) == {0: 10, 1: 10}
