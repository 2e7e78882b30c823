"""`kbroker group reset`: files of offsets that come back, and names that no request can hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client.cluster import Cluster
from kbroker.client.group_offsets import commit_offsets
from tests.cli.conftest import Run
from tests.support import wire
from tests.support.kbroker import KbrokerProcess


@pytest.fixture
def alone(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The one group of a broker of its own, with offset 0 of partition 0 of topic t."""
    broker = KbrokerProcess(tmp_path / "broker")
    broker.start()
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", broker.bootstrap)
    wire.create_topic(broker.port, "t", 1)
    with Cluster(broker.bootstrap) as cluster:
        commit_offsets(cluster, "alone", {("t", 0): 0})
    yield "alone"
    broker.stop()


def test_what_all_groups_wrote_is_read_for_all_groups(run: Run, alone: str, tmp_path: Path) -> None:
    """Only a file about a GROUP that was named leaves it out, be there no other."""
    file = tmp_path / "offsets.csv"
    run("group", "reset", "--all-groups", "--to-file", str(file))
    assert file.read_text() == "alone,t,0,0\n"
    run("group", "reset", "--all-groups", "--from-file", str(file), "--execute")
    run("group", "reset", alone, "--to-file", str(file))
    assert file.read_text() == "t,0,0\n"


def test_an_empty_file_is_not_about_all_groups(run: Run, alone: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.touch()
    said = run("group", "reset", "--all-groups", "--from-file", str(file), "-x", status=1)
    assert said.err == f"kbroker: {file} has no offsets\n"


@pytest.mark.parametrize(
    "words",
    [
        ["group", "reset", "NAME", "--topic", "t", "--to-latest"],
        ["group", "describe", "NAME"],
        ["group", "delete", "NAME"],
        ["topic", "describe", "NAME"],
        ["topic", "create", "NAME"],
        ["config", "get", "--group", "NAME"],
        ["consume", "NAME", "-e"],
        ["consume", "-e", "-G", "NAME", "TOPIC"],
        ["produce", "NAME"],
        ["txn", "describe", "NAME"],
        ["group", "list", "-X", "client.id=NAME"],
    ],
)
def test_a_name_longer_than_a_string_of_the_protocol(
    kbroker: KbrokerProcess, run: Run, topic: str, words: list[str]
) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    name = "é" * 20_000
    given = [word.replace("NAME", name).replace("TOPIC", topic) for word in words]
    said = run(*given, stdin=b"x\n", status=1)
    assert "'éééééééééééééééééééé'... has 40,000 bytes" in said.err
    assert "a string of Kafka's protocol holds 32,767 at most" in said.err
    assert said.err.count("\n") == 1
