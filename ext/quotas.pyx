"""Quotas of clients (see quotas.pxd).

Locks: Quotas.lock guards rules and the table of buckets with their references; it is taken when the
client of a connection or the rules are others than before. A bucket's own may be taken under it.
"""
from libc.stdint cimport int16_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_add_relaxed_i64, atomic_add_u64, atomic_load_i64, atomic_load_u64, atomic_store_i32,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.marks cimport clock_of
from kbroker.ext.posix cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from kbroker.ext.quota_bucket cimport bucket_add, bucket_free, bucket_limit, bucket_new, bucket_take

cdef enum:
    SAMPLES_MAX = 3600
    SWEEP_MS = 1000             # between searches for buckets that nobody uses
    SHAPE_USER = 1
    SHAPE_CLIENT = 2

cdef uint64_t MULTIPLIER = 0x9E3779B97F4A7C15
cdef double PERCENT_OF_NS = 100.0 / 1000000000


# ---- keys --------------------------------------------------------------------------------------

cdef inline uint64_t mix(uint64_t h, uint64_t word) noexcept nogil:
    h = (h ^ word) * MULTIPLIER
    return h ^ (h >> 29)


cdef void digest(uint64_t seed, const uint8_t* p, int64_t n, QuotaKey* key) noexcept nogil:
    cdef uint64_t a = seed ^ <uint64_t> n
    cdef uint64_t b = ~seed
    cdef uint64_t word
    while n >= 8:
        memcpy(&word, p, 8)
        a = mix(a, word)
        b = mix(b, word ^ MULTIPLIER)
        p += 8
        n -= 8
    word = 0
    memcpy(&word, p, <size_t> n)
    a = mix(mix(a, word), b)
    key.high = a
    key.low = mix(mix(b, word ^ MULTIPLIER), a >> 7)


cdef void quota_key(Quotas* quotas, QuotaKey* key, int kind, int32_t user, int client,
                    const uint8_t* client_id, int64_t length) noexcept nogil:
    memset(key, 0, sizeof(QuotaKey))
    key.user = user
    key.kind = <int16_t> kind
    key.client = <int16_t> client
    if client == CLIENT_NAMED:
        digest(quotas.seed, client_id, length, key)


cdef void quota_address(QuotaKey* key, const uint8_t* address) noexcept nogil:
    memset(key, 0, sizeof(QuotaKey))
    key.user = USER_ABSENT
    key.kind = QUOTA_CONNECT
    key.client = CLIENT_DEFAULT
    if address != NULL:
        memcpy(&key.high, address, 8)
        memcpy(&key.low, address + 8, 8)
        key.client = CLIENT_NAMED


cdef inline bint same(const QuotaKey* a, const QuotaKey* b) noexcept nogil:
    return memcmp(a, b, sizeof(QuotaKey)) == 0


cdef inline uint64_t slot_of(const Quotas* quotas, const QuotaKey* key) noexcept nogil:
    cdef uint64_t h = mix(quotas.seed ^ key.high, key.low)
    h = mix(h, <uint64_t> <unsigned int> key.user << 32
            | <uint64_t> (key.kind << 8 | key.client))
    return (h >> 20) % QUOTA_SLOTS


# ---- rules -------------------------------------------------------------------------------------

cdef Rule** rule_at(Quotas* quotas, const QuotaKey* key) noexcept nogil:
    """Where the pointer to a rule is, or would be."""
    cdef Rule** at = &quotas.rules[slot_of(quotas, key)]
    while at[0] != NULL and not same(&at[0].key, key):
        at = &at[0].next
    return at


cdef void count_rule(Quotas* quotas, const QuotaKey* key, int change) noexcept nogil:
    cdef int shape = (SHAPE_USER if key.user != USER_ABSENT else 0) \
        | (SHAPE_CLIENT if key.client != CLIENT_ABSENT else 0)
    atomic_add_relaxed_i64(&quotas.rules_count[key.kind], change)
    quotas.shapes[key.kind][shape] += change


