"""Readers of a log whose segments are replaced under them."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from kbroker.ext import records, testing_log
from kbroker.ext.cleaner import Cleaner, CleaningInterruptedError, Throttle, survey
from kbroker.ext.data_plane import DataPlane
from tests.reference.cleaner_history import (
    RETENTION_MS,
    START_MS,
    UNLIMITED,
    Clean,
    Data,
    End,
    History,
    Roll,
    read_committed,
)
from tests.support.logs import open_log, read_all
from tests.support.waits import wait_for

SETTINGS = {
    "cleanup_compact": 1,
    "cleanup_delete": 0,
    "delete_retention_ms": RETENTION_MS,
    "segment_bytes": 3000,
    "index_interval_bytes": 200,
    "file_delete_delay_ms": 0,
}
OK = 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def keyed(*rows):
    return records.build([(START_MS, key, value) for key, value in rows])


def clean(log, checkpoint=None, room=None):
    hands = Cleaner(
        Throttle(UNLIMITED), map_bytes=1 << 20, load_factor=0.9, io_bytes=4096, room=room
    )
    return hands.clean(log, survey(log, checkpoint, START_MS), START_MS)


def test_many_readers_while_it_is_cleaned_again_and_again(folder):
    """Offsets ascend, nothing is an error, and whoever reads from the start to the end meets every
    key, however often segments go away under it."""
    log = open_log(folder, **SETTINGS)
    history = History(log, folder)
    history.segment_bytes = SETTINGS["segment_bytes"]
    dice = random.Random(5)
    keys = [b"key-%d" % i for i in range(40)]
    faults: list[BaseException] = []
    done = threading.Event()
    turns = [0, 0, 0]

    def write() -> None:
        for _ in range(6):
            producer = dice.choice((-1, 1, 2))
            rows = [(dice.choice(keys), dice.randbytes(30), 1) for _ in range(4)]
            history.do(Data(rows, producer, dice.random() < 0.5))
            if producer > 0 and dice.random() < 0.7:
                history.do(End(producer, dice.random() < 0.5))
        log.roll()

    def read(number: int) -> None:
        try:
            while not done.is_set():
                seen = -1
                for one in records.read(read_all(log, 0, dice.choice((100, 700, 5000)))):
                    assert one.offset > seen, (one.offset, seen)
                    seen = one.offset
                found = read_committed(log, 600)
                assert set(found) == set(keys)
                turns[number] += 1
        except BaseException as error:
            faults.append(error)

    history.do(Data([(key, b"first", 1) for key in keys]))
    log.roll()
    readers = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(30):
            write()
            history.do(Clean(0))
            log.unlink_deleted()
        wait_for("every reader's turn", lambda: faults or min(turns) >= 3, 60)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not faults, faults[0]
    history.check()


def test_the_high_watermark_at_the_end_of_what_is_replaced(tmp_path, folder):
    """Appended and rolled before the disk had it: the watermark then stands at a segment's end."""
    log = open_log(folder, **SETTINGS)
    journal = testing_log.TestLogJournal(str(tmp_path), started=False)
    try:
        journal.attach(log)
        for i in range(3):
            assert testing_log.append(log, keyed((b"a", b"%d" % i)), 0, START_MS)[0] == OK
        log.roll()
        assert log.high_watermark == 0
        testing_log.advance_hw(log, 3)
        assert log.high_watermark == 3
        clean(log)
        assert log.read(3, 1000) == b""
        assert [one.offset for one in records.read(log.read(0, 1000))] == [2]
        assert testing_log.append(log, keyed((b"b", b"1")), 0, START_MS)[0] == OK
        assert log.read(3, 1000) == b""
        testing_log.advance_hw(log, 4)
        assert [one.offset for one in records.read(log.read(3, 1000))] == [3]
        assert [one.offset for one in records.read(read_all(log))] == [2, 3]
    finally:
        journal.stop()


def test_aborted_transactions_of_a_slice_taken_before_a_swap(folder):
    """The indexes of the segment that was replaced are another's by then."""
    log = open_log(folder, **SETTINGS)
    history = History(log, folder)
    for producer in (1, 2, 3):
        history.run([Data([(b"k%d" % producer, b"v", 1)], producer, True), Data([(b"x", b"y", 1)])])
        history.run([End(producer, False), Roll()])
    before = testing_log.read(log, 0, 10_000, 1, True)[5]
    assert before == [(1, 0)]
    history.do(Clean(0))
    assert (1, 0) in testing_log.read(log, 0, 10_000, 1, True)[5]
    history.check()


