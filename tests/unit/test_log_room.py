"""An append of the control plane while the disk hangs: the journal has no room and gets none."""

from __future__ import annotations

import time

import pytest

from kbroker.errors import ClientError, ErrorCode, LateError
from kbroker.ext import testing_log
from tests.support.logs import batch, open_log
from tests.support.waits import wait_for


def test_the_wait_for_room_ends(tmp_path):
    journal = testing_log.TestLogJournal(str(tmp_path), started=False, group_bytes=1 << 20)
    log = open_log(tmp_path / "topic-0")
    journal.attach(log)
    data = batch(200)
    try:
        with pytest.raises(LateError) as caught:
            while True:
                began = time.monotonic()
                log.append(data, leader_epoch=0, room_wait_ms=100)
        append = caught.value.append
        wait_for("the append", lambda: append.done, 10, 0.001)
        with pytest.raises(ClientError) as refused:
            append.result()
        assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert 0.1 <= time.monotonic() - began < 10
        end = log.log_end_offset
        assert end and end % 200 == 0
        began = time.monotonic()
        with pytest.raises(ClientError):
            log.append(data, leader_epoch=0, room_wait_ms=0)
        assert time.monotonic() - began < 0.1
        assert log.log_end_offset == end and log.offline is None
    finally:
        log.close(clean=False, sync=False)
        journal.stop()