cdef void changed(Net* net, Quotas* quotas) noexcept nogil:
    """With the lock held."""
    cdef bint on = False
    cdef int kind
    for kind in range(QUOTA_CLIENT_KINDS):
        on |= quotas.rules_count[kind] > 0
    atomic_add_u64(&quotas.version, 1)
    atomic_store_i32(&net.quotas_on, on)


cdef int quota_rule(Net* net, const QuotaKey* key, double limit, bint remove) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    cdef Rule** at
    cdef Rule* rule
    cdef int done = 0
    pthread_mutex_lock(&quotas.lock)
    at = rule_at(quotas, key)
    rule = at[0]
    if remove:
        if rule != NULL:
            at[0] = rule.next
            free(rule)
            count_rule(quotas, key, -1)
    elif rule != NULL:
        rule.limit = limit
    else:
        rule = <Rule*> calloc(1, sizeof(Rule))
        if rule == NULL:
            done = -1
        else:
            rule.key = key[0]
            rule.limit = limit
            at[0] = rule
            count_rule(quotas, key, 1)
    changed(net, quotas)
    pthread_mutex_unlock(&quotas.lock)
    return done


cdef void quota_forget(Net* net, int kind) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    cdef Rule** at
    cdef Rule* rule
    cdef int slot
    pthread_mutex_lock(&quotas.lock)
    for slot in range(QUOTA_SLOTS if quotas.rules_count[kind] > 0 else 0):
        at = &quotas.rules[slot]
        while at[0] != NULL:
            rule = at[0]
            if rule.key.kind != kind:
                at = &rule.next
                continue
            at[0] = rule.next
            count_rule(quotas, &rule.key, -1)
            free(rule)
    changed(net, quotas)
    pthread_mutex_unlock(&quotas.lock)


cdef bint has_rule(Quotas* quotas, const QuotaKey* who, int kind, int32_t user,
                   int client, double* limit) noexcept nogil:
    """Is there a limit for this user and client, where `who` says which they are?"""
    cdef QuotaKey key = who[0]
    cdef Rule* rule
    if client == CLIENT_NAMED and who.client != CLIENT_NAMED:
        return False
    key.kind = <int16_t> kind
    key.user = user
    key.client = <int16_t> client
    if client != CLIENT_NAMED:
        key.high = key.low = 0
    rule = rule_at(quotas, &key)[0]
    if rule != NULL:
        limit[0] = rule.limit
    return rule != NULL


cdef int shape_of(Quotas* quotas, const QuotaKey* who, int kind) noexcept nogil:
    """What a client's consumption is told apart by."""
    cdef int32_t users[2]
    cdef double limit
    cdef int shape
    cdef int found = 0
    cdef int shapes = 0
    cdef int i
    for shape in range(4):
        if quotas.shapes[kind][shape] > 0:
            found = shape
            shapes += 1
    if shapes <= 1:
        return found
    users[0] = who.user
    users[1] = USER_DEFAULT
    for i in range(2):
        if has_rule(quotas, who, kind, users[i], CLIENT_NAMED, &limit) \
                or has_rule(quotas, who, kind, users[i], CLIENT_DEFAULT, &limit):
            return SHAPE_USER | SHAPE_CLIENT
        if has_rule(quotas, who, kind, users[i], CLIENT_ABSENT, &limit):
            return SHAPE_USER
    return SHAPE_CLIENT


cdef bint quota_find(Quotas* quotas, const QuotaKey* who, int kind, QuotaKey* whose,
                     double* limit) noexcept nogil:
    cdef int shape = shape_of(quotas, who, kind)
    whose[0] = who[0]
    whose.kind = <int16_t> kind
    if not shape & SHAPE_USER:
        whose.user = USER_ABSENT
    if not shape & SHAPE_CLIENT:
        whose.client = CLIENT_ABSENT
    if whose.client == CLIENT_ABSENT:
        whose.high = whose.low = 0
        return whose.user != USER_ABSENT and (
            has_rule(quotas, whose, kind, whose.user, CLIENT_ABSENT, limit)
            or has_rule(quotas, whose, kind, USER_DEFAULT, CLIENT_ABSENT, limit))
    if whose.user == USER_ABSENT:
        return has_rule(quotas, whose, kind, USER_ABSENT, CLIENT_NAMED, limit) \
            or has_rule(quotas, whose, kind, USER_ABSENT, CLIENT_DEFAULT, limit)
    return has_rule(quotas, whose, kind, whose.user, CLIENT_NAMED, limit) \
        or has_rule(quotas, whose, kind, whose.user, CLIENT_DEFAULT, limit) \
        or has_rule(quotas, whose, kind, USER_DEFAULT, CLIENT_NAMED, limit) \
        or has_rule(quotas, whose, kind, USER_DEFAULT, CLIENT_DEFAULT, limit)