class TestLeftBehind:
    """What Apache Kafka leaves when it dies, a split of a segment included: several new ones."""

    def made(self, folder):
        log = open_log(folder, **SETTINGS)
        for i in range(4):
            log.append(keyed((b"%d" % i, b"v")), leader_epoch=0)
        log.roll()
        log.append(keyed((b"z", b"v")), leader_epoch=0)
        log.close()
        data = (folder / f"{0:020}.log").read_bytes()
        cuts = [one.position for one in records.batches(data)]
        return data[: cuts[2]], data[cuts[2] :], data

    def test_a_split_that_is_complete_is_completed(self, folder):
        low, high, _ = self.made(folder)
        (folder / f"{0:020}.log.swap").write_bytes(low)
        (folder / f"{2:020}.log.swap").write_bytes(high)
        log = open_log(folder, clean=False, **SETTINGS)
        assert [base for base, *_ in log.segments()] == [0, 2, 4]
        assert [one.offset for one in records.read(read_all(log))] == [0, 1, 2, 3, 4]

    def test_a_split_that_is_not_is_taken_back(self, folder):
        low, high, data = self.made(folder)
        (folder / f"{0:020}.log.cleaned").write_bytes(low)
        (folder / f"{2:020}.log.swap").write_bytes(high)
        log = open_log(folder, clean=False, **SETTINGS)
        assert [base for base, *_ in log.segments()] == [0, 4]
        assert (folder / f"{0:020}.log").read_bytes() == data
        assert not [one for one in folder.iterdir() if one.suffix in {".swap", ".cleaned"}]

    def test_indexes_that_have_not_lost_their_suffix_yet(self, folder):
        low, _, data = self.made(folder)
        index = (folder / f"{0:020}.index").read_bytes()
        (folder / f"{0:020}.index").rename(folder / f"{0:020}.index.swap")
        (folder / f"{0:020}.timeindex").rename(folder / f"{0:020}.timeindex.swap")
        (folder / f"{0:020}.log.deleted").write_bytes(low)
        log = open_log(folder, clean=False, recovery_point=5, **SETTINGS)
        assert (folder / f"{0:020}.index").read_bytes() == index
        assert (folder / f"{0:020}.log").read_bytes() == data
        assert log.log_end_offset == 5

    def test_nothing_of_the_old_segment_outlives_an_empty_one(self, folder):
        """A transaction index that tells of markers which are gone would hide what came later."""
        self.made(folder)
        (folder / f"{0:020}.txnindex").write_bytes(bytes(34))
        for kind in ("log", "index", "timeindex"):
            (folder / f"{0:020}.{kind}.swap").write_bytes(b"")
        log = open_log(folder, clean=False, recovery_point=5, **SETTINGS)
        assert not (folder / f"{0:020}.txnindex").exists()
        assert [one.offset for one in records.read(read_all(log))] == [4]


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made anew"])
def test_a_topic_that_is_deleted_in_the_middle(folder, again):
    """Nothing of the old topic's cleaning lands in a folder that a new one of its name has."""
    log = open_log(folder, **SETTINGS | {"segment_bytes": 1 << 20})
    for i in range(200):
        log.append(keyed((b"%d" % i, b"x" * 1000)), leader_epoch=0)
    log.roll()
    # Half a second for the first pass, so that the second one is met at work.
    hands = Cleaner(Throttle(400_000), map_bytes=1 << 20, load_factor=0.9, io_bytes=4096)
    told: list[BaseException] = []

    def run() -> None:
        try:
            hands.clean(log, survey(log, None, START_MS), START_MS)
        except CleaningInterruptedError as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for("the second pass", lambda: list(folder.glob("*.cleaned")), 20)
    log.mark_deleted()
    folder.rename(folder.with_name("topic-0.deleted"))
    if again:
        folder.mkdir()
    thread.join(20)
    assert len(told) == 1
    assert not folder.exists() or not list(folder.iterdir())


def test_what_is_being_written_counts_as_used(folder):
    """Once: as the cleaner's file, then as the segment that it became; not when given up."""
    settings = SETTINGS | {"segment_bytes": 1 << 21, "index_interval_bytes": 4096}
    log = open_log(folder, **settings)
    for i in range(1000):
        log.append(keyed((b"%d" % i, b"x" * 1000)), leader_epoch=0)
    log.roll()
    plane = DataPlane({})
    plane.add_topic("topic", bytes(16), [log], internal=False)
    log.flush()
    before = plane.disk_bytes()
    hands = Cleaner(Throttle(1_000_000), map_bytes=1 << 20, load_factor=0.9, io_bytes=4096)

    def run() -> None:
        with pytest.raises(CleaningInterruptedError):
            hands.clean(log, survey(log, None, START_MS), START_MS)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for("bytes of the cleaner", lambda: plane.disk_bytes() > before + 200_000, 20)
    assert not list(folder.glob("*.deleted"))
    hands.stop()
    thread.join(20)
    assert plane.disk_bytes() == before
    asked: list[int] = []
    clean(log, room=asked.append)
    log.unlink_deleted(at_once=True)
    assert asked == [log.size_bytes]
    assert abs(plane.disk_bytes() - before) < 50_000
    log.close()


def test_a_failure_to_ask_for_room_ends_the_cleaning(folder):
    log = open_log(folder, **SETTINGS)
    log.append(keyed((b"key", b"value")), leader_epoch=0)
    log.roll()

    def room(size):
        raise OSError(5, "EIO")

    with pytest.raises(OSError, match="EIO"):
        clean(log, room=room)
    assert not list(folder.glob("*.cleaned"))
    assert clean(log).segments_before == 1
    log.close()


def test_segments_that_retention_takes_meanwhile_are_no_disk_error(folder):
    """compact,delete: the cleaner holds them, their files closed, as after a start."""
    settings = SETTINGS | {"cleanup_delete": 1}
    log = open_log(folder, **settings)
    for i in range(12):
        log.append(keyed(*[(b"%d" % j, b"%d" % i) for j in range(5)]), leader_epoch=0)
        log.roll()
    log.close()
    log = open_log(folder, **settings)

    def retain(size):
        log.set_log_start_offset(30)
        log.delete_old_segments(START_MS)

    cleanable = survey(log, 30, START_MS)
    hands = Cleaner(
        Throttle(UNLIMITED), map_bytes=1 << 20, load_factor=0.9, io_bytes=4096, room=retain
    )
    with pytest.raises(CleaningInterruptedError):
        hands.clean(log, cleanable, START_MS)
    assert log.offline is None
    assert not list(folder.glob("*.cleaned"))
    assert clean(log).segments_before == 6
    assert [one.value for one in records.read(read_all(log))] == [b"11"] * 5
    log.close()
