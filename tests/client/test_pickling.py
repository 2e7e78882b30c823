"""Values of the client in pickle and copy: each type that an application may meet."""

from __future__ import annotations

import copy
import dataclasses
import enum
import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import pytest

import kbroker.client
from kbroker.client import errors
from kbroker.client.error_base import KafkaError
from kbroker.client.producer import OffsetRange, RecordMetadata
from kbroker.client.results import Results
from kbroker.errors import ErrorCode
from kbroker.ext.client_record import FetchedBatchError, Record, restored

#: An application gets none of them, or has written them itself: settings may hold functions.
INTERNAL = {
    "AdminConfig", "Check", "ClientConfig", "ConsumerConfig", "FinalFailure", "GroupSettings",
    "PassingFailure", "ProducerConfig", "Room", "Spec", "State",
}  # fmt: skip
MODULES = [
    *(one.name for one in pkgutil.walk_packages(kbroker.client.__path__, "kbroker.client.")),
    "kbroker.ext.client_record",
]


def public_classes() -> list[type[Any]]:
    found: dict[type[Any], None] = {RecordMetadata: None, OffsetRange: None}
    for name in MODULES:
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", ()):
            one = getattr(module, each)
            if inspect.isclass(one) and one.__name__ not in INTERNAL:
                found[one] = None
    return sorted(found, key=lambda one: (one.__module__, one.__qualname__))


CLASSES = public_classes()
TUPLES = [one for one in CLASSES if issubclass(one, tuple)]
DATACLASSES = [one for one in CLASSES if dataclasses.is_dataclass(one)]
ENUMS = [one for one in CLASSES if issubclass(one, enum.Enum)]
ERRORS = [one for one in CLASSES if issubclass(one, KafkaError)]


def trips(value: Any) -> list[Any]:
    return [
        *(pickle.loads(pickle.dumps(value, at)) for at in range(2, pickle.HIGHEST_PROTOCOL + 1)),
        copy.copy(value),
        copy.deepcopy(value),
    ]


def is_importable(one: type[Any]) -> bool:
    return getattr(importlib.import_module(one.__module__), one.__name__) is one


@pytest.mark.parametrize("kind", TUPLES + DATACLASSES, ids=lambda one: one.__name__)
def test_values_come_through(kind: type[Any]) -> None:
    assert is_importable(kind)
    if issubclass(kind, tuple):
        value = kind(*range(len(kind._fields)))  # type: ignore[attr-defined]
    else:
        value = object.__new__(kind)
        for at, field in enumerate(dataclasses.fields(kind)):
            object.__setattr__(value, field.name, at)
    for other in trips(value):
        assert type(other) is kind and other == value


@pytest.mark.parametrize("kind", ENUMS, ids=lambda one: one.__name__)
def test_enums_come_through(kind: type[enum.Enum]) -> None:
    for member in kind:
        assert all(other is member for other in trips(member))


def made(kind: type[KafkaError]) -> KafkaError:
    if issubclass(kind, errors.BrokerError):
        code = kind.code if isinstance(getattr(kind, "code", None), int) else 32_000
        return errors.BrokerError(code, "topic 't'", "why")
    if kind is errors.DeserializationError:
        return errors.DeserializationError("why", "t", 1, 2)
    if kind is errors.LogTruncationError:
        return errors.LogTruncationError("why", 7)
    return kind("why")


@pytest.mark.parametrize("kind", ERRORS, ids=lambda one: one.__name__)
def test_errors_come_through(kind: type[KafkaError]) -> None:
    """With all attributes, notes and what was changed of them."""
    error = made(kind)
    error.retriable = not error.retriable
    error.add_note("said later")
    assert isinstance(error, kind) and is_importable(type(error))
    for other in trips(error):
        assert type(other) is type(error)
        assert str(other) == str(error) and other.args == error.args
        assert vars(other) == vars(error)


def test_errors_come_through_without_the_future_of_records() -> None:
    error = KafkaError("why")
    error.delivery = lambda: None  # type: ignore[attr-defined]
    assert str(pickle.loads(pickle.dumps(error))) == "why"


def test_each_code_has_an_error_that_comes_through() -> None:
    for code in ErrorCode:
        if code != ErrorCode.NONE:
            error = errors.BrokerError(int(code))
            assert all(type(other) is type(error) for other in trips(error))


def test_records_and_results_come_through() -> None:
    record = restored("t", 1, 2, 3, b"key", b"value", (("h", b"x"),), 4, True)
    for other in trips(record):
        assert isinstance(other, Record) and repr(other) == repr(record)
        assert (other.leader_epoch, other.timestamp_type) == (4, record.timestamp_type)
    bad = FetchedBatchError(-1, "t", 1, 2)
    for other in trips(bad):
        assert (str(other), other.offset) == (str(bad), 2)
    results = Results({"a": 1, "b": KafkaError("why")})
    for other in trips(results):
        assert type(other) is Results and other["a"] == 1 and list(other) == ["a", "b"]
    for other in trips(RecordMetadata("t", 1, 2, 3, 4, 5)):
        assert type(other) is RecordMetadata and other.offset == 2
