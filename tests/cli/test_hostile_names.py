"""Names that steer a terminal or look like other rows, in what `kbroker` says of them."""

from __future__ import annotations

import json
import uuid

import pytest

from kbroker.cli.kafka import groups
from kbroker.cli.kafka.tool import start
from kbroker.client import Consumer, Producer
from kbroker.client.cluster import Cluster
from kbroker.client.group_offsets import commit_offsets
from tests.cli.conftest import Run
from tests.support import wire
from tests.support.kbroker import KbrokerProcess


@pytest.fixture
def hostile() -> str:
    """A name that clears the screen and goes on in a line of its own."""
    return f"x\x1b[2J\x1b]0;owned\x07\nforged{uuid.uuid4().hex}"


def is_tame(said: bytes, name: str) -> bool:
    """Whether it holds the name, escaped, and nothing that cannot be printed."""
    text = said.decode()
    shown = name.encode("unicode_escape").decode()
    forged = any(line.startswith("forged") for line in text.splitlines())
    return shown in text and not forged and text.replace("\n", "").isprintable()


def test_group_tables(kbroker: KbrokerProcess, run: Run, topic: str, hostile: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    with Cluster(kbroker.bootstrap) as cluster:
        commit_offsets(cluster, hostile, {(topic, 0): 0})
    for words in (["list"], ["describe", hostile], ["lag", hostile], ["lag"],
                  ["reset", hostile, "--topic", topic, "--to-latest"],
                  ["offset-delete", hostile, "--topic", f"{topic}:7"],
                  ["delete", hostile]):  # fmt: skip
        assert is_tame(run("group", *words).out, hostile), words


@pytest.mark.parametrize("tty", [True, False])
def test_the_script_of_kafkas_name(  # noqa: PLR0917
    kbroker: KbrokerProcess,
    topic: str,
    hostile: str,
    tty: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a program reads, a name is what it is."""
    wire.create_topic(kbroker.port, topic, 1)
    with Cluster(kbroker.bootstrap) as cluster:
        commit_offsets(cluster, hostile, {(topic, 0): 0})
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: tty, raising=False)
    by_name = ["--group", hostile]
    reset = ["--reset-offsets", "--topic", topic, "--to-latest", "--dry-run"]
    for words in (["--list"], ["--list", "--state"], ["--describe", *by_name],
                  ["--describe", "--state", *by_name], ["--describe", "--members", *by_name],
                  [*reset, *by_name], [*reset, "--export", "--all-groups"],
                  ["--delete", *by_name]):  # fmt: skip
        assert start(groups.TOOL, ["--bootstrap-server", kbroker.bootstrap, *words]) == 0
        said = "".join(capsys.readouterr())
        assert (hostile in said, is_tame(said.encode(), hostile)) == (not tty, tty), words


def test_members(kbroker: KbrokerProcess, run: Run, topic: str, hostile: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    with Consumer(
        bootstrap_servers=kbroker.bootstrap, group_id=topic, client_id=hostile
    ) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(1)
        assert is_tame(run("group", "members", topic).out, hostile)
        assert is_tame(run("group", "describe", topic).out, hostile)
        (member,) = json.loads(run("group", "members", topic, "-o", "json").out)
    assert member["client_id"] == hostile


def test_transaction_tables(
    kbroker: KbrokerProcess, run: Run, topic: str, hostile: str
) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    with Producer(bootstrap_servers=kbroker.bootstrap, transactional_id=hostile) as producer:
        producer.init_transactions(60)
    assert is_tame(run("txn", "list").out, hostile)
    assert is_tame(run("txn", "describe", hostile).out, hostile)
    assert hostile in {one["transactional_id"] for one in json.loads(run(
        "txn", "list", "-o", "json").out)}  # fmt: skip


def test_topic_tables(run: Run, hostile: str) -> None:
    """No topic has such a name, but anybody may ask for one."""
    told = run("topic", "delete", "--if-exists", hostile)
    assert is_tame(told.out, hostile)
    assert "\x1b" not in run("topic", "describe", hostile, status=1).err
