"""`kbroker log strays` and `stray-delete`, and other commands on folders that are set aside."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kbroker.cli import root
from kbroker.metadata.directories import LIST
from kbroker.storage.checkpoints import write_topic_id
from kbroker.uuids import ONE_UUID, uuid_text

Captured = pytest.CaptureFixture[str]

FIRST = f"lost-0.{'1' * 32}-stray"
SECOND = f"lost-1.{'2' * 32}-stray"
DEAD = f"gone-0.{'3' * 32}-delete"
SEGMENT = f"{0:020}.log"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A data directory and one more log directory, each with a stray folder."""
    data, more = tmp_path / "data", tmp_path / "more"
    for folder, size in ((data / FIRST, 3000), (more / SECOND, 20), (data / DEAD, 7)):
        folder.mkdir(parents=True)
        (folder / SEGMENT).write_bytes(b"x" * size)
    write_topic_id(data / FIRST, ONE_UUID)
    (data / LIST).write_text(json.dumps({str(more): uuid_text(ONE_UUID)}))
    (data / f"file.{'4' * 32}-stray").touch()
    return data


def run(capsys: Captured, *words: str) -> tuple[int, str, str]:
    status = root.run(["log", *words])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_stray_folders_are_listed(capsys: Captured, place: Path) -> None:
    status, out, _ = run(capsys, "strays", "-D", str(place))
    assert status == 0
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [
        [FIRST, "3.0", "KiB", "1"], [SECOND, "20", "B", "1"],
    ]  # fmt: skip
    rows = json.loads(run(capsys, "strays", "-D", str(place), "-o", "json")[1])
    assert [(row["partition"], row["topic_id"], row["directory"]) for row in rows] == [
        ("lost-0", uuid_text(ONE_UUID), str(place)),
        ("lost-1", None, str(place.with_name("more"))),
    ]
    assert rows[0]["bytes"] == 3000 + len("version: 0\ntopic_id: ") + 22
    assert "TOPIC ID" in run(capsys, "strays", "-D", str(place), "-o", "wide")[1]


def test_a_dry_run_deletes_nothing(capsys: Captured, place: Path) -> None:
    status, out, _ = run(capsys, "stray-delete", "--all", "--dry-run", "-D", str(place))
    assert status == 0 and out.count("would be deleted") == 2
    assert (place / FIRST).is_dir() and place.with_name("more").joinpath(SECOND).is_dir()


def test_named_folders_are_deleted(capsys: Captured, place: Path) -> None:
    status, out, _ = run(capsys, "stray-delete", SECOND, SECOND, "--yes", "-D", str(place))
    assert (status, out) == (0, f"{place.with_name('more') / SECOND} (20 B) deleted\n")
    assert not list(place.with_name("more").iterdir())
    assert (place / FIRST).is_dir() and (place / DEAD).is_dir()


def test_all_folders_are_deleted(capsys: Captured, place: Path) -> None:
    assert run(capsys, "stray-delete", "--all", "-y", "-D", str(place))[0] == 0
    assert json.loads(run(capsys, "strays", "-D", str(place), "-o", "json")[1]) == []
    assert (place / DEAD).is_dir()
    again = run(capsys, "stray-delete", "--all", "-y", "-D", str(place))
    assert again == (0, "no stray folders\n", "")


@pytest.mark.parametrize("name", [DEAD, "lost-0", "__cluster_metadata-0", f"../data/{FIRST}"])
def test_other_folders_are_never_deleted(capsys: Captured, place: Path, name: str) -> None:
    status, _, err = run(capsys, "stray-delete", name, "--yes", "-D", str(place))
    assert status == 1 and "no stray folder" in err
    assert (place / FIRST).is_dir() and (place / DEAD).is_dir()


def test_a_deletion_is_confirmed(
    capsys: Captured, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = run(capsys, "stray-delete", FIRST, "-D", str(place))
    assert status == 2 and "--yes" in err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked: list[str] = []

    def confirm(text: str, *, abort: bool) -> None:
        asked.append(text)

    monkeypatch.setattr("click.confirm", confirm)
    assert run(capsys, "stray-delete", FIRST, "-D", str(place))[0] == 0
    assert asked == ["Delete 1 folders with 3.0 KiB for good?"]
    assert not (place / FIRST).exists()


def test_wrong_words_delete_nothing(capsys: Captured, place: Path, tmp_path: Path) -> None:
    for words in (["stray-delete"], ["stray-delete", FIRST, "--all"]):
        status, _, err = run(capsys, *words, "--yes", "-D", str(place))
        assert status == 2 and "either FOLDER or --all" in err
    status, _, err = run(capsys, "strays", "-D", str(tmp_path / "none"))
    assert status == 1 and "no data directory" in err


def test_a_rest_is_reported(
    capsys: Captured, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.care.strays.remove_folder", lambda path: None)
    status, _, err = run(capsys, "stray-delete", FIRST, "--yes", "-D", str(place))
    assert status == 1 and "could not be removed whole" in err
    assert [path.name for path in place.glob("lost-0.*-delete")] and not (place / FIRST).exists()


def test_verify_skips_folders_that_are_set_aside(capsys: Captured, place: Path) -> None:
    """Their segments are no batches, which would be faults."""
    (place / "t-0").mkdir()
    (place / "t-0" / SEGMENT).touch()
    status, out, _ = run(capsys, "verify", "-D", str(place))
    assert status == 0 and "1 segments" in out
    assert run(capsys, "verify", str(place / FIRST))[0] == 1
