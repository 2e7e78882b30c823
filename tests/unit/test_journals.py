"""Journals over the directories: none goes that has what a log which cannot be opened may lack."""

from __future__ import annotations

import pytest

from kbroker.errors import DiskError, OperatorError
from kbroker.ext import journal_reader, journal_recovery
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
    monkeypatch.setattr(journal_reader, "files", lambda path: [path] if path.endswith("a") else [])
    monkeypatch.setattr(journal_reader, "remove", lambda *_: removed.append(True))
    monkeypatch.setattr(journal_reader, "keys", lambda _, **__: {(TOPIC, 0)})
    monkeypatch.setattr(
        journal_recovery, "replay", lambda *args, **_: replayed.append(args) or result[0]
    )
    removed: list[bool] = []
    replayed: list[tuple] = []
    result = [journal_recovery.Replayed(1, 0, 0, 0, 0, {}, [], [])]
    made = LogManager(both, FakeLog)
    made.removed, made.replayed, made.result = removed, replayed, result
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
    monkeypatch.setattr(journal_reader, "files", refuse)
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


GAPS = {(TOPIC, 0): 3, (b"u" * 16, 1): 2}


def test_gap_without_the_switch_refuses_and_names_partitions(logs):
    put(logs.main, "t-0")
    logs.start([spec(b"a" * 16)])
    logs.result[0] = logs.result[0]._replace(gaps=GAPS)
    with pytest.raises(OperatorError, match=r"5 batches of 2 partitions .*t-0: 3.*--skip-wal"):
        journal.recover(logs, {"t": TOPIC})
    assert not logs.removed


def test_gap_with_the_switch_goes_on(logs, caplog):
    put(logs.main, "t-0")
    logs.start([spec(b"a" * 16)])
    logs.result[0] = logs.result[0]._replace(gaps=GAPS, skipped=["a file"])
    (logs.main.path / ".kbroker-journal.skip-damage").touch()
    journal.recover(logs, {"t": TOPIC})
    assert logs.removed
    assert "t-0: 3" in caplog.text and "a file" in caplog.text


def test_unreadable_wal_of_another_directory_takes_it_offline(logs, monkeypatch):
    def refuse(path, *_, **__):
        raise journal_reader.WalError(path, [(path, "no such bytes")])

    logs.start([spec(b"a" * 16), spec(b"b" * 16, 1)])
    monkeypatch.setattr(journal_reader, "files", lambda path: [path] if path.endswith("b") else [])
    monkeypatch.setattr(journal_recovery, "replay", refuse)
    journal.recover(logs, {"t": TOPIC})
    assert "no such bytes" in logs.directories[1].failure and not logs.removed
