"""Counts of live objects, in builds that count."""

import pytest

from kbroker.ext.debug import counts_objects, live_objects
from kbroker.ext.testing import Mutex


def locked() -> int:
    return live_objects()["locked mutex"]


@pytest.mark.skipif(not counts_objects(), reason="a build that counts nothing")
def test_locked_mutex_counts_as_live_object():
    before = locked()
    mutex = Mutex()
    mutex.lock()
    assert locked() == before + 1
    assert not mutex.try_lock()
    assert locked() == before + 1
    mutex.unlock()
    assert locked() == before
    assert mutex.try_lock()
    assert locked() == before + 1
    mutex.unlock()
    assert locked() == before
