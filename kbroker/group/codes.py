"""What errors of a log are to a coordinator's clients."""

from __future__ import annotations

import errno
from typing import Final

from kbroker.errors import DiskError, ErrorCode, code_of

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# What the coordinator answers in the place of an error of the log, as Apache Kafka does.
_TRANSLATED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_code(error: BaseException) -> ErrorCode:
    """The code with which a request fails that met this error.

    A full disk is retriable at this broker: the log stays as it is and takes the next append.
    """
    if isinstance(error, DiskError | OSError) and error.errno in _NO_ROOM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = code_of(error)
    return _TRANSLATED.get(code, code)