# ---- the table of buckets ----------------------------------------------------------------------

cdef void sweep(Quotas* quotas, int64_t now_ms) noexcept nogil:
    """Drop the buckets whose windows are all over."""
    cdef Bucket** at
    cdef Bucket* bucket
    cdef int64_t idle_ms = (quotas.sampling.samples + 1) * quotas.sampling.window_ms
    cdef int slot
    quotas.swept_ms = now_ms
    for slot in range(QUOTA_SLOTS):
        at = &quotas.buckets[slot]
        while at[0] != NULL:
            bucket = at[0]
            if bucket.refs > 0 or now_ms - bucket.used_ms < idle_ms:
                at = &bucket.next
                continue
            at[0] = bucket.next
            atomic_add_relaxed_i64(&quotas.buckets_count, -1)
            bucket_free(bucket)


cdef Bucket** bucket_at(Quotas* quotas, const QuotaKey* key) noexcept nogil:
    cdef Bucket** at = &quotas.buckets[slot_of(quotas, key)]
    while at[0] != NULL and not same(&at[0].key, key):
        at = &at[0].next
    return at


cdef Bucket* bucket_of(Quotas* quotas, const QuotaKey* whose, double limit,
                       int64_t now_ms) noexcept nogil:
    """With a reference; NULL when memory is out. With the lock held."""
    cdef QuotaKey key = whose[0]
    cdef Bucket** at = bucket_at(quotas, &key)
    if at[0] == NULL and quotas.buckets_count >= QUOTA_BUCKETS_MAX:
        if now_ms - quotas.swept_ms >= SWEEP_MS:
            sweep(quotas, now_ms)
        if quotas.buckets_count >= QUOTA_BUCKETS_MAX:
            key.high = key.low = 0      # one for all further clients of the user, or of nobody
        at = bucket_at(quotas, &key)
    if at[0] == NULL:
        at[0] = bucket_new(&quotas.sampling, limit)
        if at[0] == NULL:
            return NULL
        at[0].key = key
        at[0].used_ms = now_ms
        atomic_add_relaxed_i64(&quotas.buckets_count, 1)
    bucket_limit(at[0], limit)
    at[0].refs += 1
    return at[0]


# ---- holds -------------------------------------------------------------------------------------

cdef void let_go(Hold* hold) noexcept nogil:
    """With the lock held."""
    cdef int kind
    for kind in range(QUOTA_CLIENT_KINDS):
        if hold.buckets[kind] != NULL:
            hold.buckets[kind].refs -= 1
            hold.buckets[kind] = NULL


cdef void look_up(Quotas* quotas, Hold* hold, int64_t now_ms) noexcept nogil:
    cdef QuotaKey whose
    cdef double limit = 0
    cdef int kind
    pthread_mutex_lock(&quotas.lock)
    let_go(hold)
    hold.version = atomic_load_u64(&quotas.version)
    for kind in range(QUOTA_CLIENT_KINDS):
        if quotas.rules_count[kind] > 0 and quota_find(quotas, &hold.who, kind, &whose, &limit):
            hold.buckets[kind] = bucket_of(quotas, &whose, limit, now_ms)
    pthread_mutex_unlock(&quotas.lock)


