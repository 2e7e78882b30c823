"""Appends of the control plane, which waits for no disk.

Each log directory has a thread that writes them in their order. The caller waits for some
milliseconds, then goes on with a LateError: the append is still under way, and those behind it in
the directory are queued.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.log_state cimport Log
from kbroker.ext.producers cimport Terms

cdef struct Appending:
    Log* log                        # a reference
    Terms terms
    uint8_t* batches                # whole ones; owned
    size_t length
    int64_t deadline_ns             # monotonic, of the wait for room in the journal; 0: none
    int64_t first                   # offsets given
    int64_t last
    Appending* next                 # in the queue of its directory
    int code                        # LogError
    int32_t done                    # atomic
    int32_t refs                    # atomic

# Raises ClientError where these are no sound batches. room_wait_ms: -1, without end.
cdef Appending* appending_new(Log* log, bytes batches, int64_t room_wait_ms) except NULL
# Have it done, and take it: (first, last). Not `in_time`: by the caller, however long it takes.
cdef tuple appending_result(Appending* appending, bint in_time)
# How long callers wait for an append; the time before. For tests: not while appends are under way.
cdef int64_t set_append_grace_ns(int64_t ns) noexcept nogil
# Wait until none is under way: before the journals go.
cdef void appendings_end() noexcept nogil
