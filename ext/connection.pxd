"""The structures of the network half: engine, network thread, connection, request, operation.

Who owns what
    Net         the engine; lives until nobody can reach it any more. Read-only after start, except
                for atomics and what a lock is named for.
    NetThread   one network thread. Every field is its own, but `inbox`, `asleep`, `retry`, and what
                hang_lock is named for. One Runner at a time runs it (runners.pxd).
    Connection  belongs to exactly one network thread; no other thread may dereference it.
    Request     on the stack of whoever runs a handler; its frame is valid until the handler
                returns, and may be written to (offsets are patched in place).
    Op          a request that waits for its answer or for its turn. Belongs to the thread of its
                connection; other threads may hold it (`op_hold`), read and write what the handler
                put into it, and call `op_post` and `op_release`, nothing else.

Requests of a connection take effect in the order in which they came; answers leave in that order,
which is the connection's FIFO of Ops. With an empty FIFO an answer goes straight to the output.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kbroker.ext.handshake_list cimport HandshakeList, Shake
from kbroker.ext.memory cimport Pool
from kbroker.ext.net_settings cimport Counters, NetSettings
from kbroker.ext.posix cimport pthread_cond_t, pthread_mutex_t, pthread_t
from kbroker.ext.software cimport Software
from kbroker.ext.sockets cimport epoll_event_t
from kbroker.ext.stays cimport Stay
from kbroker.ext.timer cimport Timer, Wheel
from kbroker.ext.times cimport ApiTimes, Histogram, Mark, SLOW_KEPT, Slow, Times

cdef struct Connection
cdef struct Net
cdef struct NetThread
cdef struct Op
cdef struct Request
cdef struct Runner

cdef enum:
    API_KEYS_MAX = 128
    API_VERSIONS_MAX = 8            # versions of the ApiVersions API itself
    API_VERSIONS_KEY = 18
    NET_THREADS_MAX = 64
    LISTENERS_MAX = 16
    EVENTS_MAX = 256                # that a turn takes
    PLACES_MAX = 64                 # of log directories: a set of them is one word
    OP_WORDS = 12
    OP_INLINE_BYTES = 256
    LOG_LINES = 256
    LOG_LINE_BYTES = 240
    CONGESTION_BYTES = 16           # TCP_CA_NAME_MAX
    PRINCIPAL_CHUNKS = 4096

# What a handler returns.
cdef enum Outcome:
    H_DONE = 0          # answered (reply_end was called)
    H_NONE              # no answer is due (acks=0)
    H_PENDING           # op_park was called: the Op will be made ready, now or later
    H_CONTROL           # for the control thread; the connection waits until it has answered
    H_IO                # for the I/O pool, where the same handler is called again (on_io is true)
    H_STALL             # no room now: the same frame again after net_unstall_all; nothing was done
    H_CLOSE             # close the connection; request.reason says why (a static string)

# Why a connection is not read and its frames are not handled (Connection.blocked, bits).
cdef enum Block:
    BLOCK_JOB = 1           # control thread or I/O pool has a request of it
    BLOCK_STALL = 2         # journal or a queue is full
    BLOCK_MEMORY = 4        # no request memory
    BLOCK_OUTPUT = 8        # it does not read its answers
    BLOCK_INFLIGHT = 16     # too many requests unanswered
    BLOCK_MUTED = 32        # throttled
    BLOCK_FAILED = 64       # to be closed when what is ready has been sent
    BLOCK_CLOSED = 128
    BLOCK_HELD = 256        # a Runner that stands in a hanging disk has a request of it

cdef enum ConnectionFlag:
    FLAG_READABLE = 1       # the socket may hold bytes (edge-triggered: remembered here)
    FLAG_UNWRITABLE = 2     # a send hit a full socket buffer; EPOLLOUT will tell
    FLAG_IN_READY = 4       # stands in NetThread.ready
    FLAG_IN_FLUSH = 8       # stands in NetThread.flush
    FLAG_IN_STALLED = 16    # stands in NetThread.stalled
    FLAG_PEER_CLOSED = 32   # end of its stream was seen
    FLAG_TOKENS = 64        # frames are tokens of SASL, without a header (SaslHandshake 0)
    FLAG_VERSIONS = 128     # STAGE_SASL: ApiVersions may not be asked any more
    FLAG_IN_HANDSHAKES = 256    # stands in NetThread.handshakes
    FLAG_CLOSES = 512       # to be closed when it is held no longer

# What a listener speaks; numbers are of this broker only.
cdef enum Security:
    SECURITY_PLAINTEXT = 0
    SECURITY_SSL
    SECURITY_SASL_PLAINTEXT
    SECURITY_SASL_SSL

# How far a connection is in telling who it is (stages.pxd). Only an open one is served.
cdef enum Stage:
    STAGE_OPEN = 0
    STAGE_TLS               # the handshake is under way
    STAGE_IDENTITY          # its certificate waits to be mapped to a principal
    STAGE_SASL

# What an answer of the control thread makes of its connection (Job.sets, bits).
cdef enum Sets:
    SETS_STATE = 1          # what is remembered of its SASL exchange
    SETS_TOKENS = 2         # frames are tokens from here on
    SETS_PRINCIPAL = 4      # it is known, and open
    SETS_REFUSED = 8        # answered, then closed, both after a while

# Net.stopping
cdef enum Stop:
    STOP_DRAIN = 1          # answer what is in flight, close what is quiet
    STOP_NOW = 2            # time is up

cdef enum OpState:
    OP_PARKED = 0
    OP_READY                # its answer is complete and waits for its turn
    OP_DEAD                 # answered and sent on, or the connection died

# ---- output ------------------------------------------------------------------------------------

ctypedef void (*RegionRelease)(void* ref) noexcept nogil

# Bytes of a file, sent by sendfile after `at` bytes of the stream.
cdef struct Region:
    Region* next
    uint64_t at
    int64_t position
    int64_t length
    void* ref                       # keeps the file open
    RegionRelease release           # release(ref) when sent or dropped; network thread; may be NULL
    int32_t fd

cdef struct Chunk:
    Chunk* next
    uint8_t* data
    uint32_t begin                  # first byte not sent yet
    uint32_t end
    uint32_t capacity
    uint32_t kind                   # CHUNK_*

# A stream of bytes with file regions between them: of a connection, or of one answer in an Op.
cdef struct Out:
    Chunk* head
    Chunk* tail
    Region* regions
    Region* regions_tail
    uint64_t written                # bytes put in since the beginning, regions not counted
    uint64_t sent                   # bytes sent, regions not counted
    int64_t unsent                  # bytes still to send, regions counted

# Where an answer goes. The same code can write to a connection's output or to an Op's.
cdef struct Reply:
    NetThread* thread               # NULL while a job (I/O pool, control thread) has it
    Out* out
    uint8_t* frame                  # the length field, between reply_begin and reply_end
    Region* regions                 # between the two as well: they are nobody else's yet
    Region* regions_tail
    Request* request                # of the handler that writes it; NULL: of an Op
    int64_t region_bytes
    int64_t bytes                   # of the whole answer but its length field, after reply_end
    int32_t correlation_id
    int16_t api_key
    int16_t api_version
    int16_t tagged_header           # response header v1: one byte of tagged fields

# ---- operations --------------------------------------------------------------------------------

# A message to a network thread. `run` is called there.
cdef struct Post:
    Post* next
    void (*run)(NetThread* thread, Post* post) noexcept nogil

ctypedef void (*OpEvent)(Op* op) noexcept nogil

cdef struct Op:
    Post post                       # first: a Post* is an Op*
    Op* next                        # FIFO of the connection
    Connection* connection          # NULL once it has died; network thread only
    NetThread* thread
    Net* net
    int32_t refs                    # atomic
    int32_t posted                  # atomic: stands in the inbox
    int32_t state                   # OpState; network thread only
    int32_t missed                  # posted while a job had it
    int32_t resumes                 # a job has it that may be dropped: on_cancel in any case
    const char* failed              # op_close while a job had it: why
    Timer timer
    Reply reply
    Out out
    Chunk chunk                     # over inline_bytes
    OpEvent on_event                # network thread, after op_post; may be called once too often
    OpEvent on_timeout              # network thread, from op_deadline
    OpEvent on_cancel               # network thread, connection died: let go of everything
    uint64_t u[OP_WORDS]            # of the handler, as `ext`; zeroed before
    void* ext
    int64_t pending                 # atomic, by convention: what is still awaited
    Times times                     # whoever has the Op: its job, else the network thread
    uint8_t inline_bytes[OP_INLINE_BYTES]

# ---- requests ----------------------------------------------------------------------------------

# Of a Produce that opens a transaction: what the coordinator said, and the guard (producers.pxd).
cdef struct Verdict:
    int64_t guard
    int16_t error

cdef struct Request:
    Net* net
    NetThread* thread               # NULL in the I/O pool
    Connection* connection          # NULL in the I/O pool
    Op* op                          # set once parked, and always in the I/O pool
    uint8_t* frame                  # the frame after its length field; may be written to
    uint8_t* p                      # body: after the request header
    uint8_t* end
    const char* client_id           # not terminated; NULL when null
    int32_t client_id_length
    int32_t correlation_id
    int16_t api_key
    int16_t api_version
    bint flexible                   # request header v2, compact fields in the body
    bint on_io
    uint64_t* turns                 # in the I/O pool: of its thread, see network.pxd
    Stay* stay                      # of who runs the handler
    int64_t received_ns             # monotonic, when the last bytes of the frame were read
    int64_t begun_ns                # ... when the handler was called
    int64_t weight                  # of its times, see Times
    int64_t wall_ms                 # wall clock of this loop turn
    int32_t principal               # who asks, by the control plane's number; 0: nobody knows
    void** auth                     # Rights* of the connection, or of the job in the pool
    void* asked                     # owned Rights* that the control thread is to fill in, or NULL
    const Verdict* verdicts         # by partition; NULL: the coordinator was not asked
    int32_t listener
    void* quota                     # Hold*: what holds for its client; NULL: no limit
    int64_t throttle_ms             # the connection is not read for so long
    const char* reason              # for H_CLOSE: why, for the log
    Reply reply

ctypedef int (*Handler)(Request* request) noexcept nogil

# A copied request on its way to the control thread or the I/O pool; owns frame and an op reference.
cdef struct Job:
    Post post                       # first: brings the outcome back to the network thread
    Job* next
    Op* op
    Net* net
    uint8_t* frame
    uint64_t capacity
    int64_t strange                 # of what strangers may hold, for the frame
    uint32_t length
    uint32_t body                   # offset of the body in the frame
    int32_t client_id               # offset in the frame, -1 = null
    int32_t client_id_length
    int32_t correlation_id
    int32_t listener
    int16_t api_key
    int16_t api_version
    bint flexible
    uint16_t peer_port
    int32_t outcome                 # of the handler in the I/O pool
    int64_t received_ns
    uint64_t connection_id
    Verdict* verdicts               # owned; see Request
    void* auth                      # a reference to Rights: of the connection, then as filled in
    void* asked                     # owned; see Request
    bint settled                    # `auth` was filled in: it is the connection's when it is home
    int32_t principal               # who asks; with SETS_PRINCIPAL who it is from here on
    int32_t stage                   # of the connection when it asked
    int32_t sets                    # Sets bits
    int64_t session_ms              # SETS_PRINCIPAL: until it must say so again; 0: never
    int64_t refused_ms              # SETS_REFUSED: how long that takes
    uint8_t* state                  # owned: as the connection remembers it, then as it is to
    uint32_t state_bytes
    Software* software              # owned copy, for APIs that ask for it; NULL: none
    void* quota                     # Hold*, owned; NULL: no limit
    int64_t throttle_ms             # as of Request
    const char* reason
    char peer[46]                   # as text

cdef struct JobQueue:
    pthread_mutex_t lock
    pthread_cond_t filled
    Job* head
    Job* tail
    int64_t length
    int64_t length_max
    int64_t refused                 # somebody stalled: unstall when there is room
    int64_t sleepers
    bint woken                      # queue_wake: the next queue_pop does not wait
    bint closed

# ---- the owner threads -------------------------------------------------------------------------

# A pthread that may run a network thread. Freed with the thread.
cdef struct Runner:
    Stay stay                       # first: a Stay* of a network thread is a Runner*
    Runner* next
    NetThread* thread
    pthread_t pthread
    bint started                    # to be joined
    bint gone                       # hang_lock: it has given way, or was never started
    uint64_t turns                  # atomic: odd in a turn, even asleep (quiescent)
    uint8_t* buffer                 # NetThread.buffer while it runs
    Connection* connection          # whose request the stay is for

cdef struct Connection:
    Post post                       # first: carries it from the acceptor to its thread
    NetThread* thread
    Net* net
    int32_t fd
    int32_t listener
    uint64_t id
    uint32_t blocked                # Block bits
    uint32_t flags                  # ConnectionFlag bits
    # input: bytes read and not handled, from the beginning of a frame
    uint8_t* in_buffer
    uint64_t in_capacity
    uint64_t in_begin
    uint64_t in_end
    int64_t reserved                # of the pool, for in_buffer
    int64_t strange                 # ... of what strangers may hold
    int64_t wanted                  # reservation it waits for (BLOCK_MEMORY)
    # answers
    Out out
    Op* ops                         # oldest first
    Op* ops_tail
    int64_t out_of_turn             # bytes of answers that wait for one before them
    int32_t in_flight               # Ops in the FIFO
    const char* failed              # BLOCK_FAILED: why, NULL when that has been logged
    Mark* marks                     # answers in `out` that are not sent yet, oldest first
    Mark* marks_tail
    int64_t stalled_ns              # since when the first frame that is kept stalls; 0: it does not
    int64_t last_active_ms
    Timer idle                      # and for the end of a stage
    Timer mute
    int32_t stage                   # Stage
    int32_t principal               # the control plane's number; 0: nobody knows
    int64_t stage_ends_ms           # monotonic: closed then unless it is open; 0: it is
    int64_t session_ends_ns         # monotonic: it must have said again who it is; 0: never
    int64_t renewed_ns              # when it last began to
    uint8_t* state                  # of its SASL exchange: the control plane's, owned
    uint32_t state_bytes
    Software* software              # of the last ApiVersions, owned; NULL: not known
    void* tls                       # Tls*; NULL: none
    void* quota                     # cached for principal and client id
    void* auth                      # Rights*; net.auth_free(auth) when it closes
    # lists of the thread
    Connection* next
    Connection* previous
    Connection* ready_next
    Connection* flush_next
    Connection* handshake_next
    Shake shake                     # its place in `shaking` or `awaiting`
    Connection* stalled_next
    Connection* closed_next
    uint8_t address[16]             # of the peer, IPv4 mapped
    uint16_t port

cdef struct NetThread:
    Net* net
    int32_t index
    int32_t epoll_fd
    int32_t event_fd
    void* runners                   # atomic Runner*: newest first, none is taken out
    Runner* runner                  # hang_lock: who runs it; NULL: whoever comes back may
    int32_t returning               # atomic: how many have come back and wait for their turn
    int32_t running                 # atomic
    # touched by other threads
    void* inbox                     # atomic Post*: newest first
    int32_t asleep                  # atomic: in epoll_wait with the inbox seen empty
    int32_t retry                   # atomic: stalled connections may try again
    int64_t assigned                # atomic: connections given to it
    # its own
    uint8_t* buffer                 # one read goes here; the runner's
    uint64_t buffer_bytes
    uint8_t* burst_clear            # what TLS records are gathered in; NULL: none were yet
    uint8_t* burst_records          # ... and collected in
    int64_t records_kept            # bytes of those that the sockets did not take
    int64_t clock_ns                # monotonic, as last read
    bint clock_is_old               # a handler has run since
    uint32_t burst                  # requests handled since the last read
    int64_t now_ns                  # monotonic, beginning of this turn
    int64_t now_ms
    int64_t wall_ms
    Wheel wheel
    Connection* connections
    Connection* ready               # with frames or bytes to handle in this turn
    Connection* ready_tail
    Connection* going               # what is left of those in this turn
    epoll_event_t events[EVENTS_MAX]
    int events_count
    int events_at                   # handled so far
    Connection* flush               # with output to send at the end of this turn
    Connection* stalled
    Connection* handshakes          # TLS that is to go on, oldest first
    Connection* handshakes_tail
    HandshakeList shaking           # TLS handshakes under way
    HandshakeList awaiting          # ... and those that have to wait until they may begin
    Op* free_ops
    int32_t free_ops_count
    Chunk* free_chunks
    int32_t free_chunks_count
    Connection* closed              # to be freed at the end of the turn
    int32_t draining                # stop: no reading any more
    void* ext                       # of the handlers
    Op* parking                     # parked by the handler that runs; NULL once it is answered
    Mark* answered                  # of the handler that runs
    Mark* free_marks
    int32_t free_marks_count
    Counters counters
    ApiTimes* times[API_KEYS_MAX]   # atomic: made when the first request of an API comes
    Slow slow[SLOW_KEPT]
    uint64_t slow_written           # atomic
    uint64_t slow_read              # atomic: of the control thread

cdef struct Api:
    Handler handler                 # NULL: the control lane
    int16_t min_version
    int16_t max_version
    int16_t first_flexible          # -1: none
    bint known

cdef struct LogLine:
    uint64_t sequence               # atomic
    int32_t level                   # as Python's logging: 20 info, 30 warning, 40 error
    char text[LOG_LINE_BYTES]

cdef struct LogRing:
    uint64_t head                   # atomic: next to write
    uint64_t tail                   # next to read
    int64_t dropped                 # atomic
    LogLine lines[LOG_LINES]

cdef struct Listener:
    int32_t fd
    int32_t port
    int32_t security                # Security
    void* tls                       # atomic: TLS context; NULL: none
    char name[64]
    char paces[CONGESTION_BYTES]    # BBR by its name, for clients on other machines; "": nothing
    int64_t connections             # atomic
    int64_t connections_max         # atomic
    void* rate                      # Bucket* of new connections; the limit is infinite for none
    int64_t resumes_ms              # of the acceptor: not looked at until then

cdef struct Net:
    NetSettings settings
    NetThread* threads[NET_THREADS_MAX]
    int32_t threads_count           # atomic: grows while the engine runs
    int32_t threads_wanted          # atomic: new connections go to so many of them
    pthread_mutex_t threads_lock    # threads are being added, or no more of them
    # What the acceptor is to do for another thread, with threads_lock held; NULL: nothing.
    int32_t (*errand)(Net* net) noexcept nogil
    int32_t errand_code             # of the last one
    pthread_cond_t errand_done
    int32_t stopping                # atomic
    Listener listeners[LISTENERS_MAX]
    int32_t listeners_count
    Api apis[API_KEYS_MAX]
    void* api_versions[API_VERSIONS_MAX]    # atomic ApiVersionsBody*, by version
    void* retired                   # replaced ones, until nobody can be copying one
    Pool pool
    JobQueue control
    JobQueue io
    Job* io_stalled                 # refused by the journal in the pool; io.lock
    void* principal_uses[PRINCIPAL_CHUNKS]  # atomic int64_t*, see principal_uses.pxd
    int64_t stalled                 # atomic: somebody got H_STALL since the last net_unstall_all
    int64_t unstalls                # atomic: how often there was room again
    pthread_t io_threads[NET_THREADS_MAX]
    uint64_t io_turns[NET_THREADS_MAX]      # as Runner.turns
    Stay io_stays[NET_THREADS_MAX]
    int32_t io_count                # started
    int32_t io_wanted               # io.lock; workers beyond these two sleep in io_parked
    int32_t io_held                 # io.lock; so many stand in a hanging disk
    pthread_cond_t io_parked
    int32_t io_next                 # atomic: hands out their indexes
    # The watch (runners.pxd)
    pthread_mutex_t hang_lock
    pthread_cond_t hang_moves       # a runner gave way, or the watch is to stop
    pthread_t watch
    bint watch_runs
    bint watch_stops                # hang_lock
    const char* places[PLACES_MAX]  # paths of log directories, borrowed; NULL: not told
    uint64_t hanging                # atomic: places that hang, bits
    int32_t hangs[PLACES_MAX]       # hang_lock: how many stand there
    LogRing log
    pthread_t acceptor
    int32_t acceptor_running
    int32_t acceptor_event_fd
    int32_t acceptor_full           # atomic: max.connections is reached, tell it when one closes
    int64_t slow_ns                 # atomic: requests that take longer are told; 0: none
    Histogram gil                   # the control thread's waits for the GIL, for a request each
    int64_t connections             # atomic
    int32_t shedding                # atomic: threads that close one that is too many
    int32_t listener_exempt         # atomic: max.connections and its rate are not its; -1: of all
    void* rate                      # Bucket* of new connections, all listeners
    int32_t quotas_on               # atomic: some client has a limit
    void* quotas                    # Quotas*
    uint64_t next_connection_id     # atomic
    pthread_mutex_t addresses_lock
    void* addresses                 # connections and limits per address, under its lock
    void (*auth_free)(void* auth) noexcept nogil
    void* broker                    # of the handlers: registry, journal, purgatory
