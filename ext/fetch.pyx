"""Fetch (key 1), versions 4 to 18: from the index to the socket without copying a record.

Behavior: partitions are read in their order while the response has room; the first that has
records gives at least one whole batch, however large (KIP-74). Bytes go from the page cache to
the socket by sendfile; short reads are copied, which costs less than a system call of their own.
A consumer sees up to the high watermark, with read_committed up to the last stable offset and
with the list of aborted transactions. With fewer than fetch.min.bytes the request waits in
purgatory until a watermark moves or max.wait.ms is over. A response to an incremental fetch
leaves out partitions that have nothing new.

An empty response waits in any case until what had been acknowledged when the request came is
durable: a client reads what it has written with acks=1, though it asks not to wait.

Quotas: a client that is over one gets an empty answer, for which it is not charged, and is not read
for as long as that tells; no request reads more than a client may have of all windows at once.

Followers: there are no other replicas, so a fetch with a replica id gets NOT_LEADER_OR_FOLLOWER.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from kbroker.ext.atomics cimport atomic_add_relaxed_i64, atomic_load_i64
from kbroker.ext.broker cimport COUNTED_FETCH, count_error
from kbroker.ext.connection cimport (
    Connection, H_CLOSE, H_CONTROL, H_DONE, H_PENDING, Net, Op, Reply, Request,
)
from kbroker.ext.connections cimport connection_mute
from kbroker.ext.error_codes cimport NONE
from kbroker.ext.fetch_news cimport fetch_choose
from kbroker.ext.fetch_read cimport fetch_evaluate
from kbroker.ext.fetch_rights cimport fetch_rights, fetch_settle
from kbroker.ext.fetch_state cimport Fetch, fetch_free, fetch_from_request, partition_drop_read
from kbroker.ext.fetch_wire cimport (
    FetchPartition, fetch_partition_bytes_max, fetch_put_end, fetch_put_head, fetch_put_partition,
    fetch_put_partition_tags, fetch_put_topic,
)
from kbroker.ext.journal cimport journal_demand
from kbroker.ext.log_wait cimport DURABLE_WAIT_MS
from kbroker.ext.posix cimport pread
from kbroker.ext.purgatory cimport WATCH_DATA, WATCH_STABLE, unwatch, watch
from kbroker.ext.quotas cimport Hold, QUOTA_FETCH, quota_answer, quota_correct, quota_window_max
from kbroker.ext.queue cimport request_submit
from kbroker.ext.response cimport op_close, op_deadline, op_park, op_ready
from kbroker.ext.response cimport reply_abandon, reply_begin, reply_end, reply_region
from kbroker.ext.rights cimport Rights, rights_of, rights_unref
from kbroker.ext.segment cimport Segment, segment_unref
from kbroker.ext.sessions cimport SESSIONLESS_ID
from kbroker.ext.wire cimport Writer, reserve, writer_init

cdef enum:
    COPY_BYTES_MAX = 8192           # shorter reads are copied into the response
    FIXED_BYTES = 64
    ANSWER_BYTES_MAX = 0x7FFFFFFF
    EVALUATIONS_MAX = 16            # in a row, while appends keep coming between read and watch
    HELD_LOOK_MS = 50
    RECORDS_BYTES_MAX = 1 << 30     # of an answer, whose length is an int32

cdef const char* UNANSWERED = b"no memory, a read error or too much to say while answering a fetch"


cdef inline bint complete(Fetch* fetch) noexcept nogil:
    if fetch.answer_now or fetch.error != NONE or fetch.count == 0:
        return True
    if fetch.head.max_wait_ms > 0 and fetch.bytes < fetch.head.min_bytes:
        return False
    return fetch.bytes > 0 or not fetch.awaits


# -- the response ---------------------------------------------------------------------------

cdef inline bint same_topic(const FetchPartition* a, const FetchPartition* b) noexcept nogil:
    if a.target.name == NULL:
        return memcmp(a.target.id, b.target.id, 16) == 0
    return a.target.name_length == b.target.name_length and memcmp(
        a.target.name, b.target.name, <size_t>a.target.name_length) == 0


cdef uint64_t measure(Fetch* fetch, int32_t* topics) noexcept nogil:
    """Bytes that the response takes at most, regions not counted; and its number of topics."""
    cdef FetchPartition* previous = NULL
    cdef FetchPartition* partition
    cdef uint64_t total = FIXED_BYTES
    cdef uint32_t i
    topics[0] = 0
    for i in range(fetch.count):
        partition = &fetch.partitions[i]
        if not partition.respond:
            continue
        partition.region = partition.slice.length > COPY_BYTES_MAX
        total += fetch_partition_bytes_max(partition)
        if not partition.region:
            total += <uint32_t>partition.slice.length
        if previous == NULL or not same_topic(previous, partition):
            topics[0] += 1
        previous = partition
    return total


cdef int32_t partitions_of_topic(Fetch* fetch, uint32_t first) noexcept nogil:
    cdef int32_t count = 0
    cdef uint32_t i
    for i in range(first, fetch.count):
        if fetch.partitions[i].respond:
            if not same_topic(&fetch.partitions[first], &fetch.partitions[i]):
                break
            count += 1
    return count


cdef void release_segment(void* segment) noexcept nogil:
    segment_unref(<Segment*>segment)


cdef bint put_records(Writer* w, Reply* reply, const uint8_t* body,
                      FetchPartition* partition) noexcept nogil:
    """The records, copied or as a region of the segment's file. False: they cannot be had."""
    cdef uint8_t* target
    cdef Segment* segment = partition.slice.segment
    if partition.slice.length == 0:
        return True
    if not partition.region:
        target = reserve(w, <size_t>partition.slice.length)
        return target != NULL and pread(
            partition.slice.fd, target, <size_t>partition.slice.length,
            partition.slice.position) == partition.slice.length
    partition.slice.segment = NULL      # the region has the reference now
    return reply_region(reply, <uint32_t>(w.p - body), partition.slice.fd,
                        partition.slice.position, partition.slice.length, segment,
                        release_segment) == 0


