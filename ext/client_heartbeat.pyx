"""Heartbeats of a group's member on the loop: sent on time whatever Python does.

Python prepares the body of a request; the loop sends it every interval over the coordinator's link
and reads of the answer

    Heartbeat                throttle i32, error i16
    ConsumerGroupHeartbeat   the same, then message and member id (compact nullable strings),
                             epoch i32, interval i32, assignment (i8: -1 null)

An answer that only says "go on" ends here; of KIP-848 the interval is taken over. Any other goes up
whole, as an event and a note that `take` hands out, and so does a link that broke, and an
application that has not polled for `max.poll.interval.ms`. After an error of the member's own
nothing is sent until Python says so; after one of the coordinator's (moved, loading, rebalancing)
heartbeats go on.

At most one heartbeat is in flight. `hold` waits for it and keeps the next one back: a heartbeat of
Python's own and a commit carry the member's epoch, which the answer on its way may change.

The loop and Python threads share the struct under its lock, which is held for a few loads and
stores only.
"""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.client_link cimport (
    LINK_HEAD_BYTES_MAX, LINK_OK, Call, Driver, link_put_header, link_submit,
)
from kbroker.ext.client_loop cimport LoopDriver
from kbroker.ext.client_request cimport wait_a_while
from kbroker.ext.client_thread cimport loop_post_event, loop_wake
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_t, pthread_mutex_destroy,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from kbroker.ext.sockets cimport cond_init_monotonic, iovec_t
from kbroker.ext.wire cimport (
    Cursor, Writer, cursor_init, get_compact_nullable_string, get_i8, get_i16, get_i32, skip,
    store_i32, writer_init,
)

cdef enum:
    HEARTBEAT_EVENT = 48
    NOTE_ANSWERED = 0
    NOTE_BROKEN = 1
    NOTE_POLL_EXPIRED = 2
    # Errors after which heartbeats go on.
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    REBALANCE_IN_PROGRESS = 27
    INTERVAL_MS_MAX = 3600000       # an hour: a broker that asks for more is not taken at its word

# Of the event, and of a note.
EVENT_HEARTBEAT = HEARTBEAT_EVENT
ANSWERED = NOTE_ANSWERED
BROKEN = NOTE_BROKEN
POLL_EXPIRED = NOTE_POLL_EXPIRED

cdef struct Note:
    Note* next
    int32_t kind
    int32_t serial
    size_t n
    uint8_t* p

cdef struct Told:                   # by an answer; the last three to ConsumerGroupHeartbeat only
    int16_t error
    int32_t epoch
    int32_t interval_ms
    bint assigned                   # it holds an assignment

cdef struct Heartbeat:
    Driver* driver
    pthread_mutex_t lock
    pthread_cond_t idle             # none in flight
    int32_t serial                  # of the member's generation; that of the one in flight
    int32_t sent_serial
    bint beating
    bint held
    bint in_flight
    int32_t link
    int16_t api_key
    int16_t api_version
    bint flexible
    uint8_t* body
    size_t body_n
    size_t epoch_at                 # in the body; 0: no epoch
    int32_t epoch
    int64_t interval_ns
    int64_t timeout_ns
    int64_t due_ns
    int64_t poll_deadline_ns
    Note* notes                     # oldest first
    Note* notes_tail
    bint event_due
    int64_t sent
    int64_t answers
    int64_t sent_at_ns              # the last one, of whatever generation
    int64_t latency_ns_max
    # of the one in flight
    Call call
    iovec_t piece
    uint8_t* frame


cdef void note(Heartbeat* h, int kind, int32_t serial, const uint8_t* p, size_t n) noexcept nogil:
    """Under the lock. Without memory the note is lost; the session's end tells then."""
    cdef Note* made = <Note*> malloc(sizeof(Note) + n)
    if made == NULL:
        return
    made.next = NULL
    made.kind = kind
    made.serial = serial
    made.n = n
    made.p = <uint8_t*> (made + 1)
    if n:
        memcpy(made.p, p, n)
    if h.notes_tail == NULL:
        h.notes = made
    else:
        h.notes_tail.next = made
    h.notes_tail = made
    h.event_due = True


cdef bint goes_on(int16_t error) noexcept nogil:
    return (error == COORDINATOR_LOAD_IN_PROGRESS or error == COORDINATOR_NOT_AVAILABLE
            or error == NOT_COORDINATOR or error == REBALANCE_IN_PROGRESS)


