"""LogErrors as exceptions (see log_errors.pxd)."""
import os

from libc.errno cimport ELOOP

from kbroker.errors import ClientError, CorruptFileError, DiskError, ErrorCode

from kbroker.ext.log_state cimport (
    LOG_CLOSED,
    LOG_CORRUPT,
    LOG_COORDINATOR_FENCED,
    LOG_HELD,
    LOG_INVALID_PRODUCER_EPOCH,
    LOG_INVALID_TXN_STATE,
    LOG_MOVING,
    LOG_NO_MEMORY,
    LOG_OFFSET_OUT_OF_RANGE,
    LOG_OUT_OF_ORDER_SEQUENCE,
    LOG_TOO_LARGE,
)
from kbroker.ext.posix cimport ENOSPC

# Errors that a caller's argument or batch brings about.
_CLIENT_ERRORS = {
    LOG_OFFSET_OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
    LOG_TOO_LARGE: ErrorCode.RECORD_LIST_TOO_LARGE,
    LOG_INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    LOG_OUT_OF_ORDER_SEQUENCE: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    LOG_INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
    LOG_COORDINATOR_FENCED: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    LOG_MOVING: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    LOG_HELD: ErrorCode.KAFKA_STORAGE_ERROR,
}


cdef object failure(int code, str directory, int error):
    """The exception that a LogError becomes."""
    if code in _CLIENT_ERRORS:
        return ClientError(_CLIENT_ERRORS[code])
    if code == LOG_NO_MEMORY:
        return MemoryError()
    if code == LOG_CLOSED:
        return DiskError(directory, "the log is closed")
    if code == LOG_CORRUPT:
        return CorruptFileError(directory, "the log does not hold what was written")
    if error == ELOOP:
        return DiskError(directory, "a file in it is a symbolic link, which the broker refuses: "
                                    "replace it by the file that it leads to")
    if error:
        return DiskError(directory, OSError(error, os.strerror(error)))
    return DiskError(directory, OSError(ENOSPC, "no room, or no file descriptor, left"))


cdef int check(Log* log, int code) except -1:
    if code < 0:
        raise failure(code, os.fsdecode(log.dir), log.error_errno)
    return 0