cdef inline void count_answer(Fetch* fetch, const FetchPartition* partition) noexcept nogil:
    count_error(fetch.broker, COUNTED_FETCH, partition.error)
    if partition.log == NULL:
        return
    atomic_add_relaxed_i64(&partition.log.counts.fetches, 1)
    atomic_add_relaxed_i64(&partition.log.counts.bytes_out, partition.slice.length)
    if partition.error != NONE:
        atomic_add_relaxed_i64(&partition.log.counts.fetches_failed, 1)


cdef bint write_partitions(Fetch* fetch, Writer* w, Reply* reply,
                           const uint8_t* body) noexcept nogil:
    cdef FetchPartition* partition
    cdef int32_t left = 0
    cdef uint32_t i
    for i in range(fetch.count):
        partition = &fetch.partitions[i]
        if not partition.respond:
            continue
        if left == 0:
            left = partitions_of_topic(fetch, i)
            fetch_put_topic(w, fetch.version, &partition.target, left)
        fetch_put_partition(w, fetch.version, partition)
        count_answer(fetch, partition)
        if not put_records(w, reply, body, partition):
            return False
        fetch_put_partition_tags(w, fetch.version, fetch.broker.node_id, partition)
        left -= 1
        if left == 0:
            fetch_put_end(w, fetch.version)
    return True


cdef bint write_throttled(Fetch* fetch, Reply* reply) noexcept nogil:
    """Nothing, and nothing of it in the session."""
    cdef int32_t session_id = SESSIONLESS_ID
    cdef uint8_t* body = reply_begin(reply, FIXED_BYTES)
    cdef Writer w
    if body == NULL:
        return False
    if fetch.incremental and fetch.error == NONE:
        session_id = fetch.session.id
    writer_init(&w, body, FIXED_BYTES)
    fetch_put_head(&w, fetch.version, fetch.error, session_id, 0, <int32_t>fetch.throttle_ms)
    count_error(fetch.broker, COUNTED_FETCH, fetch.error)
    fetch_put_end(&w, fetch.version)
    reply_end(reply, <uint32_t>(w.p - body))
    return True


