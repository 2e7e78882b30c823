"""Requests of Python code over a link of the loop: rare ones, waited for without the GIL."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.client_link cimport Call, Kept, Loop, LoopPost
from kbroker.ext.posix cimport pthread_cond_t, pthread_mutex_t
from kbroker.ext.sockets cimport iovec_t

# Shared by the caller and the loop, freed by whoever lets go last.
cdef struct Asked:
    LoopPost post                   # first: submits it on the loop thread
    Call call
    iovec_t piece
    Loop* loop
    int32_t link
    int32_t refs                    # atomic
    pthread_mutex_t lock
    pthread_cond_t ended
    bint done
    int code                        # a LinkCode
    Kept answer

# about: key, version, flexible and deadline. The caller's share is given back by asked_release;
# after posting, the loop's is given back by the loop. NULL: no memory.
cdef Asked* asked_new(Loop* loop, int32_t link, const Call* about, Borrowed body) noexcept
# Without the GIL; the loop ends it in time. KeyboardInterrupt and the like come through.
cdef int asked_wait(Asked* asked) except -1
cdef void asked_release(Asked* asked) noexcept nogil
# Waits to the time, or a tenth of a second for Python's signals, whichever is sooner.
cdef void wait_a_while(pthread_cond_t* condition, pthread_mutex_t* lock,
                       int64_t until_ns) noexcept nogil
