"""Flag and Count: what threads of a client wait for.

Each method is one step for Python: an exception of a signal handler cannot split it, as it can the
methods of threading.Event and threading.Condition, whose locks it may leave locked. Time limits use
the operating system's monotonic clock.
"""
import threading

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t

from kbroker.ext.client_request cimport wait_a_while
from kbroker.ext.clock cimport monotonic_ns, timespec_of
from kbroker.ext.greenlets cimport in_greenlet, rest
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_t, pthread_cond_timedwait,
    pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_t, pthread_mutex_unlock, timespec_t,
)
from kbroker.ext.sockets cimport cond_init_monotonic

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef double FOREVER_S = 1e9


cdef bint is_main_thread() except -1:
    """Return whether the calling thread runs signal handlers. `current_thread` would make an object
    of what is no thread of `threading`."""
    return PyThread_get_thread_ident() == <unsigned long> threading.main_thread().ident


cdef class Waiting:
    """A condition that threads wait for."""
    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed

    def __cinit__(self) -> None:
        pthread_mutex_init(&self.lock, NULL)
        cond_init_monotonic(&self.changed)

    def __dealloc__(self) -> None:
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)

    cdef bint holds(self) noexcept nogil:
        return True

    cdef void notify(self) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    cdef void wait_once(self, int64_t until_ns, bint signals) noexcept nogil:
        """Wait until a change or the time; with `signals` no longer than Python's signals may."""
        cdef timespec_t until
        if signals:
            wait_a_while(&self.changed, &self.lock, until_ns)
        elif until_ns == INT64_MAX:
            pthread_cond_wait(&self.changed, &self.lock)
        else:
            until = timespec_of(until_ns)
            pthread_cond_timedwait(&self.changed, &self.lock, &until)

    cdef bint wait_until_holds(self, timeout_s: float | None) except -1:
        cdef int64_t until_ns = INT64_MAX
        cdef int64_t began_ns = monotonic_ns()
        cdef bint yields = in_greenlet()
        cdef bint signals = not yields and is_main_thread()
        cdef bint held = False
        cdef bint over = False
        if timeout_s is not None and timeout_s < FOREVER_S:
            until_ns = began_ns + <int64_t> (timeout_s * 1e9)
        while not over:
            with nogil:
                pthread_mutex_lock(&self.lock)
                held = self.holds()
                if not held and not yields and monotonic_ns() < until_ns:
                    self.wait_once(until_ns, signals)
                    held = self.holds()
                pthread_mutex_unlock(&self.lock)
                over = held or monotonic_ns() >= until_ns
            PyErr_CheckSignals()
            if yields and not over:
                rest(began_ns, until_ns)
        return held


cdef class Flag(Waiting):
    """A flag that is set or not, as threading.Event."""
    cdef bint state

    cdef bint holds(self) noexcept nogil:
        return self.state

    def is_set(self) -> bool:
        return self.state

    def set(self) -> None:
        pthread_mutex_lock(&self.lock)
        self.state = True
        pthread_mutex_unlock(&self.lock)
        self.notify()

    def clear(self) -> None:
        self.state = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False after timeout_s."""
        return self.state or self.wait_until_holds(timeout_s)


cdef class Count(Waiting):
    """The number of calls under way, each a `with` block. refused: raised in place of the block
    once `finish` was called."""
    cdef int64_t count
    cdef bint finishing
    cdef object refused

    def __cinit__(self, refused: type) -> None:
        self.refused = refused

    cdef bint holds(self) noexcept nogil:
        return self.count == 0

    def __enter__(self) -> None:
        if self.finishing:
            raise self.refused("the client is being closed")
        pthread_mutex_lock(&self.lock)
        self.count += 1
        pthread_mutex_unlock(&self.lock)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        pthread_mutex_lock(&self.lock)
        self.count -= 1
        pthread_mutex_unlock(&self.lock)
        self.notify()

    def finish(self, timeout_s: float) -> bool:
        """Let no more calls begin, and wait for those under way; False after timeout_s."""
        self.finishing = True
        return self.wait_until_holds(timeout_s)