cdef bint decode(const uint8_t* p, size_t n, bint with_epoch, Told* told) noexcept nogil:
    """False: the bytes are no answer. with_epoch: to ConsumerGroupHeartbeat."""
    cdef Cursor c
    cursor_init(&c, p, n)
    skip(&c, 4)
    told.error = get_i16(&c)
    told.assigned = False
    if with_epoch and told.error == 0:
        get_compact_nullable_string(&c)
        get_compact_nullable_string(&c)
        told.epoch = get_i32(&c)
        told.interval_ms = get_i32(&c)
        told.assigned = get_i8(&c) >= 0
    return not c.bad


cdef void read_answer(Heartbeat* h, const uint8_t* p, size_t n) noexcept nogil:
    """Under the lock: whether the answer says more than "go on"."""
    cdef Told told
    cdef bint with_epoch = h.epoch_at != 0
    if not decode(p, n, with_epoch, &told):
        note(h, NOTE_ANSWERED, h.sent_serial, p, n)
        h.beating = False
        return
    if told.error or (with_epoch and (told.assigned or told.epoch != h.epoch)):
        note(h, NOTE_ANSWERED, h.sent_serial, p, n)
    if told.error:
        h.beating = h.beating and goes_on(told.error)
    elif with_epoch:
        h.epoch = told.epoch
        if 0 < told.interval_ms <= INTERVAL_MS_MAX:
            h.interval_ns = told.interval_ms * <int64_t> 1000000


cdef void beaten(Call* call, int code, const uint8_t* p, size_t n) noexcept nogil:
    """The answer, or none (Call.done)."""
    cdef Heartbeat* h = <Heartbeat*> call.owner
    pthread_mutex_lock(&h.lock)
    h.in_flight = False
    if h.sent_serial == h.serial:
        if code == LINK_OK and p != NULL:
            h.answers += 1
            h.latency_ns_max = max(h.latency_ns_max, monotonic_ns() - h.sent_at_ns)
            read_answer(h, p, n)
        else:
            h.link = -1
            note(h, NOTE_BROKEN, h.sent_serial, NULL, 0)
    pthread_cond_broadcast(&h.idle)
    pthread_mutex_unlock(&h.lock)


cdef bint make_frame(Heartbeat* h) noexcept nogil:
    """The body as it is now, with the epoch of now, behind a header."""
    cdef uint8_t* grown = <uint8_t*> realloc(h.frame, LINK_HEAD_BYTES_MAX + h.body_n)
    cdef Writer w
    if grown == NULL:
        return False
    h.frame = grown
    h.call.api_key = h.api_key
    h.call.api_version = h.api_version
    h.call.flexible = h.flexible
    h.piece.iov_base = h.frame
    writer_init(&w, h.frame, LINK_HEAD_BYTES_MAX)
    link_put_header(h.driver.loop, &w, &h.call)
    memcpy(w.p, h.body, h.body_n)
    if h.epoch_at:
        store_i32(w.p + h.epoch_at, h.epoch)
    h.piece.iov_len = <size_t> (w.p - h.frame) + h.body_n
    h.call.pieces = &h.piece
    h.call.piece_count = 1
    h.call.answered = True
    h.call.done = beaten
    h.call.owner = h
    return True


cdef void send(Heartbeat* h, int64_t now_ns) noexcept nogil:
    """Under the lock, which is let go of while the link has the call."""
    cdef int32_t link = h.link
    cdef int code
    if not make_frame(h):
        h.due_ns = now_ns + h.interval_ns
        return
    h.call.deadline_ns = now_ns + h.timeout_ns
    h.due_ns = now_ns + h.interval_ns
    h.sent_serial = h.serial
    h.in_flight = True
    h.sent += 1
    h.sent_at_ns = now_ns
    pthread_mutex_unlock(&h.lock)
    code = link_submit(h.driver.loop, link, &h.call)
    pthread_mutex_lock(&h.lock)
    if code != LINK_OK:
        h.in_flight = False
        h.link = -1
        note(h, NOTE_BROKEN, h.sent_serial, NULL, 0)
        pthread_cond_broadcast(&h.idle)


