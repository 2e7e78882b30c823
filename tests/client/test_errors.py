"""One class for each error code, and what a program can ask of them."""

from __future__ import annotations

import pickle
import re

import pytest

from kbroker.client import errors
from kbroker.client.errors import BrokerError, KafkaError, check
from kbroker.errors import ErrorCode
from tests.support import error_classes
from tests.support.error_classes import class_name
from tests.support.tree import ROOT

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


def test_the_classes_are_as_the_generator_writes_them():
    assert error_classes.TARGET.read_text() == error_classes.source()


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_each_code_raises_its_own_class(code):
    kind = getattr(errors, class_name(code))
    with pytest.raises(kind) as told:
        check(int(code), "topic 'x'", "because")
    assert type(told.value) is kind
    assert (told.value.code, told.value.name) == (int(code), code.name)
    assert told.value.retriable == kind.retriable == code.retriable
    again = pickle.loads(pickle.dumps(told.value))
    assert (type(again), str(again)) == (kind, str(told.value))


def test_a_code_of_the_future_is_a_plain_error():
    error = BrokerError(9999, "topic 'x'")
    assert type(error) is BrokerError
    assert str(error) == "topic 'x' (error code 9999)"
    assert not error.retriable and not error.fatal
    assert pickle.loads(pickle.dumps(error)).code == 9999


def test_kinds():
    from kbroker.client.errors import (
        AuthenticationError,
        AuthorizationError,
        InvalidTxnStateError,
        NotLeaderOrFollowerError,
        ProducerFencedError,
        SaslAuthenticationFailedError,
        TopicAuthorizationFailedError,
    )

    assert issubclass(SaslAuthenticationFailedError, AuthenticationError)
    assert issubclass(TopicAuthorizationFailedError, AuthorizationError)
    assert ProducerFencedError.fatal and not TopicAuthorizationFailedError.fatal
    assert InvalidTxnStateError.fatal  # as the Java producer takes it
    assert NotLeaderOrFollowerError.stale_metadata
    with pytest.raises(ImportError):
        from kbroker.client.errors import NoSuchError  # noqa: F401


def test_errors_of_the_client_are_in_the_same_tree():
    for name in vars(errors):
        if name.endswith("Error"):
            assert issubclass(getattr(errors, name), KafkaError), name
    assert KafkaError.code is None


def test_the_public_names_are_there():
    from kbroker import client

    for name in client.__all__:
        assert getattr(client, name).__name__ == name
    with pytest.raises(AttributeError):
        client.NoSuchName  # noqa: B018


def test_there_is_one_tree_of_errors():
    """A class of the same name beside the tree would slip through `except`."""
    rooms = (path for path in (ROOT / "kbroker" / "client").rglob("*.py"))
    beside = [
        (path.name, found[1])
        for path in rooms
        if path.name not in ("errors.py", "error_base.py")
        for found in re.finditer(r"^class ([A-Z]\w*Error)\b", path.read_text(), re.MULTILINE)
    ]
    assert not beside, "move them to error_base.py"
