"""Damage of the write-ahead log: reported and never taken for its end or for an unused file."""

import errno
import os
import re
import shutil
import struct
from pathlib import Path

import pytest

from tests.reference.records import Batch, Record
from tests.support.waits import wait_for

testing = pytest.importorskip(
    "kbroker.ext.testing_journal", reason="built without KBROKER_TEST=1"
)
from kbroker.ext import journal_reader  # noqa: E402
from kbroker.ext.journal_reader import WalError  # noqa: E402

TOPIC = bytes(range(16))
BLOCK = 4096
KIB = 1024
KEY = (TOPIC, 7)


def batch_at(offset, size):
    return struct.pack(">q", offset) + Batch([Record(value=b"v" * size)]).encode()[8:]


def write_wal(folder, groups, size=100, *, free=True, **settings):
    """Write commit groups of two batches each, as a crash leaves them. free: full files are used
    again."""
    owner = testing.TestOwner(TOPIC, 7)
    owner.fail_syncs(0 if free else errno.EAGAIN)
    journal = testing.TestJournal(str(folder), interval_ms=100_000, **settings)
    for end in range(2, 2 * groups + 1, 2):
        journal.append(owner, batch_at(end - 2, size), end - 1, demand=False)
        journal.append(owner, batch_at(end - 1, size), end)
        wait_for("the group", lambda end=end: owner.durable == end, 10, 0.001)
    journal.close(unlink_files=False)


SMALL_FILES = {"group_bytes": 128 * KIB, "file_bytes": 512 * KIB}  # four groups of 120 KiB


@pytest.fixture
def wal(tmp_path):
    """One file of five groups."""
    write_wal(tmp_path, 5)
    return tmp_path


@pytest.fixture
def three_files(tmp_path):
    """Three files of four groups each, offsets 0 to 23, none of them freed."""
    write_wal(tmp_path, 12, 60 * KIB, free=False, **SMALL_FILES, bytes_max=16 * 512 * KIB)
    assert len(in_order(tmp_path)) == 3
    return tmp_path


def wal_files(folder):
    return sorted(Path(path) for path in journal_reader.files(str(folder)))


def sequence_of(path):
    return struct.unpack_from(">Q", path.read_bytes(), 16)[0]


def in_order(folder):
    return sorted((path for path in wal_files(folder) if sequence_of(path)), key=sequence_of)


def groups_in(path):
    """(position, length, sequence) of each group in a file."""
    data = path.read_bytes()
    return [
        (at, *struct.unpack_from(">I", data, at + 24), *struct.unpack_from(">Q", data, at + 16))
        for at in range(BLOCK, len(data), BLOCK)
        if data[at : at + 4] == b"KBJG"
    ]


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def offsets(folder, **settings):
    return [entry.base_offset for entry in journal_reader.entries(str(folder), **settings)]


# --- headers of files ---------------------------------------------------------------------------


def as_folder(path):
    path.unlink()
    path.mkdir()


def as_dead_link(path):
    path.unlink()
    path.symlink_to("nowhere")


def cut(path):
    os.truncate(path, 3 * BLOCK)


def cut_in_the_header(path):
    os.truncate(path, 100)


def foreign(path):
    path.write_bytes(b"x" * 10_000)