cdef int64_t heartbeat_drive(void* self, int64_t now_ns) noexcept nogil:
    """What is due (Driver.drive)."""
    cdef Heartbeat* h = <Heartbeat*> self
    cdef int64_t next_ns = INT64_MAX
    pthread_mutex_lock(&h.lock)
    if h.beating and now_ns >= h.poll_deadline_ns:
        h.beating = False
        note(h, NOTE_POLL_EXPIRED, h.serial, NULL, 0)
    if h.beating and not h.in_flight and not h.held and h.link >= 0 and now_ns >= h.due_ns:
        send(h, now_ns)
    if h.beating:
        next_ns = h.poll_deadline_ns
        if not h.in_flight and not h.held and h.link >= 0:
            next_ns = min(next_ns, h.due_ns)
    if h.event_due:
        if loop_post_event(h.driver.loop, HEARTBEAT_EVENT, h.link, 0, 0, NULL) == 0:
            h.event_due = False
        else:
            next_ns = min(next_ns, now_ns + 10000000)
    pthread_mutex_unlock(&h.lock)
    return next_ns


cdef void heartbeat_free(Heartbeat* h) noexcept nogil:
    cdef Note* old
    while h.notes != NULL:
        old = h.notes
        h.notes = old.next
        free(old)
    pthread_cond_destroy(&h.idle)
    pthread_mutex_destroy(&h.lock)
    free(h.frame)
    free(h.body)
    free(h)