cdef bint write_response(Fetch* fetch, Reply* reply) noexcept nogil:
    """False: no memory, a read error or too large; the connection must be closed."""
    cdef int32_t session_id, topics
    cdef uint64_t room
    cdef uint8_t* body
    cdef Writer w
    if fetch.throttle_ms > 0:
        return write_throttled(fetch, reply)
    session_id = fetch_choose(fetch)
    room = measure(fetch, &topics)
    if room > ANSWER_BYTES_MAX:
        return False
    body = reply_begin(reply, <uint32_t>room)
    if body == NULL:
        return False
    writer_init(&w, body, <size_t>room)
    fetch_put_head(&w, fetch.version, fetch.error, session_id, topics, 0)
    count_error(fetch.broker, COUNTED_FETCH, fetch.error)
    if not write_partitions(fetch, &w, reply, body):
        reply_abandon(reply)
        return False
    fetch_put_end(&w, fetch.version)
    reply_end(reply, <uint32_t>(w.p - body))
    return True


cdef bint write_within_quota(Fetch* fetch, Reply* reply, Net* net, Hold* hold,
                             int64_t now_ms) noexcept nogil:
    """As write_response, or the answer to a client that is over its quotas."""
    cdef double guess = <double>(fetch.bytes + FIXED_BYTES)
    cdef bint written
    fetch.throttle_ms = quota_answer(net, hold, QUOTA_FETCH, guess, now_ms)
    written = write_response(fetch, reply)
    if fetch.throttle_ms > 0 or not written:
        quota_correct(net, hold, QUOTA_FETCH, -guess, now_ms)
    else:
        quota_correct(net, hold, QUOTA_FETCH, <double>reply.bytes - guess, now_ms)
    return written


# -- waiting --------------------------------------------------------------------------------

cdef void stop_watching(Fetch* fetch) noexcept nogil:
    cdef uint32_t i
    for i in range(fetch.count):
        if fetch.partitions[i].watching:
            unwatch(&fetch.partitions[i].watch)
            fetch.partitions[i].watching = False


cdef bint watch_partition(Fetch* fetch, FetchPartition* partition, Op* op) noexcept nogil:
    if fetch.head.isolation == 1 and partition.acknowledged <= partition.high_watermark:
        return watch(&partition.watch, WATCH_STABLE, partition.log, op,
                     partition.last_stable_offset)
    return watch(&partition.watch, WATCH_DATA, partition.log, op, partition.high_watermark)


cdef bint watch_all(Fetch* fetch, Op* op) noexcept nogil:
    """False: a watermark has moved since it was read; evaluate again."""
    cdef FetchPartition* partition
    cdef uint32_t i
    for i in range(fetch.count):
        partition = &fetch.partitions[i]
        partition_drop_read(partition)
        if partition.log == NULL:
            continue                # left out
        if not watch_partition(fetch, partition, op):
            stop_watching(fetch)
            return False
        partition.watching = True
    if fetch.undurable:
        for i in range(fetch.count):
            partition = &fetch.partitions[i]
            if partition.log != NULL and partition.log.journal != NULL:
                journal_demand(partition.log.journal)
                if fetch.broker.directories_count == 1:
                    break
    return True


cdef void finish(Op* op) noexcept nogil:
    cdef Fetch* fetch = <Fetch*>op.ext
    cdef Connection* connection = op.connection
    cdef bint written
    op.ext = NULL
    if connection.quota == NULL:
        written = write_response(fetch, &op.reply)
    else:
        written = write_within_quota(fetch, &op.reply, op.net, <Hold*>connection.quota,
                                     op.thread.now_ms)
    if written:
        op_ready(op)
    else:
        op_close(op, UNANSWERED)
    if fetch.throttle_ms > 0:
        connection_mute(connection, fetch.throttle_ms)
    fetch_free(fetch)


cdef void set_deadline(Op* op, Fetch* fetch) noexcept nogil:
    """Nobody tells when a log that is held is free again: it is looked at."""
    cdef int64_t until_ms = fetch.ends_ms if fetch.head.max_wait_ms > 0 else fetch.durable_by_ms
    cdef int64_t left_ms = max(until_ms - op.thread.now_ms, <int64_t>0)
    op_deadline(op, min(left_ms, <int64_t>HELD_LOOK_MS) if fetch.held else left_ms)


cdef void on_moved(Op* op) noexcept nogil:
    """A watermark has moved: enough now? Else go on waiting."""
    cdef Fetch* fetch = <Fetch*>op.ext
    cdef bint was_held = fetch.held
    cdef int _i
    for _i in range(EVALUATIONS_MAX):
        stop_watching(fetch)
        fetch_evaluate(fetch)
        if complete(fetch):
            break
        if watch_all(fetch, op):
            if fetch.held or was_held or fetch.head.max_wait_ms <= 0:
                set_deadline(op, fetch)
            return
    else:
        fetch_evaluate(fetch)
    finish(op)


