"""The shared journal: group commit, files in turn, and what a reader makes of a crash."""

import contextlib
import errno
import functools
import itertools
import shutil
import struct
import time
from pathlib import Path

import pytest

from tests.reference.crc import crc32c
from tests.reference.records import Batch, Record
from tests.support.waits import wait_for

testing = pytest.importorskip(
    "kbroker.ext.testing_journal", reason="built without KBROKER_TEST=1"
)
from kbroker.ext import journal_reader  # noqa: E402

TOPIC = bytes(range(16))
BLOCK = 4096
KIB = 1024


@functools.cache
def batch_of(size):
    return Batch([Record(value=b"v" * size)]).encode()


def batch_at(offset, size=100):
    """The CRC does not cover the base offset."""
    return struct.pack(">q", offset) + batch_of(size)[8:]


PADDING = b"\0" * (-len(batch_of(100)) % 8)


def wait_until(condition):
    wait_for("the journal to get there", condition, 10, 0.001)


@pytest.fixture
def owner():
    owner = testing.TestOwner(TOPIC, 7)
    yield owner
    assert owner.refs == 0, "a reference to an owner leaked"


@pytest.fixture
def open_journal(tmp_path, owner):
    opened = []

    def opener(**settings):
        journal = testing.TestJournal(str(tmp_path), **settings)
        opened.append(journal)
        return journal

    yield opener
    for journal in opened:
        journal.close(unlink_files=False)


def crash_copy(tmp_path, name="crashed"):
    """The log directory as another process would find it now."""
    target = tmp_path.parent / f"{tmp_path.name}-{name}"
    shutil.copytree(tmp_path, target)
    return target


def test_what_was_committed_is_durable_and_read_back_in_order(tmp_path, owner, open_journal):
    journal = open_journal()
    batches = [batch_at(i, 10 + i) for i in range(200)]
    for i, batch in enumerate(batches):
        journal.append(owner, batch, i + 1)
    wait_until(lambda: owner.durable == len(batches))
    entries = journal_reader.entries(str(tmp_path))
    assert [e.batch for e in entries] == batches
    assert [e.base_offset for e in entries] == list(range(200))
    assert {(e.topic_id, e.partition) for e in entries} == {(TOPIC, 7)}
    assert journal.groups_written < len(batches), "no group held more than one batch"


def test_without_demand_the_interval_bounds_the_wait(owner, open_journal):
    journal = open_journal(interval_ms=30)
    began = time.monotonic()
    journal.append(owner, batch_at(0), 1, demand=False)
    wait_until(lambda: owner.durable == 1)
    assert time.monotonic() - began >= 0.02


@pytest.mark.parametrize("demand", [False, True])
@pytest.mark.parametrize("pause_ms", [0, 2, 5, 8, 30])
def test_the_first_batch_after_a_pause_is_written_in_time(owner, open_journal, demand, pause_ms):
    """Whether the flusher has just gone to sleep, or sleeps until it is woken."""
    journal = open_journal(interval_ms=5)
    for offset in range(20):
        begun = time.monotonic()
        journal.append(owner, batch_at(offset), offset + 1, demand=demand)
        wait_until(lambda end=offset + 1: owner.durable == end)
        assert time.monotonic() - begun < 5
        until = time.monotonic() + pause_ms / 1000
        wait_until(lambda until=until: time.monotonic() >= until)


def test_a_group_of_many_owners_tells_each(owner, open_journal):
    owners = [testing.TestOwner(TOPIC, partition) for partition in range(300)]
    journal = open_journal(interval_ms=2)
    for end in range(1, 6):
        for one in owners:
            journal.append(one, batch_at(end - 1), end, demand=end % 2 == 0)
    wait_until(lambda: all(one.durable == 5 for one in owners))
    journal.close(unlink_files=True)
    assert not any(one.refs for one in owners)


def test_the_checkpointer_is_woken_once_a_file(owner, open_journal):
    """Not with every group of the second half of a file, while there is a spare one."""
    journal = open_journal(group_bytes=64 * KIB, file_bytes=4096 * KIB, bytes_max=16384 * KIB)
    offset = 0
    while journal.files_count < 2:
        journal.append(owner, batch_at(offset), offset + 1)
        offset += 1
        wait_until(lambda end=offset: owner.durable == end)
    before = journal.groups_written
    (checkpointer,) = [one for one in threads() if one[1] == "kbroker-chkpt"]
    woken = switches(checkpointer[0])
    while journal.groups_written < before + 200:
        journal.append(owner, batch_at(offset), offset + 1)
        offset += 1
        wait_until(lambda end=offset: owner.durable == end)
    assert journal.files_count == 2
    assert switches(checkpointer[0]) - woken < 20


