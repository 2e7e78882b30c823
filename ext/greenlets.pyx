"""Greenlets: waits that let the other greenlets of a thread go on.

gevent and eventlet run many greenlets on one thread and patch Python's blocking functions, so that
a greenlet which waits gives up the thread. They cannot patch a wait in C. So a wait of this client
asks `in_greenlet` first. There it looks at its condition again and again, and sleeps by the
library's own function in between: not at all in the first moment, later for an eighth of the time
that it has waited, 10 ms at the most.

Threads of the client itself are real ones (kbroker.client.native_threads) and block as always.
"""
import sys

from libc.stdint cimport int64_t

from kbroker.ext.clock cimport monotonic_ns

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef int64_t SPIN_NS = 200_000      # before it sleeps at all; the others have their turn
cdef int64_t LONGEST_NS = 10_000_000
cdef object sleep = None            # of the library that has patched `threading`
cdef object current = None          # its getcurrent()
cdef object hub = None              # what returns the greenlet of the thread's event loop
cdef set natives = set()            # idents of the client's own threads


cdef bint find_library() except -1:
    """Look for a library that has patched `threading`."""
    global sleep, current, hub
    gevent_patches = getattr(sys.modules.get("gevent.monkey"), "is_module_patched", None)
    eventlet_patches = getattr(sys.modules.get("eventlet.patcher"), "is_monkey_patched", None)
    if gevent_patches is not None and gevent_patches("threading"):
        import gevent

        sleep, current, hub = gevent.sleep, gevent.getcurrent, gevent.get_hub
    elif eventlet_patches is not None and eventlet_patches("thread"):
        import eventlet
        from eventlet import hubs

        sleep, current, hub = eventlet.sleep, eventlet.getcurrent, lambda: hubs.get_hub().greenlet
    return sleep is not None


cdef bint in_greenlet() except -1:
    """Return whether the caller runs in a greenlet that others wait for. The greenlet of the event
    loop itself cannot wait for its loop: it blocks."""
    if sleep is None and not find_library():
        return False
    if PyThread_get_thread_ident() in natives:
        return False
    return current() is not hub()


cdef int rest(int64_t began_ns, int64_t until_ns) except -1:
    """Let other greenlets go on, in a wait that began at `began_ns` and ends at `until_ns`."""
    cdef int64_t now_ns = monotonic_ns()
    cdef int64_t pause_ns = min((now_ns - began_ns) // 8, LONGEST_NS, max(until_ns - now_ns, 0))
    sleep(0 if now_ns - began_ns < SPIN_NS else pause_ns / 1e9)
    return 0


cdef size_t user_ident() except? 0:
    """Return the same for all calls of one thread, or of one greenlet."""
    cdef object greenlet
    if in_greenlet():
        greenlet = current()
        return <size_t> <void*> greenlet
    return PyThread_get_thread_ident()


def patched() -> bool:
    """Return whether a library has patched `threading`."""
    return sleep is not None or find_library()


def cooperative() -> bool:
    """Return whether the caller runs in a greenlet that others wait for."""
    return in_greenlet()


def rest_until(began_ns: int, until_ns: int) -> None:
    """Let other greenlets go on, in a wait between these times."""
    rest(began_ns, until_ns)


def begin_native() -> None:
    """Note that the calling thread has no greenlets. It calls `end_native` at its end."""
    natives.add(PyThread_get_thread_ident())


def end_native() -> None:
    """The calling thread ends."""
    natives.discard(PyThread_get_thread_ident())


def thread_ident() -> int:
    """Return the ident of the real thread, whatever is patched."""
    return PyThread_get_thread_ident()
