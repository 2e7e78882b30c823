"""Assertions of the debug build, and live-object counters of that and of what `make test` builds;
nothing of them is left in a release.

    debug_assert(pos <= end, "cursor past its end")
    object_born(OBJECT_CONNECTION) ... object_died(OBJECT_CONNECTION)

Any thread may count. A kind added here gets its name in debug.pyx.
"""

cdef extern from "debug.h" nogil:
    const int KBROKER_COUNTS_OBJECTS
    const int KBROKER_DEBUG_BUILD
    void debug_assert(bint holds, const char* what) noexcept

cdef enum:
    OBJECT_CONNECTION
    OBJECT_REQUEST
    OBJECT_RESPONSE
    OBJECT_DELAYED_OPERATION
    OBJECT_FETCH_SESSION
    OBJECT_LOG
    OBJECT_SEGMENT
    OBJECT_MAPPING
    OBJECT_FILE
    OBJECT_LINK
    OBJECT_ANSWER
    OBJECT_TLS
    OBJECT_CLIENT_MEMORY
    OBJECT_CLIENT_COLUMNS
    OBJECT_FETCH_CHUNK
    OBJECT_CLIENT_BATCH
    OBJECT_LOCKED_MUTEX             # see posix.pxd
    OBJECT_KINDS

cdef void count_object(int kind, int delta) noexcept nogil


cdef inline void object_born(int kind) noexcept nogil:
    if KBROKER_COUNTS_OBJECTS:
        count_object(kind, 1)


cdef inline void object_died(int kind) noexcept nogil:
    if KBROKER_COUNTS_OBJECTS:
        count_object(kind, -1)
