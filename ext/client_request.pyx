"""Requests of Python code over a link of the loop (see client_request.pxd)."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kbroker.ext.atomics cimport atomic_add_i32
from kbroker.ext.client_link cimport (
    LINK_BROKEN, LINK_HEAD_BYTES_MAX, LINK_OK, kept_free, link_keep, link_put_header, link_submit,
)
from kbroker.ext.clock cimport monotonic_ns, timespec_of
from kbroker.ext.greenlets cimport in_greenlet, rest
from kbroker.ext.posix cimport (
    pthread_cond_destroy, pthread_cond_signal, pthread_cond_timedwait, pthread_mutex_destroy,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, timespec_t,
)
from kbroker.ext.sockets cimport cond_init_monotonic
from kbroker.ext.wire cimport Writer

cdef enum:
    SIGNALS_LOOK_NS = 100000000     # how long Python's signals wait at most


cdef void asked_release(Asked* asked) noexcept nogil:
    if atomic_add_i32(&asked.refs, -1) > 0:
        return
    kept_free(&asked.answer)
    pthread_mutex_destroy(&asked.lock)
    pthread_cond_destroy(&asked.ended)
    free(asked.piece.iov_base)
    free(asked)


cdef void asked_end(Asked* asked, int code) noexcept nogil:
    pthread_mutex_lock(&asked.lock)
    asked.done = True
    asked.code = code
    pthread_cond_signal(&asked.ended)
    pthread_mutex_unlock(&asked.lock)
    asked_release(asked)


cdef void asked_done(Call* call, int code, const uint8_t* p, size_t n) noexcept nogil:
    cdef Asked* asked = <Asked*> call.owner
    if code == LINK_OK and p != NULL and not link_keep(asked.loop, &asked.answer):
        code = LINK_BROKEN
    asked_end(asked, code)


cdef void asked_submit(Loop* loop, LoopPost* post) noexcept nogil:
    cdef Asked* asked = <Asked*> post
    if link_submit(loop, asked.link, &asked.call) != LINK_OK:
        asked_end(asked, LINK_BROKEN)


cdef void wait_a_while(pthread_cond_t* condition, pthread_mutex_t* lock,
                       int64_t until_ns) noexcept nogil:
    cdef timespec_t until
    cdef int64_t look_ns = monotonic_ns() + SIGNALS_LOOK_NS
    until_ns = look_ns if until_ns > look_ns else until_ns
    until = timespec_of(until_ns)
    pthread_cond_timedwait(condition, lock, &until)


cdef int asked_wait(Asked* asked) except -1:
    cdef bint done = False
    cdef bint yields = in_greenlet()
    cdef int64_t began_ns = monotonic_ns()
    while not done:
        with nogil:
            pthread_mutex_lock(&asked.lock)
            if not asked.done and not yields:
                wait_a_while(&asked.ended, &asked.lock, INT64_MAX)
            done = asked.done
            pthread_mutex_unlock(&asked.lock)
        PyErr_CheckSignals()
        if yields and not done:
            rest(began_ns, INT64_MAX)
    return 0


cdef Asked* asked_new(Loop* loop, int32_t link, const Call* about, Borrowed body) noexcept:
    cdef Asked* asked = <Asked*> calloc(1, sizeof(Asked))
    cdef uint8_t* memory = <uint8_t*> malloc(LINK_HEAD_BYTES_MAX + body.n)
    cdef Writer w
    if asked == NULL or memory == NULL:
        free(asked)
        free(memory)
        return NULL
    asked.call = about[0]
    w.p = memory
    w.end = memory + LINK_HEAD_BYTES_MAX
    w.full = 0
    link_put_header(loop, &w, &asked.call)
    memcpy(w.p, body.p, body.n)
    asked.piece.iov_base = memory
    asked.piece.iov_len = <size_t> (w.p - memory) + body.n
    asked.call.pieces = &asked.piece
    asked.call.piece_count = 1
    asked.call.answered = True
    asked.call.done = asked_done
    asked.call.owner = asked
    asked.post.run = asked_submit
    asked.loop = loop
    asked.link = link
    asked.refs = 2
    pthread_mutex_init(&asked.lock, NULL)
    cond_init_monotonic(&asked.ended)
    return asked