cdef class HeartbeatDriver(LoopDriver):
    """Hung into a loop before it starts; sends nothing before `beat`. Any thread may call it."""
    cdef Heartbeat* h

    def __cinit__(self):
        self.h = <Heartbeat*> calloc(1, sizeof(Heartbeat))
        if self.h == NULL:
            raise MemoryError
        pthread_mutex_init(&self.h.lock, NULL)
        cond_init_monotonic(&self.h.idle)
        self.h.link = -1
        self.h.driver = &self.driver
        self.driver.self = self.h
        self.driver.drive = heartbeat_drive

    def __dealloc__(self):
        if self.h != NULL:
            heartbeat_free(self.h)

    cdef void wake(self) noexcept:
        if self.driver.loop != NULL:
            loop_wake(self.driver.loop)

    def beat(
        self, serial: int, link: int, api_key: int, api_version: int, body: bytes, *,
        flexible: bool, epoch_at: int, epoch: int, interval_s: float, timeout_s: float,
        poll_deadline_s: float,
    ) -> None:
        """Heartbeats of this body from now on, the first one an interval away.

        serial: told with what comes of it. epoch_at: where in the body the member epoch lies, 0
        where it has none. timeout_s: of an answer. poll_deadline_s: monotonic."""
        cdef Heartbeat* h = self.h
        cdef Borrowed told = Borrowed(body)
        cdef uint8_t* copy
        cdef size_t n = told.n
        if epoch_at < 0 or (epoch_at and epoch_at + 4 > len(body)):
            raise ValueError(f"no epoch at {epoch_at} of {len(body)} bytes")
        copy = <uint8_t*> malloc(n + 1)
        if copy == NULL:
            raise MemoryError
        memcpy(copy, told.p, n)
        cdef int32_t serial_i = serial
        cdef int32_t link_i = link
        cdef int16_t key = api_key
        cdef int16_t version = api_version
        cdef bint flex = flexible
        cdef size_t at = epoch_at
        cdef int32_t first_epoch = epoch
        cdef int64_t interval_ns = <int64_t> (interval_s * 1e9)
        cdef int64_t timeout_ns = <int64_t> (timeout_s * 1e9)
        cdef int64_t deadline_ns = <int64_t> (min(poll_deadline_s, 9e9) * 1e9)
        pthread_mutex_lock(&h.lock)
        free(h.body)
        h.body = copy
        h.body_n = n
        h.serial = serial_i
        h.link = link_i
        h.api_key = key
        h.api_version = version
        h.flexible = flex
        h.epoch_at = at
        h.epoch = first_epoch
        h.interval_ns = interval_ns
        h.timeout_ns = timeout_ns
        h.poll_deadline_ns = deadline_ns
        h.due_ns = monotonic_ns() + interval_ns
        h.beating = True
        pthread_mutex_unlock(&h.lock)
        self.wake()

    def relink(self, serial: int, link: int) -> None:
        """The coordinator is reached by this link now; a heartbeat goes out at once."""
        cdef Heartbeat* h = self.h
        cdef int32_t serial_i = serial
        cdef int32_t link_i = link
        pthread_mutex_lock(&h.lock)
        if h.serial == serial_i and h.link != link_i:
            h.link = link_i
            h.due_ns = 0
        pthread_mutex_unlock(&h.lock)
        self.wake()

    def stop(self) -> None:
        """No heartbeats any more; what is in flight is not told of."""
        pthread_mutex_lock(&self.h.lock)
        self.h.beating = False
        self.h.serial = -1
        pthread_mutex_unlock(&self.h.lock)

    def polled(self, deadline_s: float) -> None:
        """The application has polled; it has to again by this time (monotonic)."""
        cdef int64_t deadline_ns = <int64_t> (min(deadline_s, 9e9) * 1e9)
        pthread_mutex_lock(&self.h.lock)
        self.h.poll_deadline_ns = deadline_ns
        pthread_mutex_unlock(&self.h.lock)

    def hold(self, timeout_s: float) -> bool:
        """Keeps heartbeats back; waits for one in flight. False: its answer has not come."""
        cdef Heartbeat* h = self.h
        cdef int64_t until_ns = monotonic_ns() + <int64_t> (timeout_s * 1e9)
        cdef bint idle
        with nogil:
            pthread_mutex_lock(&h.lock)
            h.held = True
            while h.in_flight and monotonic_ns() < until_ns:
                wait_a_while(&h.idle, &h.lock, until_ns)
            idle = not h.in_flight
            pthread_mutex_unlock(&h.lock)
        return idle

    def release(self) -> None:
        """Heartbeats go on after `hold`."""
        pthread_mutex_lock(&self.h.lock)
        self.h.held = False
        pthread_mutex_unlock(&self.h.lock)
        self.wake()

    def went_out(self, epoch: int, interval_s: float) -> None:
        """A heartbeat of Python's own was answered: its epoch and its interval hold."""
        cdef int32_t epoch_i = epoch
        cdef int64_t interval_ns = <int64_t> (interval_s * 1e9)
        pthread_mutex_lock(&self.h.lock)
        self.h.epoch = epoch_i
        if interval_ns > 0:
            self.h.interval_ns = interval_ns
        self.h.due_ns = monotonic_ns() + self.h.interval_ns
        pthread_mutex_unlock(&self.h.lock)

    @property
    def epoch(self) -> int:
        """The member epoch as the last answer told it."""
        cdef int32_t epoch
        pthread_mutex_lock(&self.h.lock)
        epoch = self.h.epoch
        pthread_mutex_unlock(&self.h.lock)
        return epoch

    @property
    def counts(self) -> tuple[int, int]:
        """Heartbeats sent and answered."""
        return self.h.sent, self.h.answers

    @property
    def times(self) -> tuple[float, float]:
        """Seconds since the last one was sent, -1 for none yet, and the longest wait for an
        answer."""
        age_ns = monotonic_ns() - self.h.sent_at_ns if self.h.sent else <int64_t> -1000000000
        return age_ns / 1e9, self.h.latency_ns_max / 1e9

    def take(self) -> list[tuple[int, int, bytes]]:
        """What has come up since the last call: (kind, serial, body of the answer)."""
        cdef Note* old
        cdef Note* following
        pthread_mutex_lock(&self.h.lock)
        old = self.h.notes
        self.h.notes = NULL
        self.h.notes_tail = NULL
        pthread_mutex_unlock(&self.h.lock)
        found = []
        while old != NULL:
            following = old.next
            try:
                found.append((old.kind, old.serial, (<const char*> old.p)[:old.n]))
            finally:
                free(old)
                old = following
        return found


def read_heartbeat(
    data: bytes | bytearray | memoryview, with_epoch: bool
) -> tuple[int, int, int, bool] | None:
    """(error, epoch, interval in ms, whether there is an assignment) of an answer to Heartbeat, or
    with an epoch to ConsumerGroupHeartbeat; -1 for what it does not tell. None: it is no answer."""
    cdef Borrowed view = Borrowed(data)
    cdef Told told
    told.epoch = told.interval_ms = -1
    if not decode(view.p, view.n, with_epoch, &told):
        return None
    return told.error, told.epoch, told.interval_ms, bool(told.assigned)