cdef void quota_begin(Request* request) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> request.net.quotas
    cdef Connection* connection = request.connection
    cdef Hold* hold = <Hold*> connection.quota
    cdef QuotaKey who
    if hold == NULL:
        connection.quota = hold = <Hold*> calloc(1, sizeof(Hold))
        if hold == NULL:
            return
    quota_key(quotas, &who, 0, request.principal & ~1,      # one user, by token or not
              CLIENT_NAMED if request.client_id_length > 0 else CLIENT_ABSENT,
              <const uint8_t*> request.client_id, request.client_id_length)
    if hold.version != atomic_load_u64(&quotas.version) or not same(&who, &hold.who):
        hold.who = who
        look_up(quotas, hold, request.thread.now_ms)
    request.quota = hold
    hold.thread = request.thread
    if hold.mark_ns == 0:
        quota_resume(connection)


cdef void quota_resume(Connection* connection) noexcept nogil:
    cdef Hold* hold = <Hold*> connection.quota
    if hold.buckets[QUOTA_REQUEST] != NULL:
        hold.mark_ns = clock_of(connection.thread)


cdef int64_t spent_ns(Hold* hold) noexcept nogil:
    """Since the mark, which moves on, and what was owed."""
    cdef int64_t ns = hold.owed_ns - hold.mark_ns
    hold.owed_ns = 0
    if hold.mark_ns == 0:
        return ns
    hold.mark_ns = monotonic_ns()
    if hold.thread != NULL:
        hold.thread.clock_ns = hold.mark_ns
        hold.thread.clock_is_old = False
    return ns + hold.mark_ns


cdef void quota_pause(Connection* connection) noexcept nogil:
    cdef Hold* hold = <Hold*> connection.quota
    if hold.mark_ns != 0:
        hold.owed_ns += clock_of(connection.thread) - hold.mark_ns
        hold.mark_ns = 0


cdef void quota_leave(Net* net, Hold* hold) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    if hold == NULL:
        return
    pthread_mutex_lock(&quotas.lock)
    let_go(hold)
    pthread_mutex_unlock(&quotas.lock)
    free(hold)


cdef Hold* quota_share(Net* net, const Hold* hold) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    cdef Hold* copy
    cdef bint any = False
    cdef int kind
    for kind in range(QUOTA_CLIENT_KINDS if hold != NULL else 0):
        any |= hold.buckets[kind] != NULL
    if not any:
        return NULL
    copy = <Hold*> malloc(sizeof(Hold))
    if copy == NULL:
        return NULL
    copy[0] = hold[0]
    copy.thread = NULL
    copy.mark_ns = copy.owed_ns = 0
    pthread_mutex_lock(&quotas.lock)
    for kind in range(QUOTA_CLIENT_KINDS):
        if copy.buckets[kind] != NULL:
            copy.buckets[kind].refs += 1
    pthread_mutex_unlock(&quotas.lock)
    return copy


# ---- what is used ------------------------------------------------------------------------------

cdef int64_t told(Quotas* quotas, int kind, int64_t wait_ms) noexcept nogil:
    if wait_ms > 0:
        atomic_add_relaxed_i64(&quotas.throttled[kind], 1)
        atomic_add_relaxed_i64(&quotas.throttled_ms[kind], wait_ms)
    return wait_ms


cdef int64_t quota_take_ns(Net* net, Hold* hold, int64_t ns, int64_t now_ms) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    cdef int64_t wait_ms
    if hold == NULL or hold.buckets[QUOTA_REQUEST] == NULL:
        return 0
    wait_ms = bucket_take(&quotas.sampling, hold.buckets[QUOTA_REQUEST],
                          <double> ns * PERCENT_OF_NS, now_ms)
    return told(quotas, QUOTA_REQUEST, min(wait_ms, quotas.sampling.window_ms))


cdef int64_t quota_answer(Net* net, Hold* hold, int kind, double bytes,
                          int64_t now_ms) noexcept nogil:
    cdef int64_t wait_ms = 0
    if hold != NULL:
        wait_ms = quota_take_ns(net, hold, spent_ns(hold), now_ms)
        if kind != QUOTA_REQUEST:
            wait_ms = max(wait_ms, quota_bytes(net, hold, kind, bytes, now_ms))
    return wait_ms


