import threading

import pytest

testing = pytest.importorskip("kbroker.ext.testing", reason="built without KBROKER_TEST=1")


def test_exchange_and_compare_and_swap():
    number = testing.AtomicNumber()
    number.store(5)
    assert number.exchange(-7) == 5
    assert number.cas(5, 1) == (False, -7)
    assert number.cas(-7, 1) == (True, -7)
    assert number.load() == 1


def test_adds_of_threads_that_meet_are_all_there():
    number, times = testing.AtomicNumber(), 200_000
    threads = [threading.Thread(target=number.add_times, args=(d, times)) for d in (3, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert number.load() == 2 * times
