"""Liveness checks of the data plane's threads.

Each network thread is posted a note, which it answers in its loop, woken through its eventfd as for
any other post: an answer has taken the path of the responses. A thread that has not answered the
last note is not posted another: the note is still in its inbox. The acceptor is posted an errand.
Nothing here waits, so that a thread that hangs does not hang the check.
"""
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t

from kbroker.ext.atomics cimport atomic_load_i32, atomic_store_i32
from kbroker.ext.connection cimport NET_THREADS_MAX, Net, NetThread, Post
from kbroker.ext.engine cimport Engine
from kbroker.ext.listener cimport acceptor_post
from kbroker.ext.network cimport thread_post
from kbroker.ext.posix cimport pthread_mutex_trylock, pthread_mutex_unlock

cdef struct Note:
    Post post                   # first: a Post* is a Note*
    int32_t open                # atomic: posted and not answered


cdef void answer(NetThread* _thread, Post* post) noexcept nogil:
    atomic_store_i32(&(<Note*> post).open, 0)


cdef int32_t nothing(Net* _net) noexcept nogil:
    return 0


cdef int poll_acceptor(Net* net, bint asks) noexcept nogil:
    """Post an errand where that is due; whether none is pending. -1: the acceptor runs one at the
    moment, with the lock."""
    cdef int ran
    if pthread_mutex_trylock(&net.threads_lock) != 0:
        return -1
    if asks and net.errand == NULL and atomic_load_i32(&net.acceptor_running):
        acceptor_post(net, nothing)
    ran = net.errand == NULL
    pthread_mutex_unlock(&net.threads_lock)
    return ran


cdef class Liveness:
    """Liveness checks of one engine that has been started. One thread calls."""
    cdef Engine engine
    cdef Note* notes                # by the index of the network thread
    cdef bint acceptor_asked        # since the last ask()
    cdef bint acceptor_answered     # likewise: errands of others that follow do not matter

    def __cinit__(self, engine: Engine) -> None:
        cdef int index
        self.engine = engine
        self.notes = <Note*> PyMem_Calloc(NET_THREADS_MAX, sizeof(Note))
        if self.notes == NULL:
            raise MemoryError("no memory for notes to network threads")
        for index in range(NET_THREADS_MAX):
            self.notes[index].post.run = answer

    def __dealloc__(self) -> None:
        # A note that lies in an inbox is the thread's for as long as there is an engine.
        if self.notes != NULL and not self.silent():
            PyMem_Free(self.notes)

    def ask(self) -> None:
        """Begin a check: post a note to every network thread."""
        cdef Net* net = self.engine.net
        cdef int index
        self.acceptor_asked = self.acceptor_answered = False
        for index in range(atomic_load_i32(&net.threads_count)):
            if not atomic_load_i32(&self.notes[index].open):
                atomic_store_i32(&self.notes[index].open, 1)
                thread_post(net.threads[index], &self.notes[index].post)

    def silent(self) -> list[int]:
        """Return the network threads that have not answered yet."""
        cdef int index
        return [index for index in range(NET_THREADS_MAX)
                if atomic_load_i32(&self.notes[index].open)]

    def acceptor_silent(self) -> bool:
        """Return whether the acceptor has not run an errand since ask(). The first call that gets
        the lock posts an errand, unless another thread's is pending, which serves as well. An
        acceptor that does not run has nothing to answer."""
        cdef Net* net = self.engine.net
        cdef bint asks = not self.acceptor_asked
        cdef int ran
        if self.acceptor_answered:
            return False
        with nogil:
            ran = poll_acceptor(net, asks)
        if ran < 0:
            return True
        self.acceptor_asked = True
        self.acceptor_answered = ran
        return not self.acceptor_answered
