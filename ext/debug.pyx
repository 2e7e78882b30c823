"""Live-object counters (see debug.pxd)."""
from libc.stdint cimport int64_t

from kbroker.ext.atomics cimport atomic_add_relaxed_i64, atomic_load_i64

cdef int64_t live[<int> OBJECT_KINDS]

KINDS = (
    "connection",
    "request",
    "response",
    "delayed operation",
    "fetch session",
    "log",
    "segment",
    "mapping",
    "file",
    "link",
    "answer",
    "tls connection",
    "client memory",
    "client columns",
    "fetch chunk",
    "client batch",
    "locked mutex",
)
assert len(KINDS) == OBJECT_KINDS, "every kind of object has its name"


cdef void count_object(int kind, int delta) noexcept nogil:
    debug_assert(0 <= kind < OBJECT_KINDS, "object kind out of range")
    cdef int64_t left = atomic_add_relaxed_i64(&live[kind], delta)
    debug_assert(left >= 0, "an object died twice")


def is_debug_build() -> bool:
    """True when this is the debug build, which asserts and counts."""
    return bool(KBROKER_DEBUG_BUILD)


def counts_objects() -> bool:
    """True when live objects are counted: in the debug build, and in what `make test` builds."""
    return bool(KBROKER_COUNTS_OBJECTS)


def live_objects() -> dict[str, int]:
    """Live objects by kind; every count is 0 where none are counted."""
    cdef int kind
    return {KINDS[kind]: atomic_load_i64(&live[kind]) for kind in range(OBJECT_KINDS)}
