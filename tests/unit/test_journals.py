"""Journals over the directories: none goes that has what a log which cannot be opened may lack."""

from __future__ import annotations

import pytest

from kbroker.errors import DiskError, OperatorError
from kbroker.ext import journal_recovery, journal_walk
from kbroker.server import journal
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support.ports import FakeLog

TOPIC = b"t" * 16


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Two directories after a crash, with a journal in the first."""
    both = [LogDirectory(tmp_path / name, place, name.encode() * 16)
            for place, name in enumerate("ab")]  # fmt: skip
    for one in both:
        one.path.mkdir()
    monkeypatch.setattr(journal_walk, "files", lambda path: [path] if path.endswith("a") else [])
    monkeypatch.setattr(journal_walk, "remove", lambda _: removed.append(True))
    monkeypatch.setattr(journal_walk, "keys", lambda _: {(TOPIC, 0)})
    monkeypatch.setattr(journal_recovery, "replay", lambda *told: replayed.append(told) or done)
    removed: list[bool] = []
    replayed: list[tuple] = []
    done = journal_recovery.Replayed(1, 0, 0, 0, 0, 0)
    made = LogManager(both, FakeLog)
    made.removed, made.replayed = removed, replayed
    return made


def spec(home, partition=0):
    return PartitionSpec("t", TOPIC, partition, {}, 0, home)


def put(directory, folder):
    (directory.path / folder).mkdir()
    (directory.path / folder / "partition.metadata").write_text(
        "version: 0\ntopic_id: dHR0dHR0dHR0dHR0dHR0dA"
    )


def test_one_that_was_moved_by_hand_gets_what_the_other_journal_has(logs):
    put(logs.directories[1], "t-0")
    logs.start([spec(b"a" * 16), spec(b"b" * 16, 1)])
    assert logs.found == {("t", 0): logs.main}
    assert logs.get("t", 0).opening.clean is False
    journal.recover(logs, {"t": TOPIC})
    assert [set(told[1]) for told in logs.replayed] == [{(TOPIC, 0)}] and logs.removed


def test_it_stays_where_such_a_one_cannot_be_opened(logs):
    def refuse(opening):
        raise DiskError(opening.directory, "I/O error")

    put(logs.directories[1], "t-0")
    logs._open_log = refuse
    logs.start([spec(b"a" * 16)])
    with pytest.raises(OperatorError, match="nowhere else"):
        journal.recover(logs, {"t": TOPIC})
    assert not logs.removed


def test_it_counts_where_its_directory_fails_meanwhile(logs):
    """One that was moved by hand is not served without what the journal there has of it."""
    put(logs.main, "t-0")
    logs.start([spec(b"b" * 16)])
    assert logs.found == {("t", 0): logs.directories[1]}
    logs.directories[1].failure = "I/O error"
    with pytest.raises(OperatorError, match=r"moved by hand from .*b to .*a, .*: I/O error"):
        journal.recover(logs, {"t": TOPIC})
    assert not logs.removed and not logs.replayed


def test_what_goes_wrong_there_refuses_the_start(logs, monkeypatch):
    def refuse(path):
        if path.endswith("b"):
            raise DiskError(path, "I/O error")
        return []

    put(logs.main, "t-0")
    logs.start([spec(b"b" * 16)])
    monkeypatch.setattr(journal_walk, "files", refuse)
    with pytest.raises(DiskError):
        journal.recover(logs, {"t": TOPIC})


@pytest.mark.parametrize(("partition", "kept"), [(0, True), (1, False)])
def test_it_stays_for_a_folder_beside_it_that_is_offline(logs, partition, kept):
    """Of those alone that it has entries of."""
    put(logs.main, f"t-{partition}")
    logs.directories[1].failure = "gone"
    logs.start([spec(b"b" * 16, partition)])
    if kept:
        with pytest.raises(OperatorError, match="nowhere else"):
            journal.recover(logs, {"t": TOPIC})
    else:
        journal.recover(logs, {"t": TOPIC})
    assert bool(logs.removed) is not kept
