"""Reservation and buffers of request memory."""

import pytest

from kbroker.ext.testing import RequestMemory


def test_reserves_while_anything_is_left():
    memory = RequestMemory(1000, 0)
    assert memory.reserve(999)
    assert memory.reserve(5000)
    assert not memory.reserve(1)
    memory.release(5000)
    assert memory.reserve(2)
    assert not memory.reserve(1)


def test_no_bound_reserves_always():
    memory = RequestMemory(-1, 0)
    assert all(memory.reserve(1 << 40) for _ in range(10))


@pytest.mark.parametrize(
    "size", [0, 1, 64, 4096, 4097, 8192, 8193, 100_000, 1 << 20, (1 << 20) + 1]
)
def test_buffers_hold_what_was_asked_for(size):
    memory = RequestMemory(-1, 1 << 20)
    _, capacity = memory.alloc(size)
    assert size <= capacity <= max(64, 2 * size)


def test_hot_buffers_come_back_up_to_the_bound():
    memory = RequestMemory(-1, 3 << 16)
    buffers = [memory.alloc(1 << 16)[0] for _ in range(5)]
    for buffer in buffers:
        memory.give_back(buffer)
    assert memory.cached_bytes() == 3 << 16
    assert memory.alloc(40_000)[0] == buffers[2]
    assert memory.cached_bytes() == 2 << 16


def test_too_large_is_an_error():
    memory = RequestMemory(-1, 0)
    with pytest.raises(MemoryError):
        memory.alloc((256 << 20) + 1)
