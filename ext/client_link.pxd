"""A link: one non-blocking connection of a client to a broker, and the calls in flight on it.

    request  = length i32, api key i16, api version i16, correlation id i32,
               client id nullable string (i16 length), header v2: tagged fields; then the body
    answer   = length i32, correlation id i32, response header v1: tagged fields; then the body

Header v2 and v1 belong to flexible versions (KIP-482); the answer to ApiVersions never has v1.

Everything here runs on the thread of the loop that has the link, unless it says otherwise. A call
is answered exactly once, by its `done`: in the order of requests, and when the link breaks all at
once. Memory: a link holds 4 bytes of a length, or one answer that is not whole yet, of at most
`LINK_FRAME_BYTES_MAX`; it is mapped, not touched, before its bytes have come.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.atomics cimport atomic_load_ptr, atomic_load_relaxed_i32
from kbroker.ext.sockets cimport iovec_t
from kbroker.ext.tls cimport Tls
from kbroker.ext.wire cimport Writer

cdef enum LinkCode:
    LINK_OK = 0
    LINK_BROKEN = -1            # closed, reset, dropped or never there: no answer
    LINK_TIMEOUT = -2           # a deadline passed; the link is closed, answers come in order only
    LINK_CORRUPT = -3           # the broker sent what is no answer; the link is closed

cdef enum:
    LINK_FRAME_BYTES_MAX = 268435456    # limits.CLIENT_FRAME_MAX_BYTES
    LINK_HEAD_BYTES_MAX = 4 + 8 + 2 + 32767 + 1     # what link_put_header may write
    LINK_API_KEYS = 128

# A request in flight; it lies in the memory of whoever makes it, and belongs to the link from
# link_submit until `done` is called, which may submit further calls, this one as well.
cdef struct Call:
    # Set by the owner. pieces[0] begins with what link_put_header wrote; all of it is borrowed.
    iovec_t* pieces
    int32_t piece_count
    int16_t api_key
    int16_t api_version
    bint flexible               # the version of this api is a flexible one
    bint answered               # False: Produce with acks=0, done as soon as it is written
    int64_t deadline_ns         # monotonic; 0: none
    # p..p+n: the body of the answer, valid during the call unless link_keep takes it over.
    void (*done)(Call* call, int code, const uint8_t* p, size_t n) noexcept nogil
    # After each read of an answer that comes in pieces, into memory that link_keep takes over as
    # it is: its first `have` bytes, the correlation id in front. NULL: nobody wants to know.
    void (*arriving)(Call* call, const uint8_t* frame, uint64_t have) noexcept nogil
    void* owner                 # free for the owner
    # Of the link.
    Call* next
    uint64_t bytes
    uint64_t sent
    int64_t sent_ns             # when its last byte went out
    int32_t correlation_id
    int32_t link

# An answer taken over from a link; freed by any thread, also after the loop has ended.
cdef struct Kept:
    uint8_t* buffer
    uint64_t capacity
    const uint8_t* p            # the answer's body lies in the buffer
    size_t n

cdef struct Loop

cdef struct Link:
    int32_t id                  # of ClientLoop.add_link; never used again
    int32_t fd
    Tls* tls                    # NULL: plain TCP
    Loop* loop
    bint active                 # registered with the loop's epoll; before that calls only queue
    int32_t down                # atomic; broken: link_submit refuses
    bint dirty                  # on the loop's list of links with something to send
    bint writable
    bint readable
    bint peer_closed            # reads go on until they say so
    int32_t code                # why it is down
    Link* next                  # on the loop's list of dirty, or of down links
    Call* unsent                # FIFO: not, or not wholly, written
    Call* unsent_tail
    Call* awaited               # FIFO: written, the answer is due
    Call* awaited_tail
    int32_t in_flight           # both lists
    int32_t correlation_id
    uint8_t length[4]           # of the next answer, as far as it has come
    uint32_t length_have
    uint8_t* frame              # an answer that is not whole: frame_have of frame_bytes
    uint64_t frame_capacity
    uint64_t frame_have
    uint64_t frame_bytes
    int16_t version_low[LINK_API_KEYS]
    int16_t version_high[LINK_API_KEYS]         # -1: not offered
    # metrics, written by the loop thread only
    int64_t bytes_in
    int64_t bytes_out
    int64_t requests
    int64_t answers
    int64_t latency_ns_sum
    int64_t latency_ns_max

cdef enum:
    LINKS_MAX = 1024            # open links of one loop

# A message to the loop thread, run there in the order of posting; it may lie anywhere.
cdef struct LoopPost:
    LoopPost* next
    void (*run)(Loop* loop, LoopPost* post) noexcept nogil

# What a producer, a fetcher, a heartbeat hangs into its loop; all is called on its thread.
cdef struct Driver:
    void* self
    Loop* loop                  # set by ClientLoop.add_driver
    # After the I/O of every turn: submits calls. Returns the monotonic time in ns when it wants to
    # be called again at the latest, INT64_MAX for never; loop_wake makes it sooner.
    int64_t (*drive)(void* self, int64_t now_ns) noexcept nogil
    # After every call of the link was done with `code`. May be NULL.
    void (*link_down)(void* self, int32_t link, int code) noexcept nogil
    # The last thing on the loop thread; every link is gone. May be NULL.
    void (*stopped)(void* self) noexcept nogil

cdef enum:
    LOOP_DRIVERS_MAX = 4

cdef struct LoopEvent:
    int32_t kind
    int32_t link
    int32_t partition
    int32_t code
    void* owner

cdef struct Loop:
    Driver* drivers[LOOP_DRIVERS_MAX]       # called in the order in which they were added
    int32_t driver_count
    int32_t epoll_fd
    int32_t event_fd
    int32_t asleep              # atomic
    int32_t woken               # atomic: loop_wake was called since the turn began
    int32_t stopping            # atomic
    bint again                  # do not sleep before the next turn
    void* inbox                 # atomic: LoopPost*, newest first
    int64_t now_ns              # of this turn
    int64_t call_deadline_ns    # no call's deadline lies before it
    bint behind                 # a link had more to read than its share of a turn
    Link* dirty
    Link* downs                 # broken since the last turn; client_loop frees them
    uint8_t* buffer             # LOOP_BUFFER_BYTES that all links read and gather into
    # The answer whose `done` runs, for link_keep.
    uint8_t* handled
    uint64_t handled_capacity   # 0: it lies in `buffer`
    const uint8_t* handled_p
    size_t handled_n
    bint handled_kept
    void* links[LINKS_MAX]      # atomic: Link*, by id % LINKS_MAX
    int32_t client_id_bytes
    uint8_t client_id[32768]
    # metrics
    int64_t turns
    int64_t wakeups
    void* shared                # LoopShared: client_loop's own

cdef enum:
    LOOP_BUFFER_BYTES = 16384

# ---- for drivers, on the loop thread -----------------------------------------------------------

# Writes length (to be patched), request header and client id. Any thread.
cdef void link_put_header(Loop* loop, Writer* w, Call* call) noexcept nogil
# 0, or LINK_BROKEN where there is no such link any more: then `done` is not called.
cdef int link_submit(Loop* loop, int32_t link, Call* call) noexcept nogil
# Calls submitted and not done; 0 for a link that is gone.
cdef int32_t link_in_flight(Loop* loop, int32_t link) noexcept nogil
# The highest version of an api within low..high that the broker of the link speaks, or -1.
cdef int16_t link_version(Loop* loop, int32_t link, int16_t api_key, int16_t low,
                          int16_t high) noexcept nogil
# Within `done` with LINK_OK: takes the memory of the answer over, without a copy unless it is a
# small one. False: no memory; p stays valid during the call.
cdef bint link_keep(Loop* loop, Kept* out) noexcept nogil
# Any thread; a second time does nothing.
cdef void kept_free(Kept* kept) noexcept nogil

# ---- for the loop ------------------------------------------------------------------------------

# Loops of the process that are there; the last one to go takes what is kept warm along.
cdef void loops_note(int32_t change) noexcept nogil
cdef Link* link_new(Loop* loop, int32_t id, int32_t fd, Tls* tls) noexcept nogil
# After link_fail, or before it was ever active; closes the socket and what it took over.
cdef void link_free(Link* link) noexcept nogil
cdef void link_receive(Link* link) noexcept nogil
cdef void link_flush(Link* link) noexcept nogil
# Every call is done with `code`, the driver is told; it goes onto the loop's list `downs`.
cdef void link_fail(Link* link, int code) noexcept nogil
# The earliest deadline of its calls, INT64_MAX for none.
cdef int64_t link_deadline_ns(Link* link) noexcept nogil

cdef inline Link* link_find(Loop* loop, int32_t id) noexcept nogil:
    """NULL where it is gone."""
    cdef Link* link
    if id < 0:
        return NULL
    link = <Link*> atomic_load_ptr(&loop.links[id % LINKS_MAX])
    if link == NULL or link.id != id or atomic_load_relaxed_i32(&link.down):
        return NULL
    return link