def threads():
    """(id, name) of this process's threads; some may end while they are looked at."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append((task.name, (task / "comm").read_text().strip()))
    return found


def switches(thread):
    """How often a thread has gone to sleep."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_files_are_used_in_turn_and_freed_after_a_sync(tmp_path, owner, open_journal):
    journal = open_journal(group_bytes=256 * KIB, file_bytes=KIB * KIB, bytes_max=4 * KIB * KIB)
    for i in range(400):
        journal.append(owner, batch_at(i, 64 * KIB), i + 1)
    wait_until(lambda: owner.durable == 400)
    assert owner.syncs > 0
    files = list(tmp_path.glob(".kbroker-journal.*"))
    assert sum(f.stat().st_size for f in files) <= 4 * KIB * KIB
    entries = journal_reader.entries(str(tmp_path))
    assert entries[-1].end_offset == 400
    offsets = [e.base_offset for e in entries]
    assert offsets == list(range(offsets[0], 400)), "a gap between files"


def test_a_batch_larger_than_a_group_syncs_its_segment_instead(tmp_path, owner, open_journal):
    journal = open_journal(group_bytes=64 * KIB)
    journal.append(owner, batch_at(0), 1)
    journal.append(owner, batch_at(1, 100 * KIB), 2)
    journal.append(owner, batch_at(2), 3)
    wait_until(lambda: owner.durable == 3)
    assert owner.syncs >= 1
    assert [e.base_offset for e in journal_reader.entries(str(tmp_path))] == [0, 2]


def test_a_full_buffer_stalls_and_takes_more_after_the_group(owner, open_journal):
    journal = open_journal(group_bytes=64 * KIB, interval_ms=100_000)
    offset = 0
    while journal.append(owner, batch_at(offset, 10 * KIB), offset + 1, wait=False, demand=False):
        offset += 1
        assert offset < 1000, "never full"
    assert offset >= 5
    wait_until(lambda: owner.durable == offset)
    assert journal.append(owner, batch_at(offset, 10 * KIB), offset + 1, wait=False)


def test_a_cancelled_reservation_leaves_its_room(owner, open_journal):
    journal = open_journal(group_bytes=64 * KIB)
    for _ in range(100):
        assert journal.reserve_and_cancel(owner, 60 * KIB) == 0


def test_who_waits_for_room_that_is_there_by_now_goes_on(owner, open_journal):
    """The full group was written between the refusal and the wait: nobody tells of an empty one."""
    journal = open_journal(group_bytes=64 * KIB, interval_ms=100_000)
    journal.append(owner, batch_at(0, 10 * KIB), 1)
    wait_until(lambda: owner.durable == 1)
    journal.wait_room()


def test_the_largest_that_a_group_cannot_hold_as_a_whole_has_room(open_journal):
    """It goes into several: of an empty group its header takes some bytes."""
    journal = open_journal(group_bytes=64 * KIB)
    for size in (64 * KIB - 64, 64 * KIB - 63, 64 * KIB, 64 * KIB + 1):
        assert journal.has_room(size), size


def test_a_failed_sync_is_final(owner, open_journal):
    journal = open_journal(group_bytes=64 * KIB)
    owner.fail_syncs(errno.EIO)
    journal.append(owner, batch_at(0, 100 * KIB), 1)
    wait_until(lambda: owner.failures == 1)
    offsets = itertools.count(1)

    def refused():
        offset = next(offsets)
        try:
            return not journal.append(owner, batch_at(offset), offset + 1)
        except OSError:
            return True

    wait_until(refused)
    assert owner.durable == 0


def test_a_sync_that_is_put_off_is_tried_until_it_is_done(owner, open_journal):
    journal = open_journal(group_bytes=64 * KIB)
    owner.fail_syncs(errno.EAGAIN)
    began = time.monotonic()
    journal.append(owner, batch_at(0, 100 * KIB), 1)
    wait_until(lambda: owner.syncs >= 4)
    assert time.monotonic() - began >= 0.2, "no pause between the tries"
    assert (owner.durable, owner.failures) == (0, 0)
    owner.fail_syncs(0)
    wait_until(lambda: owner.durable == 1)
    journal.append(owner, batch_at(1), 2)
    wait_until(lambda: owner.durable == 2)


def put_off_a_file(owner, journal):
    """30 batches, and a full file whose owner cannot be synced."""
    owner.fail_syncs(errno.EAGAIN)
    for i in range(30):
        journal.append(owner, batch_at(i, 64 * KIB), i + 1)
    wait_until(lambda: owner.syncs >= 3 and owner.durable == 30)


FILES = {"group_bytes": 256 * KIB, "file_bytes": KIB * KIB, "bytes_max": 4 * KIB * KIB}


def test_a_file_is_freed_once_a_sync_that_was_put_off_is_done(tmp_path, owner, open_journal):
    journal = open_journal(**FILES)
    put_off_a_file(owner, journal)
    owner.fail_syncs(0)
    for i in range(30, 200):
        journal.append(owner, batch_at(i, 64 * KIB), i + 1)
    wait_until(lambda: owner.durable == 200)
    assert owner.failures == 0
    files = list(tmp_path.glob(".kbroker-journal.*"))
    assert sum(f.stat().st_size for f in files) <= 4 * KIB * KIB


