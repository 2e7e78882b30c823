"""A bound for the descriptors of segment files (see open_files.pxd)."""
from libc.stdint cimport INT64_MAX, int64_t

from kbroker.ext.atomics cimport (
    atomic_add_i64,
    atomic_load_i64,
    atomic_load_relaxed_i64,
    atomic_store_i64,
)
from kbroker.ext.posix cimport (
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)

cdef enum:
    OWNERS_AT_ONCE = 32         # that are looked at for one file

cdef int64_t limit = INT64_MAX                      # atomic
cdef int64_t opened = 0                             # atomic
# A list in the order of opening. Its lock is taken under the lock of a log, and under it no lock is
# waited for.
cdef pthread_mutex_t lock
cdef FileOwner* first = NULL
cdef FileOwner* last = NULL

pthread_mutex_init(&lock, NULL)


cdef void files_limit(int64_t most) noexcept nogil:
    atomic_store_i64(&limit, most)


cdef int64_t files_open() noexcept nogil:
    return atomic_load_i64(&opened)


cdef void files_count(int64_t change) noexcept nogil:
    atomic_add_i64(&opened, change)


cdef void append(FileOwner* owner) noexcept nogil:
    global first, last
    owner.before = last
    owner.after = NULL
    if last != NULL:
        last.after = owner
    else:
        first = owner
    last = owner
    owner.listed = 1


cdef void remove(FileOwner* owner) noexcept nogil:
    global first, last
    if owner.before != NULL:
        owner.before.after = owner.after
    else:
        first = owner.after
    if owner.after != NULL:
        owner.after.before = owner.before
    else:
        last = owner.before
    owner.listed = 0


cdef bint files_make_room(bint always) noexcept nogil:
    cdef int64_t before
    cdef FileOwner* owner
    if not always and atomic_load_relaxed_i64(&opened) < atomic_load_relaxed_i64(&limit):
        return True
    pthread_mutex_lock(&lock)
    before = atomic_load_i64(&opened)
    for _ in range(OWNERS_AT_ONCE):
        owner = first
        if owner == NULL or (atomic_load_i64(&opened) < before
                             and atomic_load_i64(&opened) < atomic_load_i64(&limit)):
            break
        remove(owner)
        if owner.let_go(owner) > 0:
            append(owner)
    pthread_mutex_unlock(&lock)
    return atomic_load_i64(&opened) < before


cdef void files_note(FileOwner* owner) noexcept nogil:
    pthread_mutex_lock(&lock)
    if not owner.listed:
        append(owner)
    pthread_mutex_unlock(&lock)


cdef void files_forget(FileOwner* owner) noexcept nogil:
    pthread_mutex_lock(&lock)
    if owner.listed:
        remove(owner)
    pthread_mutex_unlock(&lock)


# -- for Python

def limit_open_files(most):
    """Keep at most this many segment files open, None for as many as there are."""
    files_limit(INT64_MAX if most is None else most)


def close_excess_files():
    """Close what is open above the bound, since it was in use when the bound was reached, and is
    not any more."""
    with nogil:
        while files_open() > atomic_load_i64(&limit) and files_make_room(True):
            pass


def open_files():
    """Return how many segment files are open."""
    return files_open()
