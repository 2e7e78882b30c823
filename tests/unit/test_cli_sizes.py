"""`kbroker log sizes`: every byte of a data directory has its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.cli import root
from kbroker.cli.space import measure
from tests.support.mounted import mounted_disk

Captured = pytest.CaptureFixture[str]

FILES = {
    "big-0/00000000000000000000.log": 3000,
    "big-0/00000000000000000000.index": 16,
    "big-0/00000000000000000009.log": 2000,
    "big-0/00000000000000000009.timeindex": 12,
    "big-0/leader-epoch-checkpoint": 10,
    "big-1/00000000000000000000.log": 100,
    "big-1/00000000000000000000.log.deleted": 50,
    "a-b-0/00000000000000000000.log": 700,
    "__cluster_metadata-0/00000000000000000000.log": 400,
    f"gone-0.{'0' * 32}-delete/00000000000000000000.log": 30,
    f"lost-0.{'1' * 32}-stray/00000000000000000000.log": 20,
    ".kbroker-journal.0": 4096,
    "meta.properties": 8,
    "lost+found/x": 1,
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, size in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    return tmp_path


def sizes(capsys: Captured, place: Path, *options: str) -> str:
    assert root.run(["log", "sizes", "-D", str(place), *options]) == 0
    return capsys.readouterr().out


def test_for_programs(capsys: Captured, place: Path) -> None:
    told = json.loads(sizes(capsys, place, "-o", "json"))
    assert told["bytes"] == sum(FILES.values())
    assert (told["journal_bytes"], told["metadata_bytes"]) == (4096, 400)
    assert (told["deleted_bytes"], told["set_aside_bytes"], told["other_bytes"]) == (30, 20, 9)
    assert told["bytes_max"] is None and told["free_bytes_min"] is None
    assert 0 < told["free_bytes"] < told["file_system_bytes"]
    big = next(one for one in told["partitions"] if (one["topic"], one["partition"]) == ("big", 0))
    assert big.pop("disk_bytes") > 0
    assert big == {
        "topic": "big", "partition": 0, "directory": str(place), "segments": 2,
        "log_bytes": 5000, "index_bytes": 28, "other_bytes": 10, "deleted_bytes": 0, "bytes": 5038,
    }  # fmt: skip


def test_the_topic_that_takes_most_comes_first(capsys: Captured, place: Path) -> None:
    lines = sizes(capsys, place).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["TOPIC", "PARTITIONS", "SEGMENTS", "SIZE"],
        ["big", "2", "3", "5.1", "KiB"],
        ["a-b", "1", "1", "700", "B"],
    ]
    assert "journal:        4.0 KiB" in lines
    assert "deleted topics: 30 B" in lines
    assert lines[-1].startswith("in all:         10.2 KiB, ")


def test_by_partition_and_wide(capsys: Captured, place: Path) -> None:
    lines = sizes(capsys, place, "-p", "-o", "wide").splitlines()
    assert lines[0].split()[:2] == ["TOPIC", "PARTITION"]
    assert lines[0].split()[-3:] == ["DELETED", "ON", "DISK"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["big", "0", "2"],
        ["a-b", "0", "1"],
        ["big", "1", "1"],
    ]


def test_a_place_that_is_none_is_told_in_a_line(capsys: Captured, tmp_path: Path) -> None:
    assert root.run(["log", "sizes", "-D", str(tmp_path / "none")]) == 1
    said = capsys.readouterr().err
    assert "no data directory" in said and said.count("\n") == 1


def test_what_may_not_be_looked_into_is_passed_over() -> None:
    with mounted_disk() as disk:
        (disk / "t-0").mkdir()
        (disk / "t-0" / "00000000000000000000.log").write_bytes(b"x" * 10)
        found = measure([disk])
    assert [one.log_bytes for one in found.partitions] == [10] and found.other_bytes == 0
