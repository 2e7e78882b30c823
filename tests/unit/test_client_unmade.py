"""Objects that only the library makes, and what a producer knows of topics that nobody uses."""

from __future__ import annotations

import copy
import pickle

import pytest

from kbroker.client import Columns, Delivery, Record
from kbroker.ext.client_columns import BinaryColumn, HeaderColumn
from kbroker.ext.client_delivery import BatchDelivery
from kbroker.ext.client_record import restored

KINDS = (Record, Delivery, BatchDelivery, Columns, BinaryColumn, HeaderColumn)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_not_made_by_hand(kind: type) -> None:
    for make in (kind, lambda: kind.__new__(kind), lambda: object.__new__(kind)):
        with pytest.raises(TypeError):
            make()


def test_a_record_is_copied_and_pickled_all_the_same() -> None:
    record = restored("t", 1, 2, 3, b"key", None, (("name", b""),))
    for other in (copy.copy(record), pickle.loads(pickle.dumps(record))):
        assert repr(other) == repr(record)
