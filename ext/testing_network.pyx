"""Handlers that only tests install: never shipped, compiled with KBROKER_TEST=1.

Each is one way in which a real handler can end: answer at once, through a parked operation posted
by another thread, with a file region, from the I/O pool, not at all, or not yet.
"""
import os

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_store_i32, atomic_store_i64,
)
from kbroker.ext.connection cimport (
    H_CLOSE, H_DONE, H_IO, H_NONE, H_PENDING, H_STALL, Net, Op, Reply, Request,
)
from kbroker.ext.connections cimport connection_mute
from kbroker.ext.crc32c cimport crc32c_extend
from kbroker.ext.endian cimport load_be16, load_be32, store_be16, store_be32, store_be64
from kbroker.ext.engine cimport Engine
from kbroker.ext.listener cimport acceptor_post
from kbroker.ext.network cimport net_install, net_synchronize, net_unstall_all
from kbroker.ext.posix cimport (
    pthread_create, pthread_join, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, pthread_t, pwrite,
)
from kbroker.ext.response cimport (
    op_close, op_deadline, op_hold, op_park, op_post, op_ready, op_release, reply_abandon,
    reply_begin, reply_end, reply_region,
)
from kbroker.ext.sockets cimport poll
from kbroker.ext.timer cimport (
    Timer, Wheel, timer_arm, timer_disarm, wheel_advance, wheel_init, wheel_wait_ms,
)

cdef enum:
    HELD_MAX = 65536

# What the poster thread will answer; one engine at a time.
cdef pthread_mutex_t held_lock
cdef Op* held[HELD_MAX]
cdef int held_count = 0
cdef int32_t poster_running = 0
cdef pthread_t poster
cdef int64_t cancelled = 0
cdef int64_t released = 0
cdef int64_t produced = 0
cdef int32_t stalling = 0
cdef int32_t hanging = 0
cdef int region_fd = -1
pthread_mutex_init(&held_lock, NULL)


# ---- answers -----------------------------------------------------------------------------------

