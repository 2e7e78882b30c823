"""A flush lets go of the log while it syncs, and opens files by name: what may come between."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.support.native import shared_library
from tests.support.nth_call import run_with


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return shared_library("nth_call", tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize(("code", "offline"), [(0, None), (errno.EIO, "Input/output error")])
def test_a_log_deleted_under_its_sync_is_no_disk_error(folder, shim, code, offline):
    """Its folder is renamed while the segment is synced, so that the rest is not found by name;
    a sync that fails is one of the disk all the same."""
    run_with(shim, folder, f"""
        from threading import Thread
        from kbroker.ext.log_state import logs_taken_offline
        from tests.support.waits import wait_for

        def flush():
            try:
                log.flush()
            except DiskError as error:
                told.append(error)

        log, told = open_log(folder), []
        log.append(batch(), leader_epoch=0)
        hold(FDATASYNC, b"")
        fail(FDATASYNC, 0 if {code} else -1, {code})
        syncing = Thread(target=flush, daemon=True)
        syncing.start()
        wait_for("the segment is being synced", lambda: held(FDATASYNC), 30)
        log.mark_deleted()
        folder.rename(folder.with_name("old"))
        hold(FDATASYNC, None)
        syncing.join()
        assert len(told) == 1
        assert log.offline == {offline!r}, log.offline
        assert logs_taken_offline() == {int(code != 0)}
    """)  # fmt: skip


def test_a_log_deleted_under_its_sync_leaves_the_next_of_its_name_alone(folder, shim):
    run_with(shim, folder, """
        from contextlib import suppress
        from threading import Thread
        from tests.support.waits import wait_for

        def flush():
            with suppress(DiskError):
                log.flush()

        log = open_log(folder)
        log.append(batch(5), leader_epoch=3)
        hold(FDATASYNC, b"")
        syncing = Thread(target=flush, daemon=True)
        syncing.start()
        wait_for("the segment is being synced", lambda: held(FDATASYNC), 30)
        log.mark_deleted()
        folder.rename(folder.with_name("old"))
        other = open_log(folder)
        other.append(batch(2), leader_epoch=7)
        hold(FDATASYNC, None)
        syncing.join()
        checkpoint = folder / "leader-epoch-checkpoint"
        assert not checkpoint.exists(), checkpoint.read_text()
        assert log.offline is None
        assert other.flush() == 2
        assert checkpoint.read_text() == "0\\n1\\n7 0\\n"
    """)  # fmt: skip


def test_a_segment_that_retention_takes_under_its_sync_is_no_disk_error(folder, shim):
    """Its file is closed and its index due; the sync opens it by name, while the retirement is
    half way: that file renamed, the next ones not."""
    run_with(shim, folder, """
        from threading import Thread
        from tests.support.waits import wait_for

        log = open_log(folder, index_interval_bytes=500)
        for i in range(6):
            log.append(batch(1, 1000, i), leader_epoch=0)
        log.flush()
        log.roll()
        for now_ms in (1 << 50, 1 << 51):
            log.let_go(now_ms, 0)
        log.append(batch(), leader_epoch=0)
        log.set_log_start_offset(6)
        hold(OPEN, b"/00000000000000000000.log")
        hold(RENAME, b"/00000000000000000000.index")
        flush = Thread(target=lambda: told.append(log.flush()), daemon=True)
        retention = Thread(target=lambda: told.append(log.delete_old_segments(0)), daemon=True)
        told = []
        flush.start()
        wait_for("the flush has the segment in hand", lambda: held(OPEN), 30)
        retention.start()
        wait_for("its file has another name", lambda: held(RENAME), 30)
        before = synced()
        hold(OPEN, None)
        wait_for("the flush goes on", lambda: synced() > before, 10)
        hold(RENAME, None)
        flush.join()
        retention.join()
        assert log.offline is None
        assert told == [[0], 7] or told == [7, [0]], told
    """)  # fmt: skip


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_flush_that_finds_no_descriptor_is_put_off(folder, shim, code):
    """Whichever open fails: nothing is lost, nothing told, and the next one syncs it all."""
    told = run_with(shim, folder, f"""
        import itertools
        again = set()
        for n in itertools.count():
            here = folder / str(n) / "topic-0"
            here.parent.mkdir(parents=True)
            log = open_log(here, index_interval_bytes=500)
            for i in range(6):
                log.append(batch(1, 1000, i), leader_epoch=i // 5)
                if i == 3:
                    log.roll()
            fail(OPEN, n, {code})
            before = synced()
            try:
                end = log.flush()
            except (DiskError, MemoryError):
                before = end = None
            assert log.offline is None
            if not failed():
                whole = synced() - before
                break
            assert end in (None, 0) and log.recovery_point == 0
            assert log.flush_due(1 << 50, 0)
            before = synced()
            assert log.flush() == 6 and not log.flush_due(1 << 50, 0)
            if end is None:
                again.add(synced() - before)
            checkpoint = here / "leader-epoch-checkpoint"
            assert checkpoint.read_text() == "0\\n2\\n0 0\\n1 5\\n"
        assert again == {{whole}}, (again, whole)
        print(n)
    """)  # fmt: skip
    assert int(told) >= 5


def test_what_was_not_flushed_is_no_duplicate_either(folder, shim):
    """flush.messages: a producer that was refused sends again, and is not told before the
    flush, though the batch is there."""
    run_with(shim, folder, f"""
        from kbroker.ext import testing_log
        CLIENT, STORAGE_ERROR, DUPLICATE = 0, -5, 2
        log = open_log(folder, flush_messages=1)
        log.append(batch(), leader_epoch=0)
        log.leader_epoch = 1
        data = batch(1, 100, 1000, producer_id=1, producer_epoch=0, base_sequence=0)
        for _ in range(2):
            fail(OPEN, 0, {errno.EMFILE})
            assert testing_log.append(log, data, CLIENT, 1000)[0] == STORAGE_ERROR
            assert (log.recovery_point, log.log_end_offset, log.offline) == (1, 2, None)
        assert testing_log.append(log, data, CLIENT, 1000)[0] == DUPLICATE
        assert log.recovery_point == log.log_end_offset == 2
    """)  # fmt: skip


def test_a_sync_for_want_of_memory_has_failed(folder, shim):
    """What it did not write the kernel may have dropped, unlike a file that was not opened."""
    run_with(shim, folder, f"""
        log = open_log(folder)
        log.append(batch(), leader_epoch=0)
        fail(FDATASYNC, 0, {errno.ENOMEM})
        try:
            log.flush()
            sys.exit("flushed")
        except DiskError:
            pass
        assert log.offline == "Input/output error", log.offline
    """)  # fmt: skip
