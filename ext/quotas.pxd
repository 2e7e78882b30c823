"""Quotas of clients, measured where requests are handled.

Limits come from the control plane, each for a `QuotaKey`: a user (by the control plane's number),
a client id (by a hash of 128 bits: clients choose their ids, so nobody gains by two that have one
hash), both, their defaults, or an address. Which of them holds for a client, and with whom it
shares what it uses, follows kbroker/security/quotas.py; unit tests compare the two.

What is used is summed in a Bucket (quota_bucket.pxd), one for all who share a limit. A connection
keeps in its Hold what holds for the client that asked last, valid while `Quotas.version` stays. A
bucket that nobody has used for all windows is as good as none, so those make room for others; when
all are in use, further clients of a limit share one.

Without any limit `Net.quotas_on` is 0, and nothing but that is looked at.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbroker.ext.connection cimport Connection, Net, NetThread, Request
from kbroker.ext.posix cimport pthread_mutex_t
from kbroker.ext.quota_bucket cimport Bucket, QuotaKey, Sampling

# Kinds of quotas.
cdef enum:
    QUOTA_PRODUCE = 0           # bytes of requests
    QUOTA_FETCH                 # bytes of answers
    QUOTA_REQUEST               # percent of a thread's time
    QUOTA_CLIENT_KINDS
    QUOTA_CONNECT = QUOTA_CLIENT_KINDS      # new connections; the key is an address
    QUOTA_KINDS

cdef enum:
    USER_DEFAULT = -1           # all users that have no limit of their own
    USER_ABSENT = -2            # the limit does not depend on the user
    QUOTA_SLOTS = 4096
    QUOTA_BUCKETS_MAX = 65536

cdef enum ClientPart:
    CLIENT_ABSENT = 0
    CLIENT_DEFAULT
    CLIENT_NAMED

cdef struct Rule:
    Rule* next
    QuotaKey key
    double limit

cdef struct Quotas:
    uint64_t version            # atomic: of the rules
    Sampling sampling
    uint64_t seed
    pthread_mutex_t lock        # of what follows
    Rule* rules[QUOTA_SLOTS]
    int64_t rules_count[QUOTA_KINDS]
    int64_t shapes[QUOTA_KINDS][4]          # rules; 1: by user, 2: by client id
    Bucket* buckets[QUOTA_SLOTS]
    int64_t buckets_count
    int64_t swept_ms
    int64_t throttled[QUOTA_KINDS]          # atomic: answers, or connections
    int64_t throttled_ms[QUOTA_KINDS]       # atomic

# What holds for the client of a connection, or of a job; belongs to that.
cdef struct Hold:
    uint64_t version
    QuotaKey who                # user and client; kind is 0
    NetThread* thread           # of its connection; NULL: of a job
    int64_t mark_ns             # since when its time is to be counted; 0: it is not
    int64_t owed_ns             # of reading and sending, counted with the next request
    Bucket* buckets[QUOTA_CLIENT_KINDS]     # NULL: no limit

# ---- the engine's life
cdef Quotas* quotas_new(int64_t samples, int64_t window_s) noexcept nogil
# Nobody has a Hold any more.
cdef void quotas_free(Quotas* quotas) noexcept nogil

# ---- limits, from the control thread
cdef void quota_key(Quotas* quotas, QuotaKey* key, int kind, int32_t user, int client,
                    const uint8_t* client_id, int64_t length) noexcept nogil
# Of an address, 16 bytes; NULL: of all others.
cdef void quota_address(QuotaKey* key, const uint8_t* address) noexcept nogil
# remove: there is none any more. 0, or -1 when memory is out.
cdef int quota_rule(Net* net, const QuotaKey* key, double limit, bint remove) noexcept nogil
# All limits of a kind go.
cdef void quota_forget(Net* net, int kind) noexcept nogil
# For tests: whose consumption a client's counts with, and the limit; False: none.
cdef bint quota_find(Quotas* quotas, const QuotaKey* who, int kind, QuotaKey* whose,
                     double* limit) noexcept nogil

# ---- network threads
# Sets request.quota, and begins to count its time. Where Net.quotas_on.
cdef void quota_begin(Request* request) noexcept nogil
# Time from here on is the client's, until quota_pause.
cdef void quota_resume(Connection* connection) noexcept nogil
cdef void quota_pause(Connection* connection) noexcept nogil
cdef void quota_leave(Net* net, Hold* hold) noexcept nogil

# ---- network threads and the I/O pool
# A Hold of its own for a job, NULL where there is nothing to hold.
cdef Hold* quota_share(Net* net, const Hold* hold) noexcept nogil
# What an answer tells, ms: for its time, and for `bytes` where kind is not QUOTA_REQUEST. Hold may
# be NULL, here and below.
cdef int64_t quota_answer(Net* net, Hold* hold, int kind, double bytes,
                          int64_t now_ms) noexcept nogil
cdef int64_t quota_bytes(Net* net, Hold* hold, int kind, double bytes,
                         int64_t now_ms) noexcept nogil
# A Produce was handled: sets request.throttle_ms, for its bytes, and where an answer is due for its
# time.
cdef void quota_produce(Request* request, bint answered) noexcept nogil
# For time that somebody else has measured.
cdef int64_t quota_take_ns(Net* net, Hold* hold, int64_t ns, int64_t now_ms) noexcept nogil
# The limit of what one kind may use of all windows at once; -1: none.
cdef double quota_window_max(Net* net, const Hold* hold, int kind) noexcept nogil
# Count without asking (amount below 0: take back).
cdef void quota_correct(Net* net, Hold* hold, int kind, double amount,
                        int64_t now_ms) noexcept nogil

# ---- the acceptor
# A connection of an address: how long it should wait, ms, not counted then; 0: it may come.
cdef int64_t quota_connect(Net* net, const uint8_t* address, int64_t now_ms) noexcept nogil
