"""What a LogError is to Python: DiskError, CorruptFileError, or ClientError with Kafka's code."""
from kbroker.ext.log_state cimport Log

cdef object failure(int code, str directory, int error)
# Raises that, for a code below LOG_OK.
cdef int check(Log* log, int code) except -1
