"""What a log takes of the disk, and what of it could go first. Any thread; takes the log's lock.

Who looks on waits a moment for that lock: a disk that hangs holds up who writes, with the lock of
the log that is written, and must not hold up those who are to tell of it.
"""
from libc.stdint cimport int64_t

from kbroker.ext.log_state cimport Log

# Bytes of segments and indexes, of retired ones that are not unlinked yet and of the one that a
# cleaning is writing too. Blocks that are prepared ahead do not count. Reads no file: the index of
# a segment that was not touched since the start is taken for as long as index.interval.bytes makes
# it. Of a log whose lock is not to be had, what was found last.
cdef int64_t log_disk_bytes(Log* log) noexcept nogil
