"""Fetch sessions (KIP-227): what a client fetches, kept between its requests.

Floor: below fetch. The cache is cut in shards by session id, each with a lock of its own; a
session has a lock too. Lock order: shard, then session. Neither is held while a log is read.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.posix cimport pthread_mutex_t

cdef enum:
    SESSION_SHARDS = 16
    SESSION_BUCKETS = 64
    SESSIONLESS_ID = 0
    INITIAL_EPOCH = 0
    FINAL_EPOCH = -1
    # Of all sessions together: about a million partitions, far more than the slots of a broker on
    # one machine hold in earnest, and little enough to give to those who ask in bad faith.
    SESSIONS_BYTES_MAX = 134217728

# What a request says of one partition.
ctypedef struct FetchTarget:
    const uint8_t* name             # not terminated; NULL where ids are used
    int32_t name_length
    uint8_t id[16]                  # zero where names are used
    int32_t partition
    bint known                      # the session has found it before
    int32_t current_leader_epoch    # -1: not told
    int32_t last_fetched_epoch      # -1: not told
    int32_t bytes_max
    int64_t offset

ctypedef struct SessionPartition:
    SessionPartition* next          # in order of turn
    SessionPartition* previous
    SessionPartition* chain         # of its bucket
    FetchTarget target              # name is owned, behind the struct
    uint32_t hash
    int64_t high_watermark          # as last told to the client; -1: never
    int64_t log_start

ctypedef struct SessionCache

ctypedef struct Session:
    Session* chain
    SessionCache* cache             # where its bytes are counted
    pthread_mutex_t lock
    int32_t id
    int32_t epoch                   # the next request must carry this one
    int32_t refs                    # atomic
    bint uses_ids
    int64_t last_used_ms
    int64_t generation              # grows when a partition is removed
    uint32_t count
    uint32_t mask
    SessionPartition order          # ring head
    SessionPartition** buckets

ctypedef struct SessionShard:
    pthread_mutex_t lock
    Session* buckets[SESSION_BUCKETS]

ctypedef struct SessionCache:
    SessionShard shards[SESSION_SHARDS]
    int64_t count                   # atomic
    int64_t bytes                   # atomic; of all partitions of all sessions
    int64_t slots_max               # max.incremental.fetch.session.cache.slots
    int64_t eviction_ms             # a session unused for so long makes room for a new one

cdef void sessions_init(SessionCache* cache, int64_t slots_max) noexcept nogil
cdef void sessions_destroy(SessionCache* cache) noexcept nogil
# A reference, or NULL.
cdef Session* session_find(SessionCache* cache, int32_t session_id) noexcept nogil
cdef void session_unref(Session* session) noexcept nogil
cdef void session_remove(SessionCache* cache, int32_t session_id) noexcept nogil
# A new session with a reference, or NULL when the cache is full of sessions in use, by their number
# or by their bytes.
cdef Session* session_create(SessionCache* cache, bint uses_ids, int64_t now_ms) noexcept nogil

cdef bint same_target(const FetchTarget* a, const FetchTarget* b) noexcept nogil

# -- with the session's lock held
# NULL: no memory, too many partitions in this session or bytes in all. The session then lacks what
# its client believes to be in it, and must go.
cdef SessionPartition* session_put(Session* session, const FetchTarget* target) noexcept nogil
cdef SessionPartition* session_get(Session* session, const FetchTarget* target) noexcept nogil
cdef void session_forget(Session* session, const FetchTarget* target) noexcept nogil
cdef void session_to_the_end(Session* session, SessionPartition* partition) noexcept nogil
cdef int32_t next_epoch(int32_t epoch) noexcept nogil
