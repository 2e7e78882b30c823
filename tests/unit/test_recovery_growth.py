"""Recovery takes time in proportion to the bytes of a log, whatever clients have put into it."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.ext import testing_log
from tests.support.logs import batch, marker, open_log

TRANSACTIONS = 150_000
#: Of processor time. It takes 0.1 s; when each end of a transaction walked a list, 20 s.
SECONDS_MAX = 2.0


def data(producer_id: int) -> bytes:
    return batch(1, 10, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                 transactional=True)  # fmt: skip


def transactions(*, commit: bool, producers: int = 1) -> Iterator[bytes]:
    begin = [data(number) for number in range(producers)]
    end = [marker(number, 0, commit=commit) for number in range(producers)]
    for _ in range(TRANSACTIONS // producers):
        yield from begin
        yield from end


def beside_an_open_one(*, commit: bool) -> Iterator[bytes]:
    yield data(99)
    yield from transactions(commit=commit)


def open_all_at_once() -> Iterator[bytes]:
    """The last one that began ends first."""
    count = TRANSACTIONS // 10
    for number in range(count):
        yield data(number)
    for number in reversed(range(count)):
        yield marker(number, 0, commit=number % 2 == 0)


def idempotent() -> Iterator[bytes]:
    for number in range(TRANSACTIONS // 10):
        yield batch(1, 10, producer_id=number, producer_epoch=0, base_sequence=0)


def plain() -> Iterator[bytes]:
    for _ in range(TRANSACTIONS):
        yield batch(1, 10)


CONTENTS: dict[str, Callable[[], Iterator[bytes]]] = {
    "committed": lambda: transactions(commit=True),
    "aborted": lambda: transactions(commit=False),
    "six producers": lambda: transactions(commit=True, producers=6),
    "beside an open one": lambda: beside_an_open_one(commit=True),
    "aborted beside an open one": lambda: beside_an_open_one(commit=False),
    "open all at once": open_all_at_once,
    "idempotent producers": idempotent,
    "batches of one record": plain,
}


def write_segment(folder: Path, batches: Iterator[bytes]) -> int:
    """Batches of one record each as one segment; the offset behind the last."""
    folder.mkdir()
    placed = [struct.pack(">q", offset) + one[8:] for offset, one in enumerate(batches)]
    (folder / f"{0:020}.log").write_bytes(b"".join(placed))
    return len(placed)


@pytest.mark.parametrize("name", CONTENTS)
def test_recovery_of_many_batches_is_in_time(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "topic-0"
    end = write_segment(folder, CONTENTS[name]())
    began = time.thread_time()
    log = open_log(folder, clean=False)
    taken = time.thread_time() - began
    assert log.log_end_offset == end
    log.close(clean=False)
    assert taken < SECONDS_MAX


def test_appends_beside_an_open_transaction_are_in_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0")
    testing_log.append(log, data(99), 2, 0)
    begin, end = data(1), marker(1, 0, commit=True)
    began = time.thread_time()
    for _ in range(TRANSACTIONS // 10):
        testing_log.append(log, begin, 2, 0)
        testing_log.append(log, end, 2, 0)
    taken = time.thread_time() - began
    log.close(clean=False)
    assert taken < SECONDS_MAX


def test_aborted_transactions_of_a_read_are_found_in_time(tmp_path: Path) -> None:
    """A read of a few batches near the end does not go through all that were aborted before."""
    folder = tmp_path / "topic-0"
    end = write_segment(folder, transactions(commit=False))
    log = open_log(folder, clean=False)
    began = time.thread_time()
    for offset in range(end - 2000, end, 2):
        aborted = testing_log.read(log, offset, 300, 1, True)[5]
        assert aborted[0] == (0, offset) and len(aborted) < 100
    taken = time.thread_time() - began
    log.close(clean=False)
    assert taken < SECONDS_MAX
