"""Files taken into a backup: cloned, linked or copied, with the checksum of what was wanted."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

import pytest

from kbroker.care.copying import CLONED, COPIED, LINKED, digest_of, take
from kbroker.errors import CorruptFileError, DiskError

DATA = bytes(range(256)) * 9000


def taken(source: Path, target: Path, size: int = len(DATA), *, link: bool) -> str:
    """How a file was taken; its content is looked at."""
    ticks: list[int] = []
    descriptor = os.open(source, os.O_RDONLY)
    try:
        how, digest = take(descriptor, source, target, size, link=link, tick=ticks.append)
    finally:
        os.close(descriptor)
    assert target.read_bytes() == DATA[:size]
    assert digest == hashlib.sha256(DATA[:size]).hexdigest() == digest_of(target, ticks.append)
    assert sum(ticks) == 2 * size
    return how


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


def test_links_and_copies(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    assert taken(source, tmp_path / "linked", link=True) == LINKED
    assert os.path.samefile(source, tmp_path / "linked")
    assert taken(source, tmp_path / "copied", link=False) == COPIED
    assert taken(source, tmp_path / "part", 5000, link=False) == COPIED
    assert taken(source, tmp_path / "nothing", 0, link=False) == COPIED
    monkeypatch.setattr(os, "link", refuse)
    assert taken(source, tmp_path / "other disk", link=True) == COPIED
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copied", "linked", "nothing", "other disk", "part", "source"
    ]  # fmt: skip


def test_a_name_that_is_another_file_by_now_is_not_linked(source: Path, tmp_path: Path) -> None:
    with source.open("rb") as file:
        source.unlink()
        source.write_bytes(b"another")
        target = tmp_path / "t"
        how, _ = take(file.fileno(), source, target, len(DATA), link=True, tick=lambda _: None)
    assert how in (COPIED, CLONED)
    assert (tmp_path / "t").read_bytes() == DATA


def test_a_clone_is_cut_to_what_is_wanted(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a disk that clones would do it: the whole file at once."""

    def clone(target: int, operation: int, origin: int) -> int:
        assert operation == 0x40049409  # _IOW(0x94, 9, int)
        return os.pwrite(target, os.pread(origin, len(DATA), 0), 0)

    monkeypatch.setattr(fcntl, "ioctl", clone)
    assert taken(source, tmp_path / "whole", link=True) == CLONED
    assert taken(source, tmp_path / "part", 7000, link=False) == CLONED


def test_errors_name_the_file(source: Path, tmp_path: Path) -> None:
    with source.open("rb") as file:
        with pytest.raises(DiskError, match=f"{source}: File exists"):
            take(file.fileno(), source, source, 1, link=False, tick=lambda _: None)
        with pytest.raises(CorruptFileError, match=f"{source}: it is shorter than it was"):
            take(file.fileno(), source, tmp_path / "t", len(DATA) + 1, link=False,
                 tick=lambda _: None)  # fmt: skip
