"""Whether the threads of the data plane still do what they are asked.

Each network thread is posted a note, which it answers in its loop, woken through its eventfd as for
any other post: what comes back has gone the way of the responses. A thread that has not answered
the last note is not posted another: the note is still in its inbox.
"""
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t

from kbroker.ext.atomics cimport atomic_load_i32, atomic_store_i32
from kbroker.ext.connection cimport NET_THREADS_MAX, Net, NetThread, Post
from kbroker.ext.engine cimport Engine
from kbroker.ext.listener cimport acceptor_errand
from kbroker.ext.network cimport thread_post
from kbroker.ext.posix cimport (
    pthread_cond_wait, pthread_mutex_lock, pthread_mutex_unlock,
)

cdef struct Note:
    Post post                   # first: a Post* is a Note*
    int32_t open                # atomic: posted and not answered


cdef void answer(NetThread* _thread, Post* post) noexcept nogil:
    atomic_store_i32(&(<Note*> post).open, 0)


cdef int32_t nothing(Net* _net) noexcept nogil:
    return 0


cdef class Liveness:
    """Of one engine that has been started. One thread calls."""
    cdef Engine engine
    cdef Note* notes            # by the index of the network thread

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
        """Post a note to every network thread."""
        cdef Net* net = self.engine.net
        cdef int index
        for index in range(atomic_load_i32(&net.threads_count)):
            if not atomic_load_i32(&self.notes[index].open):
                atomic_store_i32(&self.notes[index].open, 1)
                thread_post(net.threads[index], &self.notes[index].post)

    def silent(self) -> list[int]:
        """The network threads that have not answered yet."""
        cdef int index
        return [index for index in range(NET_THREADS_MAX)
                if atomic_load_i32(&self.notes[index].open)]

    def wait_for_acceptor(self) -> None:
        """Returns when the acceptor has come round once; not before, however long that takes."""
        cdef Net* net = self.engine.net
        with nogil:
            pthread_mutex_lock(&net.threads_lock)
            if net.errand == NULL and not atomic_load_i32(&net.stopping):
                acceptor_errand(net, nothing)
            while net.errand != NULL:       # somebody else's, which serves as well
                pthread_cond_wait(&net.errand_done, &net.threads_lock)
            pthread_mutex_unlock(&net.threads_lock)