def test_a_stop_does_not_wait_for_ever_for_a_sync_that_is_put_off(owner, open_journal):
    """Whoever waits for it is told that it failed; for a file nobody waits."""
    journal = open_journal(**FILES)
    put_off_a_file(owner, journal)
    began = time.monotonic()
    journal.close(unlink_files=False)
    assert time.monotonic() - began < 2
    assert (owner.durable, owner.failures) == (30, 0)
    journal = open_journal(group_bytes=64 * KIB)
    journal.append(owner, batch_at(30, 100 * KIB), 31)
    began = time.monotonic()
    journal.close(unlink_files=False)
    assert 1 < time.monotonic() - began < 30
    assert (owner.durable, owner.failures) == (30, 1)


@pytest.fixture
def two_groups(tmp_path, owner, open_journal):
    """A journal of two groups: offsets 0 to 4 and 5 to 9; and where the second one begins."""
    journal = open_journal(interval_ms=100_000, group_bytes=32 * KIB, file_bytes=64 * KIB)
    for first in (0, 5):
        for i in range(first, first + 5):
            journal.append(owner, batch_at(i), i + 1, demand=i == first + 4)
        wait_until(lambda first=first: owner.durable == first + 5)
    wait_until(lambda: journal.groups_written == 2)  # counted when owners have been told
    return tmp_path / ".kbroker-journal.0", 2 * BLOCK


def offsets_in(directory):
    return [e.base_offset for e in journal_reader.entries(str(directory))]


def test_a_group_torn_at_any_byte_gives_a_whole_prefix(two_groups, tmp_path):
    path, begin = two_groups
    whole = path.read_bytes()
    length = struct.unpack_from(">I", whole, begin + 24)[0]
    crashed = crash_copy(tmp_path)
    last_byte = begin + length - len(PADDING)
    for cut in range(begin, last_byte):
        (crashed / path.name).write_bytes(whole[:cut].ljust(len(whole), b"\xff"))
        found = offsets_in(crashed)
        assert found == list(range(len(found))) and 5 <= len(found) < 10, f"cut at {cut}"


def test_a_flipped_bit_ends_the_journal_before_it(two_groups, tmp_path):
    path, begin = two_groups
    whole = bytearray(path.read_bytes())
    length = struct.unpack_from(">I", whole, begin + 24)[0]
    crashed = crash_copy(tmp_path)
    seen = set()
    for at in range(begin, begin + length):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        (crashed / path.name).write_bytes(flipped)
        found = offsets_in(crashed)
        assert found == list(range(len(found))) and len(found) >= 5
        seen.add(len(found))
    assert seen == {5, 6, 7, 8, 9, 10}       # 10: padding between entries, which nobody reads


def test_old_groups_planted_where_the_next_would_begin_are_not_taken(two_groups, tmp_path):
    """Recycled blocks hold groups with good checksums; they must not continue the journal."""
    path, begin = two_groups
    whole = bytearray(path.read_bytes())
    crashed = crash_copy(tmp_path)
    planted = bytearray(whole)
    planted[begin + BLOCK : begin + 2 * BLOCK] = whole[begin : begin + BLOCK]   # the same again
    (crashed / path.name).write_bytes(planted)
    assert offsets_in(crashed) == list(range(10))
    planted[begin + BLOCK : begin + 2 * BLOCK] = whole[BLOCK : 2 * BLOCK]       # of an earlier lap
    (crashed / path.name).write_bytes(planted)
    assert offsets_in(crashed) == list(range(10))


def test_a_group_of_another_life_is_not_taken(two_groups, tmp_path, open_journal, owner):
    """Same sequence, same place, good checksums, but the salt of an earlier start."""
    path, begin = two_groups
    old = path.read_bytes()
    journal = open_journal(
        salt=2, interval_ms=100_000, group_bytes=32 * KIB, file_bytes=64 * KIB
    )
    journal.append(owner, batch_at(0), 1)
    wait_until(lambda: journal.groups_written == 1)
    new = bytearray(path.read_bytes())
    assert struct.unpack_from(">Q", old, begin + 16)[0] == 2, "the second group of the old life"
    new[begin : begin + BLOCK] = old[begin : begin + BLOCK]
    crashed = crash_copy(tmp_path)
    (crashed / path.name).write_bytes(new)
    assert offsets_in(crashed) == [0]


def test_the_canary_that_trusts_checksums_alone_is_fooled(two_groups):
    """What the salt and the sequence are for: the planted group's own checksum holds."""
    path, begin = two_groups
    whole = path.read_bytes()
    head = whole[begin : begin + 64]
    assert struct.unpack_from(">I", head, 4)[0] == crc32c(head[8:])


def test_a_stop_writes_what_is_left_and_unlinks(tmp_path, owner, open_journal):
    journal = open_journal(interval_ms=100_000)
    journal.append(owner, batch_at(0), 1, demand=False)
    journal.close(unlink_files=True)
    assert owner.durable == 1
    assert list(tmp_path.iterdir()) == []