cdef void on_timeout(Op* op) noexcept nogil:
    cdef Fetch* fetch = <Fetch*>op.ext
    if fetch.held and op.thread.now_ms < fetch.ends_ms and not op.thread.draining:
        fetch.held = False
        set_deadline(op, fetch)
        on_moved(op)
        return
    stop_watching(fetch)
    fetch.head.max_wait_ms = 0      # over
    if op.thread.now_ms < fetch.durable_by_ms and not op.thread.draining:
        on_moved(op)
        return
    fetch_evaluate(fetch)
    finish(op)


cdef void on_cancel(Op* op) noexcept nogil:
    cdef Fetch* fetch = <Fetch*>op.ext
    if fetch != NULL:
        stop_watching(fetch)
        fetch_free(fetch)
        op.ext = NULL


cdef int wait(Request* request, Fetch* fetch) noexcept nogil:
    cdef Op* op = op_park(request)
    if op == NULL:
        fetch_free(fetch)
        request.reason = b"out of memory"
        return H_CLOSE
    op.ext = fetch
    op.on_event = on_moved
    op.on_timeout = on_timeout
    op.on_cancel = on_cancel
    set_deadline(op, fetch)
    if not watch_all(fetch, op):
        on_moved(op)
    return H_PENDING


cdef void bound(Fetch* fetch, Request* request) noexcept nogil:
    """No more than may leave. Of a quota that is what it lets through after a long rest: more
    would never leave. It waits for no more than that either, as with Apache Kafka."""
    cdef int64_t most = min(fetch.broker.fetch_bytes_max, <int64_t>RECORDS_BYTES_MAX)
    cdef double window = -1
    if request.quota != NULL:
        window = quota_window_max(request.net, <Hold*>request.quota, QUOTA_FETCH)
    if 0 <= window < <double>most:
        most = <int64_t>window
    fetch.head.bytes_max = <int32_t>min(<int64_t>max(fetch.head.bytes_max, 0), most)
    fetch.head.min_bytes = min(fetch.head.min_bytes, fetch.head.bytes_max)


cdef void on_settled(Op* op) noexcept nogil:
    """The rights are settled: go on as if the request came now."""
    fetch_settle(<Fetch*>op.ext, <Rights*>op.connection.auth)
    op.on_event = on_moved
    on_moved(op)


cdef int ask(Request* request, Fetch* fetch, int64_t version) noexcept nogil:
    """Have the control thread settle the rights; the session has moved on, so now or never."""
    cdef Op* op
    request.asked = fetch_rights(fetch, rights_of(request, version), version)
    if request.asked == NULL or request_submit(
            request, &request.net.control, True) != H_CONTROL:
        rights_unref(<Rights*>request.asked)
        fetch_free(fetch)
        request.reason = b"out of memory"
        return H_CLOSE
    op = request.op
    op.ext = fetch
    op.on_event = on_settled
    op.on_timeout = on_timeout
    op.on_cancel = on_cancel
    op.resumes = True
    op.missed = True                # as soon as it is home
    op_deadline(op, fetch.head.max_wait_ms)
    return H_PENDING


cdef int handle_fetch(Request* request) noexcept nogil:
    cdef Fetch* fetch = fetch_from_request(request)
    cdef int64_t version
    cdef bint written
    if fetch == NULL:
        return H_CLOSE
    bound(fetch, request)
    fetch.ends_ms = request.thread.now_ms + max(fetch.head.max_wait_ms, 0)
    fetch.durable_by_ms = request.thread.now_ms + DURABLE_WAIT_MS
    version = atomic_load_i64(&fetch.broker.rights_version)
    if version != 0 and not fetch_settle(fetch, rights_of(request, version)):
        return ask(request, fetch, version)
    fetch_evaluate(fetch)
    if not complete(fetch):
        return wait(request, fetch)
    if request.quota == NULL:
        written = write_response(fetch, &request.reply)
    else:
        written = write_within_quota(fetch, &request.reply, request.net, <Hold*>request.quota,
                                     request.thread.now_ms)
    request.throttle_ms = fetch.throttle_ms
    fetch_free(fetch)
    if written:
        return H_DONE
    request.reason = UNANSWERED
    return H_CLOSE
