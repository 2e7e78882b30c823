"""The client's loop as Python code sees it (see client_loop.pxd)."""
import os
import threading

from cpython.exc cimport PyErr_CheckSignals
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport getpid

from kbroker.ext.atomics cimport (
    atomic_load_ptr, atomic_load_relaxed_i32, atomic_load_relaxed_i64, atomic_store_ptr,
)
from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.client_link cimport (
    Call, LINKS_MAX, LINK_API_KEYS, LINK_BROKEN, LINK_CORRUPT, LINK_OK, LINK_TIMEOUT,
    LOOP_DRIVERS_MAX, Link, LoopEvent, LoopPost, link_fail, link_find, link_flush, link_new,
)
from kbroker.ext.client_request cimport (
    Asked, asked_new, asked_release, asked_wait, wait_a_while,
)
from kbroker.ext.client_thread cimport (
    EVENT_CLOSED, EVENT_TOLD, LoopShared, loop_finish, loop_free, loop_main, loop_new, loop_post,
    loop_post_event, loop_stop, loop_wake,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.posix cimport (
    pthread_create, pthread_join, pthread_mutex_lock, pthread_mutex_unlock, pthread_t, snprintf,
)
from kbroker.ext.sockets cimport (
    EPOLLET, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLL_CTL_ADD, SIGNAL_SET_BYTES, THREAD_NAME_BYTES,
    epoll_ctl, epoll_event_t, signals_block, signals_restore,
)
from kbroker.ext.tls_context cimport TlsChannel
from kbroker.ext.wire cimport STRING_BYTES_MAX


cdef enum:
    VERSION_MAX = 32767             # of an API: an int16
    LINK_STATS = 7

_STATS = (
    "bytes_in", "bytes_out", "requests", "answers", "in_flight", "latency_ns_sum", "latency_ns_max",
)
assert len(_STATS) == LINK_STATS


# ---- posts of Python ---------------------------------------------------------------------------

cdef struct LinkPost:
    LoopPost post
    Link* link
    int32_t id
    int64_t requests                # drop: only where it has sent no more; -1: whatever it does


cdef void activate(Loop* loop, LoopPost* post) noexcept nogil:
    cdef Link* link = (<LinkPost*> post).link
    cdef epoll_event_t event
    free(post)
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | <uint32_t> EPOLLET
    event.data.ptr = link
    link.active = True
    link.writable = True
    if epoll_ctl(loop.epoll_fd, EPOLL_CTL_ADD, link.fd, &event) < 0:
        link_fail(link, LINK_BROKEN)
        return
    link_flush(link)


cdef void drop(Loop* loop, LoopPost* post) noexcept nogil:
    cdef Link* link = link_find(loop, (<LinkPost*> post).id)
    cdef int64_t requests = (<LinkPost*> post).requests
    free(post)
    if link != NULL and requests >= 0 and (link.requests != requests or link.in_flight > 0):
        return
    if link != NULL:
        link_fail(link, LINK_BROKEN)


# ---- Python ------------------------------------------------------------------------------------

cdef class LoopDriver:
    """What a producer or a consumer hangs into its loop; made by their own classes."""


cdef object error_of(int code, str what):
    """The exception for a LinkCode."""
    if code == LINK_TIMEOUT:
        return TimeoutError(f"the broker did not answer {what} in time")
    if code == LINK_CORRUPT:
        return ConnectionAbortedError(f"the broker sent what is no answer to {what}")
    return ConnectionResetError(f"the connection broke before the broker answered {what}")


cdef class ClientLoop:
    """One native thread with its links; see client_loop.pxd.

    client_id: of every request's header. name: of the thread, for `top -H`.
    """

    def __cinit__(
        self, driver: LoopDriver | None = None, *, client_id: str = "kbroker",
        name: str = "kbroker-client",
    ) -> None:
        told = client_id.encode()
        self.drivers = []
        self.name = name
        self.owner_pid = getpid()
        self.lock = threading.Lock()
        self.next_id = 0
        if len(told) > STRING_BYTES_MAX:
            raise ValueError(f"a client id of {len(told)} bytes; at most {STRING_BYTES_MAX}")
        self.loop = loop_new()
        if self.loop == NULL:
            raise MemoryError("no memory or descriptors for a client's loop")
        self.loop.client_id_bytes = <int32_t> len(told)
        memcpy(self.loop.client_id, <const char*> told, len(told))
        shown = name.encode("ascii", "replace")
        snprintf((<LoopShared*> self.loop.shared).name, THREAD_NAME_BYTES, "%s",
                 <const char*> shown)
        if driver is not None:
            self.hang_in(driver)

    def __dealloc__(self) -> None:
        if self.loop == NULL or self.owner_pid != getpid():
            return                  # after a fork the thread is not ours, nor are its locks
        with nogil:
            self.stop()
            loop_free(self.loop)

    cdef void stop(self) noexcept nogil:
        """Ends the thread and runs what was posted since; a second time does nothing."""
        if self.finished:
            return
        loop_stop(self.loop)
        if self.started:
            pthread_join(<pthread_t> self.thread, NULL)
        loop_finish(self.loop)
        self.finished = True

    cdef int check(self) except -1:
        if self.owner_pid != getpid():
            raise RuntimeError(
                "this client was made before fork(); make a new one in the child process"
            )
        if self.is_closed:
            raise RuntimeError("this client is closed")
        return 0

    cdef int hang_in(self, LoopDriver driver) except -1:
        if self.loop.driver_count == LOOP_DRIVERS_MAX:
            raise RuntimeError(f"a loop has at most {LOOP_DRIVERS_MAX} drivers")
        driver.driver.loop = self.loop
        self.drivers.append(driver)
        self.loop.drivers[self.loop.driver_count] = &driver.driver
        self.loop.driver_count += 1
        return 0

    def add_driver(self, driver: LoopDriver) -> None:
        """One driver more, before start()."""
        self.check()
        if self.started:
            raise RuntimeError("the loop has been started")
        self.hang_in(driver)

    def start(self) -> None:
        """Starts the thread, once."""
        cdef char old[SIGNAL_SET_BYTES]
        cdef pthread_t thread
        self.check()
        if self.started:
            raise RuntimeError("the loop has been started")
        signals_block(old)
        code = pthread_create(&thread, NULL, loop_main, self.loop)
        signals_restore(old)
        if code != 0:
            raise OSError(code, os.strerror(code))
        self.thread = thread
        self.started = True

    def add_link(
        self, fd: int, versions: dict[int, tuple[int, int]], tls: TlsChannel | None = None
    ) -> int:
        """Takes over a connected socket and what encrypts it; the link's id. See
        Connection.hand_over.

        versions: lowest and highest version of each API key that the broker speaks.
        """
        cdef LinkPost* post
        cdef Link* link
        self.check()
        os.set_blocking(fd, False)
        offered = [
            (key, low, high) for key, (low, high) in versions.items()
            if 0 <= key < LINK_API_KEYS and 0 <= low <= high <= VERSION_MAX
        ]
        while self.loop.links[self.next_id % LINKS_MAX] != NULL:
            self.next_id = (self.next_id + 1) & INT32_MAX
            if self.next_id % LINKS_MAX == 0 and self.is_full():
                raise RuntimeError(f"a client has at most {LINKS_MAX} connections")
        post = <LinkPost*> malloc(sizeof(LinkPost))
        link = link_new(self.loop, self.next_id, fd, tls.tls if tls is not None else NULL)
        if post == NULL or link == NULL:
            free(post)
            raise MemoryError("no memory for a connection")
        if tls is not None:
            tls.tls = NULL
        for key, low, high in offered:
            link.version_low[<int> key] = low
            link.version_high[<int> key] = high
        post.post.run = activate
        post.link = link
        self.next_id = (self.next_id + 1) & INT32_MAX
        atomic_store_ptr(&self.loop.links[link.id % LINKS_MAX], link)
        told = link.id
        loop_post(self.loop, &post.post)
        return told

    cdef bint is_full(self) noexcept:
        cdef int index
        for index in range(LINKS_MAX):
            if atomic_load_ptr(&self.loop.links[index]) == NULL:
                return False
        return True

    def drop_link(self, link: int, *, idle_since: int = -1) -> None:
        """Closes a link soon, its calls get no answer; does nothing where it is gone already.
        idle_since: how many requests it had sent; does nothing where they are more now, or where
        answers are due."""
        cdef LinkPost* post
        cdef int64_t requests = idle_since
        self.check()
        post = <LinkPost*> malloc(sizeof(LinkPost))
        if post == NULL:
            raise MemoryError("no memory for a post")
        post.post.run = drop
        post.id = link
        post.requests = requests
        loop_post(self.loop, &post.post)

    def wake(self) -> None:
        """The drivers run soon."""
        self.check()
        loop_wake(self.loop)

    @property
    def closed(self) -> bool:
        """True once close() was called."""
        return bool(self.is_closed)

    def tell(self) -> None:
        """An event of kind EVENT_TOLD (2) for who waits in events(). Any thread; a loop that has
        ended needs none."""
        loop_post_event(self.loop, EVENT_TOLD, -1, -1, 0, NULL)

    def events(self, timeout_s: float) -> list[tuple[int, int, int, int, int]]:
        """Waits, without the GIL, for events: (kind, link, partition, code, owner's address).

        Empty after timeout_s. EVENT_CLOSED (kind 0) is the last one, and comes again and again.
        """
        cdef LoopShared* shared = <LoopShared*> self.loop.shared
        cdef int64_t until_ns = monotonic_ns() + <int64_t> (timeout_s * 1e9)
        cdef bint over = False
        if self.owner_pid != getpid():
            self.check()
        while not over:
            with nogil:
                pthread_mutex_lock(&shared.lock)
                if shared.count == 0 and not shared.closed:
                    wait_a_while(&shared.arrived, &shared.lock, until_ns)
                over = shared.count > 0 or shared.closed or monotonic_ns() >= until_ns
                pthread_mutex_unlock(&shared.lock)
            PyErr_CheckSignals()
        return take_events(shared)

    def request(
        self, link: int, api_key: int, api_version: int, body: bytes, timeout_s: float,
        flexible: bool = True,
    ) -> bytes:
        """The body of the answer to a request of this body, beside what else is on the link.

        flexible: that version of the API is one. TimeoutError: not within timeout_s, and the link
        is closed; ConnectionResetError: it broke or is gone; ConnectionAbortedError: what came is
        no answer.
        """
        cdef Call about
        cdef Asked* asked
        self.check()
        if not self.started:
            raise RuntimeError("the loop has not been started")
        memset(&about, 0, sizeof(about))
        about.api_key = api_key
        about.api_version = api_version
        about.flexible = flexible
        about.deadline_ns = monotonic_ns() + <int64_t> (timeout_s * 1e9)
        asked = asked_new(self.loop, link, &about, Borrowed(body))
        if asked == NULL:
            raise MemoryError(f"no memory for a request of {len(body)} bytes")
        loop_post(self.loop, &asked.post)
        try:
            asked_wait(asked)
            if asked.code != LINK_OK:
                raise error_of(asked.code, f"a request of API {api_key}")
            return (<const char*> asked.answer.p)[:asked.answer.n]
        finally:
            asked_release(asked)

    def link_stats(self, link: int) -> dict[str, int] | None:
        """Return the counters of a link since it was added; None if it was removed."""
        cdef LoopShared* shared = <LoopShared*> self.loop.shared
        cdef int32_t link_id = link
        cdef Link* found
        cdef int64_t stats[LINK_STATS]
        self.check()
        pthread_mutex_lock(&shared.lock)    # under which alone the loop frees a link
        found = link_find(self.loop, link_id)
        if found != NULL:
            read_stats(found, stats)
        pthread_mutex_unlock(&shared.lock)
        if found == NULL:
            return None
        return {name: stats[index] for index, name in enumerate(_STATS)}

    def close(self) -> None:
        """Closes every link and ends the thread; calls in flight get no answer."""
        if self.owner_pid != getpid():
            self.check()
        self.is_closed = True       # from here on nobody posts
        with self.lock, nogil:
            self.stop()


cdef void read_stats(const Link* link, int64_t* out) noexcept nogil:
    """In the order of _STATS. The loop's thread goes on counting."""
    out[0] = atomic_load_relaxed_i64(&link.bytes_in)
    out[1] = atomic_load_relaxed_i64(&link.bytes_out)
    out[2] = atomic_load_relaxed_i64(&link.requests)
    out[3] = atomic_load_relaxed_i64(&link.answers)
    out[4] = atomic_load_relaxed_i32(&link.in_flight)
    out[5] = atomic_load_relaxed_i64(&link.latency_ns_sum)
    out[6] = atomic_load_relaxed_i64(&link.latency_ns_max)


cdef list take_events(LoopShared* shared):
    cdef LoopEvent event
    cdef list taken = []
    cdef bint left = True
    cdef bint closed = False
    while left:
        pthread_mutex_lock(&shared.lock)
        left = shared.count > 0
        if left:
            event = shared.events[shared.begin]
            shared.begin = (shared.begin + 1) % shared.capacity
            shared.count -= 1
        closed = shared.closed
        pthread_mutex_unlock(&shared.lock)
        if left:
            taken.append((event.kind, event.link, event.partition, event.code,
                          <size_t> event.owner))
    if closed:
        taken.append((EVENT_CLOSED, -1, -1, LINK_BROKEN, 0))
    return taken