FAULTS = {
    as_folder: "Is a directory",
    as_dead_link: "No such file or directory",
    cut: "it is shorter than its header says",
    cut_in_the_header: "it is shorter than its header says",
    foreign: "its header has a wrong checksum",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_file_that_cannot_be_read_is_named(wal, fault):
    (path,) = wal_files(wal)
    fault(path)
    with pytest.raises(WalError, match=re.escape(f"{path}: {FAULTS[fault]}")):
        offsets(wal)
    with pytest.raises(WalError):
        journal_reader.keys(str(wal))


def test_several_files_that_cannot_be_read_are_all_named(wal):
    for number in (1, 2):
        foreign(wal / f".kbroker-journal.{number}")
    with pytest.raises(WalError) as error:
        offsets(wal)
    assert len(error.value.reasons) == 2
    assert offsets(wal, skip_damage=True) == list(range(10))


@pytest.mark.parametrize("at", range(36))
def test_flipped_bit_in_a_header_is_reported(wal, at):
    (path,) = wal_files(wal)
    flip(path, at)
    with pytest.raises(WalError, match="wrong checksum"):
        offsets(wal)


@pytest.mark.parametrize("at", range(36, 64))
def test_flipped_bit_behind_the_header_costs_nothing(wal, at):
    (path,) = wal_files(wal)
    flip(path, at)
    assert offsets(wal) == list(range(10))


@pytest.mark.parametrize("size", [0, BLOCK, 10 * BLOCK])
def test_header_of_zeros_is_an_unused_file(tmp_path, size):
    (tmp_path / ".kbroker-journal.0").write_bytes(bytes(size))
    (tmp_path / ".kbroker-journal.x").write_bytes(b"x" * 10_000)
    assert offsets(tmp_path) == []


def test_file_that_is_missing_between_others_is_reported(three_files):
    first, second, third, *_ = in_order(three_files)
    second.unlink()
    with pytest.raises(WalError, match=re.escape(f"{third}: a file is missing between {first}")):
        offsets(three_files)


def test_file_of_another_start_is_reported(wal, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write_wal(other, 2, salt=2)
    shutil.copy(wal_files(other)[0], wal / ".kbroker-journal.1")
    with pytest.raises(WalError, match="another start"):
        offsets(wal)


# --- groups -------------------------------------------------------------------------------------

IN_GROUP = {"header": 9, "length": 25, "entry": 64 + 5, "batch": 64 + 64 + 70}


@pytest.mark.parametrize("where", IN_GROUP)
@pytest.mark.parametrize("group", range(4))
def test_rot_before_sound_groups_is_reported(wal, group, where):
    (path,) = wal_files(wal)
    at = groups_in(path)[group][0]
    flip(path, at + IN_GROUP[where])
    with pytest.raises(WalError) as error:
        offsets(wal)
    assert f"{path}: commit group {group + 1} at byte {at} is damaged" in str(error.value)
    assert error.value.following == {KEY: 2 * (4 - group)}
    lost = {2 * group, 2 * group + 1}
    assert offsets(wal, skip_damage=True) == [n for n in range(10) if n not in lost]


@pytest.mark.parametrize("where", IN_GROUP)
def test_last_group_that_is_not_whole_is_the_end(wal, where):
    (path,) = wal_files(wal)
    flip(path, groups_in(path)[-1][0] + IN_GROUP[where])
    assert offsets(wal) == list(range(8))


@pytest.mark.parametrize("where", IN_GROUP)
def test_rot_in_any_group_but_the_last_of_several_files(three_files, where, tmp_path_factory):
    places = [(path, *one) for path in in_order(three_files) for one in groups_in(path)]
    assert [one[3] for one in places] == list(range(1, 13))
    for path, at, _, sequence in places[:-1]:
        copy = tmp_path_factory.mktemp("copy") / "data"
        shutil.copytree(three_files, copy)
        flip(copy / path.name, at + IN_GROUP[where])
        with pytest.raises(WalError) as error:
            offsets(copy)
        assert error.value.following == {KEY: 2 * (12 - sequence)}
        lost = {2 * sequence - 2, 2 * sequence - 1}
        assert offsets(copy, skip_damage=True) == [n for n in range(24) if n not in lost]
        shutil.rmtree(copy)


def test_rot_before_a_file_whose_first_group_is_torn(three_files):
    """The header of the next file says that all groups before it were on disk."""
    _, second, third, *_ = in_order(three_files)
    third.write_bytes(third.read_bytes()[:BLOCK].ljust(third.stat().st_size, b"\0"))
    assert offsets(three_files) == list(range(2 * groups_in(second)[-1][2]))
    flip(second, groups_in(second)[-1][0] + 70)
    with pytest.raises(WalError, match=re.escape(str(second))):
        offsets(three_files)


def test_groups_behind_a_header_of_zeros_are_read_when_they_follow(three_files):
    """A power cut can leave a file's first group without its header; rot can take the header."""
    last = in_order(three_files)[-1]
    data = last.read_bytes()
    last.write_bytes(bytes(BLOCK) + data[BLOCK:])
    assert offsets(three_files) == list(range(24))
    flip(last, groups_in(last)[0][0] + 9)
    with pytest.raises(WalError, match="later groups were written"):
        offsets(three_files)


@pytest.fixture
def second_lap(tmp_path):
    """Two files that were used again and again; the newest group stands before older ones."""
    write_wal(tmp_path, 58, 60 * KIB, **SMALL_FILES, bytes_max=2 * 512 * KIB)
    newest = in_order(tmp_path)[-1]
    assert max(one[2] for one in groups_in(newest)) == 58
    assert groups_in(newest)[-1][2] < 57
    return tmp_path


def test_older_groups_behind_the_end_are_no_damage(second_lap):
    found = offsets(second_lap)
    assert found == list(range(found[0], 116))
    newest = in_order(second_lap)[-1]
    last = groups_in(newest)[1]
    assert last[2] == 58
    flip(newest, last[0] + 9)
    assert offsets(second_lap) == list(range(found[0], 114))


def test_file_whose_first_group_never_came_is_the_end(second_lap):
    """Its new header is on disk, behind it stand the groups of an earlier lap."""
    newest = in_order(second_lap)[-1]
    whole = offsets(second_lap)
    for at, _, sequence in groups_in(newest):
        if sequence > 56:
            flip(newest, at + 9)
    assert offsets(second_lap) == [n for n in whole if n < 112]


def test_wal_of_an_earlier_version_is_read(wal):
    """It did not record the first group."""
    (path,) = wal_files(wal)
    data = bytearray(path.read_bytes())
    data[40:52] = bytes(12)
    path.write_bytes(data)
    assert offsets(wal) == list(range(10))
    flip(path, groups_in(path)[0][0] + 9)
    assert offsets(wal) == []


# --- removal ------------------------------------------------------------------------------------


def test_removal_keeps_damaged_files_and_takes_the_switch(three_files):
    first, *others = in_order(three_files)
    flip(first, 20)
    folder = str(three_files)
    journal_reader.skip_damage(folder)
    assert journal_reader.skips_damage(folder)
    journal_reader.remove(folder, [str(first)])
    assert [path.name for path in three_files.iterdir()] == [f"{first.name}.damaged"]
    assert others and not journal_reader.skips_damage(folder)


def test_removal_takes_the_oldest_file_first(three_files, monkeypatch):
    """What a crash leaves of it has no gap."""
    removed = []
    unlink = os.unlink
    monkeypatch.setattr(os, "unlink", lambda path: (removed.append(Path(path)), unlink(path)))
    expected = in_order(three_files)
    journal_reader.remove(str(three_files))
    assert [path for path in removed if path in expected] == expected
