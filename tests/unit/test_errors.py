import errno

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from kbroker.errors import (
    BugError,
    ClientError,
    CorruptFileError,
    DiskError,
    ErrorCode,
    OperatorError,
    code_of,
)


def test_codes_names_and_retriability_are_those_of_kio():
    ours = {code.name: (int(code), code.retriable) for code in ErrorCode}
    theirs = {code.name.upper(): (int(code), code.retriable) for code in KioErrorCode}
    assert {name: ours.get(name) for name in theirs} == theirs


def test_codes_have_no_hole():
    assert sorted(ErrorCode) == list(range(-1, 134))


def test_every_code_has_a_message_of_its_own():
    messages = [code.message for code in ErrorCode]
    assert len(set(messages)) == len(messages)
    assert all(message.endswith(".") for message in messages)


def test_client_error_carries_its_code_and_message():
    error = ClientError(ErrorCode.INVALID_PARTITIONS)
    assert (code_of(error), str(error)) == (37, ErrorCode.INVALID_PARTITIONS.message)
    assert str(ClientError(ErrorCode.INVALID_CONFIG, "no such key")) == "no such key"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BugError("impossible"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (DiskError("/d", OSError(errno.ENOSPC, "full")), ErrorCode.KAFKA_STORAGE_ERROR),
        (CorruptFileError("/d", "nonsense"), ErrorCode.KAFKA_STORAGE_ERROR),
        (OperatorError("say --data-dir"), ErrorCode.INVALID_CONFIG),
        (TimeoutError(), ErrorCode.REQUEST_TIMED_OUT),
        (OSError(errno.EIO, "bad"), ErrorCode.KAFKA_STORAGE_ERROR),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_code_of(error, code):
    assert code_of(error) is code


def test_disk_error_names_path_and_reason():
    error = DiskError("/data/log", OSError(errno.ENOSPC, "No space left on device"))
    assert str(error) == "/data/log: No space left on device"
    assert error.errno == errno.ENOSPC
