"""Folders of deleted partitions: counted, kept until their time, removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.storage.dead_folders import DeadFolders
from kbroker.storage.log_directory import LogDirectory


@pytest.fixture
def homes(tmp_path: Path) -> list[LogDirectory]:
    made = [LogDirectory(tmp_path / name, place) for place, name in enumerate("ab")]
    for one in made:
        one.path.mkdir()
    return made


def fill(home: LogDirectory, name: str, size: int) -> Path:
    folder = home.path / name
    folder.mkdir()
    (folder / "partition.metadata").write_bytes(b"m" * size)
    return folder


def test_folders_are_removed_when_their_time_comes(homes: list[LogDirectory]) -> None:
    dead = DeadFolders()
    early, late = fill(homes[0], "early", 10), fill(homes[0], "late", 20)
    other = fill(homes[1], "other", 40)
    dead.add(early, homes[0], 5)
    dead.add(str(late), homes[0], 9)
    dead.add(other, homes[1], 5)
    assert (dead.bytes(homes[0]), dead.bytes(homes[1])) == (30, 40)
    assert dead.paths() == [early, late, other] and dead.paths(homes[1]) == [other]
    dead.remove(4)
    dead.remove(5, homes[0])
    assert not early.exists() and late.exists() and other.exists()
    assert dead.paths() == [late, other] and dead.bytes(homes[0]) == 20
    dead.remove(None)
    assert not late.exists() and not other.exists() and dead.paths() == []


def test_a_folder_with_folders_within_is_removed(homes: list[LogDirectory]) -> None:
    dead = DeadFolders()
    folders = [fill(homes[0], f"{number}", 1) for number in range(70)]
    (folders[40] / "within" / "deeper").mkdir(parents=True)
    for folder in [*folders, homes[0].path / "missing"]:
        dead.add(folder, homes[0], 0)
    dead.remove(0)
    assert list(homes[0].path.iterdir()) == []


def test_nothing_is_removed_from_a_failed_directory(homes: list[LogDirectory]) -> None:
    dead = DeadFolders()
    folder = fill(homes[1], "a", 3)
    dead.add(folder, homes[1], 0)
    homes[1].failure = "it failed"
    dead.remove(None)
    assert folder.exists() and dead.paths() == [folder]