cdef int64_t quota_bytes(Net* net, Hold* hold, int kind, double bytes,
                         int64_t now_ms) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    if hold == NULL or hold.buckets[kind] == NULL:
        return 0
    return told(quotas, kind, bucket_take(&quotas.sampling, hold.buckets[kind], bytes, now_ms))


cdef void quota_produce(Request* request, bint answered) noexcept nogil:
    cdef Hold* hold = <Hold*> request.quota
    cdef double size = <double> (request.end - request.frame)
    cdef int64_t now_ms
    if hold == NULL:
        return
    now_ms = monotonic_ns() // 1000000 if request.thread == NULL else request.thread.now_ms
    if answered:
        request.throttle_ms = quota_answer(request.net, hold, QUOTA_PRODUCE, size, now_ms)
    else:
        spent_ns(hold)
        request.throttle_ms = quota_bytes(request.net, hold, QUOTA_PRODUCE, size, now_ms)


cdef double quota_window_max(Net* net, const Hold* hold, int kind) noexcept nogil:
    cdef const Quotas* quotas = <Quotas*> net.quotas
    if hold == NULL or hold.buckets[kind] == NULL:
        return -1
    return hold.buckets[kind].limit * (quotas.sampling.samples - 1) \
        * <double> quotas.sampling.window_ms / 1000


cdef void quota_correct(Net* net, Hold* hold, int kind, double amount,
                        int64_t now_ms) noexcept nogil:
    if hold != NULL and hold.buckets[kind] != NULL:
        bucket_add(&(<Quotas*> net.quotas).sampling, hold.buckets[kind], amount, now_ms)


cdef int64_t quota_connect(Net* net, const uint8_t* address, int64_t now_ms) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    cdef QuotaKey key
    cdef Bucket* bucket = NULL
    cdef double limit = 0
    cdef int64_t wait_ms = 0
    if atomic_load_i64(&quotas.rules_count[QUOTA_CONNECT]) == 0:
        return 0
    quota_address(&key, address)
    pthread_mutex_lock(&quotas.lock)
    if has_rule(quotas, &key, QUOTA_CONNECT, USER_ABSENT, CLIENT_NAMED, &limit) \
            or has_rule(quotas, &key, QUOTA_CONNECT, USER_ABSENT, CLIENT_DEFAULT, &limit):
        bucket = bucket_of(quotas, &key, limit, now_ms)
    if bucket != NULL:
        bucket.refs -= 1
        wait_ms = min(bucket_take(&quotas.sampling, bucket, 1, now_ms), quotas.sampling.window_ms)
        if wait_ms > 0:
            bucket_add(&quotas.sampling, bucket, -1, now_ms)
    pthread_mutex_unlock(&quotas.lock)
    return told(quotas, QUOTA_CONNECT, wait_ms)


# ---- life --------------------------------------------------------------------------------------

cdef Quotas* quotas_new(int64_t samples, int64_t window_s) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> calloc(1, sizeof(Quotas))
    if quotas == NULL:
        return NULL
    pthread_mutex_init(&quotas.lock, NULL)
    quotas.sampling.samples = <int32_t> min(samples, <int64_t> SAMPLES_MAX)
    quotas.sampling.window_ms = window_s * 1000
    quotas.version = 1
    quotas.seed = <uint64_t> monotonic_ns() * MULTIPLIER
    return quotas


cdef void quotas_free(Quotas* quotas) noexcept nogil:
    cdef Bucket* bucket
    cdef Rule* rule
    cdef int slot
    if quotas == NULL:
        return
    for slot in range(QUOTA_SLOTS):
        while quotas.buckets[slot] != NULL:
            bucket = quotas.buckets[slot]
            quotas.buckets[slot] = bucket.next
            bucket_free(bucket)
        while quotas.rules[slot] != NULL:
            rule = quotas.rules[slot]
            quotas.rules[slot] = rule.next
            free(rule)
    pthread_mutex_destroy(&quotas.lock)
    free(quotas)