cdef int echo_into(Reply* reply, const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef uint32_t length = <uint32_t> (end - p)
    cdef uint8_t* at = reply_begin(reply, length)
    if at == NULL:
        return H_CLOSE
    if length > 0:
        memcpy(at, p, length)
    reply_end(reply, length)
    return H_DONE


cdef int handle_echo(Request* request) noexcept nogil:
    return echo_into(&request.reply, request.p, request.end)


cdef int handle_hang(Request* request) noexcept nogil:
    """What no handler may: keep its network thread."""
    while atomic_load_i32(&hanging):
        poll(NULL, 0, 1)
    return handle_echo(request)


cdef int handle_count(Request* request) noexcept nogil:
    """Read all of the frame, answer its sum: what a produce request costs without its log."""
    cdef uint64_t total = 0
    cdef uint64_t word
    cdef uint8_t* p = request.p
    while request.end - p >= 8:
        memcpy(&word, p, 8)
        total += word
        p += 8
    return echo_into(&request.reply, <uint8_t*> &total, <uint8_t*> &total + 8)


cdef int handle_silence(Request* request) noexcept nogil:
    return H_NONE


cdef int handle_close(Request* request) noexcept nogil:
    request.reason = "the test says so"
    return H_CLOSE


cdef int handle_mute(Request* request) noexcept nogil:
    """Echo, then read nothing for as many milliseconds as the body's first 4 bytes say."""
    cdef int outcome = handle_echo(request)
    if request.end - request.p >= 4:
        connection_mute(request.connection, load_be32(request.p))
    return outcome


cdef int handle_stall(Request* request) noexcept nogil:
    if atomic_load_i32(&stalling):
        return H_STALL
    return handle_echo(request)


cdef int handle_on_io(Request* request) noexcept nogil:
    if not request.on_io:
        return H_IO
    return handle_echo(request)


cdef int handle_stall_on_io(Request* request) noexcept nogil:
    if not request.on_io:
        return H_IO
    return handle_stall(request)


cdef int handle_produce(Request* request) noexcept nogil:
    """Produce v3 to v8 of one batch as the bench's floor does it: CRC, pwrite, acknowledge."""
    cdef uint8_t* p = request.p + 2 + 2 + 4 + 4
    cdef uint8_t* topic = p
    cdef uint32_t topic_size = 2 + load_be16(p)
    cdef uint8_t* batch = p + topic_size + 12
    cdef uint32_t size = load_be32(batch - 4)
    cdef uint8_t* at
    cdef int error = 0
    if crc32c_extend(0, batch + 21, size - 21) != load_be32(batch + 17):
        error = 2
    store_be64(batch, 0)
    if region_fd >= 0 and error == 0:
        pwrite(region_fd, batch, size, atomic_add_i64(&produced, size) % (<int64_t> 2 << 30))
    at = reply_begin(&request.reply, topic_size + 46)
    if at == NULL:
        return H_CLOSE
    memset(at, 0, topic_size + 46)
    store_be32(at, 1)
    memcpy(at + 4, topic, topic_size)
    store_be32(at + 4 + topic_size, 1)
    memcpy(at + 8 + topic_size, batch - 8, 4)
    store_be16(at + 12 + topic_size, <uint16_t> error)
    reply_end(&request.reply, topic_size + 46)
    return H_DONE


# ---- parked ------------------------------------------------------------------------------------

cdef void forget(Op* op) noexcept nogil:
    free(op.ext)
    op.ext = NULL


cdef void answer_parked(Op* op) noexcept nogil:
    if atomic_load_i64(&op.pending) == 0:
        echo_into(&op.reply, <uint8_t*> op.ext, <uint8_t*> op.ext + op.u[0])
        forget(op)
        op_ready(op)


cdef void answer_late(Op* op) noexcept nogil:
    """The deadline came first: an empty answer."""
    echo_into(&op.reply, NULL, NULL)
    forget(op)
    op_ready(op)


cdef void cancel_parked(Op* op) noexcept nogil:
    atomic_add_i64(&cancelled, 1)
    forget(op)


cdef Op* park(Request* request) noexcept nogil:
    """An Op with a copy of the body, to be echoed when `pending` is 0."""
    cdef uint64_t length = <uint64_t> (request.end - request.p)
    cdef Op* op = op_park(request)
    if op == NULL:
        return NULL
    op.ext = calloc(1, length + 1)
    memcpy(op.ext, request.p, length)
    op.u[0] = length
    op.pending = 1
    op.on_event = answer_parked
    op.on_timeout = answer_late
    op.on_cancel = cancel_parked
    return op


cdef bint give_to_poster(Op* op) noexcept nogil:
    cdef bint given = False
    op_hold(op)
    pthread_mutex_lock(&held_lock)
    if held_count < HELD_MAX:
        take_in(op)
        given = True
    pthread_mutex_unlock(&held_lock)
    if not given:
        op_release(op)
    return given


cdef void take_in(Op* op) noexcept nogil:
    global held_count
    held[held_count] = op
    held_count += 1


cdef int handle_posted(Request* request) noexcept nogil:
    """Answered when the poster thread says so."""
    cdef Op* op = park(request)
    if op == NULL or not give_to_poster(op):
        return H_CLOSE
    return H_PENDING


cdef int handle_posted_on_io(Request* request) noexcept nogil:
    if not request.on_io:
        return H_IO
    return handle_posted(request)


cdef int handle_deadline(Request* request) noexcept nogil:
    """An empty answer after as many milliseconds as the body's first 4 bytes say."""
    cdef Op* op = park(request)
    if op == NULL or request.end - request.p < 4:
        return H_CLOSE
    op_deadline(op, load_be32(request.p))
    return H_PENDING


cdef void* poster_main(void* argument) noexcept nogil:
    while atomic_load_i32(&poster_running):
        post_held()
        poll(NULL, 0, 1)
    return NULL


cdef void post_held() noexcept nogil:
    """Newest first, so that answers are ready out of order; each posted twice."""
    global held_count
    cdef Op* op
    while True:
        op = NULL
        pthread_mutex_lock(&held_lock)
        if held_count > 0:
            held_count -= 1
            op = held[held_count]
        pthread_mutex_unlock(&held_lock)
        if op == NULL:
            return
        op_post(op)
        atomic_store_i64(&op.pending, 0)
        op_post(op)
        op_release(op)


# ---- file regions ------------------------------------------------------------------------------

cdef void count_release(void* ref) noexcept nogil:
    atomic_add_i64(&released, 1)


cdef int regions_into(Reply* reply, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Body: pairs (position i32, length i32); answer: for each its length, then that region, and
    the word DONE behind the last. A length below zero: the answer is given up there."""
    cdef uint32_t count = <uint32_t> ((end - p) // 8)
    cdef uint32_t index
    cdef uint32_t written = 0
    cdef uint8_t* at = reply_begin(reply, count * 4 + 4)
    if at == NULL:
        return H_CLOSE
    for index in range(count):
        if <int32_t> load_be32(p + 8 * index + 4) < 0:
            reply_abandon(reply)
            return H_CLOSE
        memcpy(at + written, p + 8 * index + 4, 4)
        written += 4
        reply_region(reply, written, region_fd, load_be32(p + 8 * index),
                     load_be32(p + 8 * index + 4), NULL, count_release)
    memcpy(at + written, b"DONE", 4)
    reply_end(reply, written + 4)
    return H_DONE


cdef int handle_regions(Request* request) noexcept nogil:
    return regions_into(&request.reply, request.p, request.end)


cdef void answer_regions(Op* op) noexcept nogil:
    cdef int outcome
    if atomic_load_i64(&op.pending) == 0:
        outcome = regions_into(&op.reply, <uint8_t*> op.ext, <uint8_t*> op.ext + op.u[0])
        forget(op)
        if outcome == H_DONE:
            op_ready(op)
        else:
            op_close(op, b"given up")


cdef int handle_regions_posted(Request* request) noexcept nogil:
    cdef Op* op = park(request)
    if op == NULL:
        return H_CLOSE
    op.on_event = answer_regions
    return H_PENDING if give_to_poster(op) else H_CLOSE


# ---- the Python face ---------------------------------------------------------------------------

ECHO, COUNT, SILENCE, CLOSE, STALL, ON_IO, STALL_ON_IO, POSTED, POSTED_ON_IO, DEADLINE, REGIONS, \
    REGIONS_POSTED = range(100, 112)
CONTROL = 112
MUTE = 113
HANG = 114


def install(engine: Engine, fd: int = -1) -> None:
    """Give the engine all handlers; `fd` is the file of the regions, and what produce writes to."""
    global region_fd
    cdef Net* net = engine.net
    region_fd = fd
    net_install(net, 0, handle_produce)
    net_install(net, 100, handle_echo)
    net_install(net, 101, handle_count)
    net_install(net, 102, handle_silence)
    net_install(net, 103, handle_close)
    net_install(net, 104, handle_stall)
    net_install(net, 105, handle_on_io)
    net_install(net, 106, handle_stall_on_io)
    net_install(net, 107, handle_posted)
    net_install(net, 108, handle_posted_on_io)
    net_install(net, 109, handle_deadline)
    net_install(net, 110, handle_regions)
    net_install(net, 111, handle_regions_posted)
    net_install(net, 113, handle_mute)
    net_install(net, 114, handle_hang)


def start_poster() -> None:
    """A thread that posts what is parked, every millisecond."""
    atomic_store_i32(&poster_running, 1)
    code = pthread_create(&poster, NULL, poster_main, NULL)
    if code != 0:
        raise OSError(code, os.strerror(code))


def stop_poster() -> None:
    """End the thread; what is parked then is posted before."""
    with nogil:
        atomic_store_i32(&poster_running, 0)
        pthread_join(poster, NULL)
        post_held()


def post_once() -> None:
    """Post what is parked now, from this thread."""
    with nogil:
        post_held()


def parked() -> int:
    """Operations that wait to be posted."""
    cdef int count
    with nogil:
        pthread_mutex_lock(&held_lock)
        count = held_count
        pthread_mutex_unlock(&held_lock)
    return count


def counts() -> tuple[int, int]:
    """Operations cancelled and regions released since the last call."""
    told = atomic_load_i64(&cancelled), atomic_load_i64(&released)
    atomic_store_i64(&cancelled, 0)
    atomic_store_i64(&released, 0)
    return told


def set_stalling(engine: Engine, stall: bool) -> None:
    """Whether the stalling handlers refuse; when they no longer do, the engine is told."""
    cdef Net* net = engine.net
    atomic_store_i32(&stalling, 1 if stall else 0)
    if not stall:
        with nogil:
            net_unstall_all(net)


def set_hanging(hang: bool) -> None:
    """Whether the hanging handler hangs."""
    atomic_store_i32(&hanging, 1 if hang else 0)


cdef int32_t hang(Net* _net) noexcept nogil:
    while atomic_load_i32(&hanging):
        poll(NULL, 0, 1)
    return 0


def hang_acceptor(engine: Engine) -> None:
    """Make the acceptor hang in its next round, until set_hanging(False)."""
    cdef Net* net = engine.net
    atomic_store_i32(&hanging, 1)
    with nogil:
        pthread_mutex_lock(&net.threads_lock)
        acceptor_post(net, hang)
        pthread_mutex_unlock(&net.threads_lock)


def synchronize(engine: Engine) -> None:
    """Wait for a quiescent state of every thread."""
    cdef Net* net = engine.net
    with nogil:
        net_synchronize(net)


cdef class TimerWheel:
    """A timing wheel with numbered timers."""
    cdef Wheel wheel
    cdef Timer* timers
    cdef list fired
    cdef int count

    def __cinit__(self, now_ms: int, count: int) -> None:
        cdef int index
        wheel_init(&self.wheel, now_ms)
        self.count = count
        self.timers = <Timer*> calloc(count, sizeof(Timer))
        self.fired = []
        for index in range(self.count):
            self.timers[index].owner = <void*> self
            self.timers[index].fire = note_fired

    def __dealloc__(self) -> None:
        free(self.timers)

    def arm(self, number: int, deadline_ms: int) -> None:
        """Arm or re-arm a timer."""
        timer_arm(&self.wheel, &self.timers[<int> number], deadline_ms)

    def disarm(self, number: int) -> None:
        """Disarm a timer."""
        timer_disarm(&self.wheel, &self.timers[<int> number])

    def advance(self, now_ms: int) -> list[int]:
        """Numbers of the timers that fired, in that order."""
        cdef int64_t now = now_ms
        self.fired = []
        wheel_advance(&self.wheel, now)
        return self.fired

    def wait_ms(self) -> int:
        """How long an idle thread would sleep."""
        return wheel_wait_ms(&self.wheel)

    def armed(self) -> int:
        """How many are armed."""
        return self.wheel.armed


cdef void note_fired(Timer* timer) noexcept nogil:
    with gil:
        (<TimerWheel> timer.owner).fired.append(timer - (<TimerWheel> timer.owner).timers)
