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


SMALL, ALL = 16 << 10, 32 << 20


def test_small_frames_of_strangers_are_always_taken_and_large_ones_share_a_bound():
    memory = RequestMemory(0, 0)
    size = 512 << 10
    taken = [memory.take_strange(size) for _ in range(ALL // size)]
    assert set(taken) == {size}
    assert memory.take_strange(SMALL + 1) == -1
    assert [memory.take_strange(SMALL) for _ in range(10_000)] == [0] * 10_000
    memory.give_strange(-1)
    memory.give_strange(0)
    assert memory.take_strange(SMALL + 1) == -1, "nothing was given back"
    memory.give_strange(taken.pop())
    assert memory.take_strange(SMALL + 1) == SMALL + 1
