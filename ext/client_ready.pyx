"""What is ready to be sent (see client_ready.pxd)."""
from libc.stdint cimport INT64_MAX

from kbroker.ext.atomics cimport (
    atomic_load_i32, atomic_load_relaxed_i32, atomic_load_relaxed_i64,
)
from kbroker.ext.client_batch cimport ClientBatch
from kbroker.ext.client_peers cimport (
    Peer, WISH_AGAIN_NS, WISH_LINK, WISH_METADATA, peer_of, sender_wish_slowly,
)
from kbroker.ext.client_topic cimport Part, Topic, topic_loads
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    LOADS_EVERY_NS = 1000000        # partitions' queues are compared so often
    LOADS_PARTITIONS_MAX = 256      # of a topic; one with more is spread evenly


cdef int64_t part_ready(Sender* s, Part* part, bint hurry, int64_t now_ns) noexcept nogil:
    """When its first batch is to be sent, as far as time decides; INT64_MAX: it has none."""
    cdef int64_t due
    cdef ClientBatch* b
    pthread_mutex_lock(&part.lock)
    b = part.head
    if b == NULL:
        due = INT64_MAX
    elif b.attempts > 0:
        due = b.retry_ns
        if atomic_load_relaxed_i32(&part.leader_epoch) > b.attempt_epoch:
            due = now_ns            # it has a new leader
    elif hurry or b.closed or b.next != NULL or b.serial <= atomic_load_relaxed_i64(
        &s.a.flushed_serial
    ):
        due = now_ns
    else:
        due = b.created_ns + s.a.settings.linger_ns
    pthread_mutex_unlock(&part.lock)
    return due


cdef Peer* leader_of(Sender* s, Part* part) noexcept nogil:
    """NULL where Python has to find it first, or a link to it."""
    cdef int32_t node = atomic_load_relaxed_i32(&part.leader)
    cdef Peer* peer
    if node < 0:
        sender_wish_slowly(s, WISH_METADATA)
        return NULL
    peer = peer_of(s, node)
    if peer == NULL or atomic_load_i32(&peer.link) < 0:
        sender_wish_slowly(s, WISH_LINK)
        if peer == NULL:
            return NULL
    return peer


cdef bint peer_can_send(Sender* s, Peer* peer, int64_t now_ns) noexcept nogil:
    return atomic_load_i32(&peer.link) >= 0 and peer.in_flight < s.a.settings.in_flight_max \
        and peer.throttled_until <= now_ns


cdef int64_t ready_look(Sender* s, int64_t now_ns) noexcept nogil:
    cdef bint hurry = atomic_load_i32(&s.a.pool.waiting) > 0 or atomic_load_i32(&s.a.closed) != 0
    cdef int64_t soonest = INT64_MAX
    cdef int64_t due
    cdef Peer* peer
    cdef Part* part
    cdef int32_t i = 0
    while i < s.active_count:
        part = s.active[i]
        due = part_ready(s, part, hurry, now_ns)
        if due == INT64_MAX:
            if unlist(s, part):
                s.active[i] = s.active[s.active_count - 1]
                s.active_count -= 1
                continue
        elif due > now_ns:
            soonest = min(soonest, due)
        else:
            peer = leader_of(s, part)
            if peer == NULL:
                soonest = min(soonest, now_ns + WISH_AGAIN_NS)
            elif peer_can_send(s, peer, now_ns):
                peer.ready = True
                peer.ready_ns = peer.drained_ns = now_ns
            else:
                peer.ready_ns = now_ns
                if atomic_load_i32(&peer.link) < 0:
                    soonest = min(soonest, now_ns + WISH_AGAIN_NS)
                elif peer.throttled_until > now_ns:
                    soonest = min(soonest, peer.throttled_until)
        i += 1
    return soonest


cdef bint unlist(Sender* s, Part* part) noexcept nogil:
    """A partition without batches leaves the sender's list, unless its sequences need care."""
    cdef bint gone
    if part.flight != NULL or part.in_flight > 0 or part.rewrite or part.unresolved_sequence >= 0:
        return False
    pthread_mutex_lock(&part.lock)
    gone = part.head == NULL
    if gone:
        part.listed = False
    pthread_mutex_unlock(&part.lock)
    return gone


cdef void ready_loads(Sender* s, int64_t now_ns) noexcept nogil:
    cdef int64_t lengths[LOADS_PARTITIONS_MAX]
    cdef int32_t ids[LOADS_PARTITIONS_MAX]
    cdef Topic* t
    cdef Peer* peer
    cdef int32_t i, count, leader
    if now_ns < s.loads_due_ns:
        return
    s.loads_due_ns = now_ns + LOADS_EVERY_NS
    pthread_mutex_lock(&s.a.lock)
    t = s.a.topics
    pthread_mutex_unlock(&s.a.lock)
    while t != NULL:
        count = 0
        for i in range(t.count if 2 <= t.count <= LOADS_PARTITIONS_MAX else 0):
            leader = atomic_load_relaxed_i32(&t.parts[i].leader)
            peer = peer_of(s, leader) if leader >= 0 else NULL
            if leader < 0 or (
                s.a.settings.availability_ns > 0 and peer != NULL
                and peer.ready_ns - peer.drained_ns > s.a.settings.availability_ns
            ):
                continue
            lengths[count] = atomic_load_relaxed_i32(&t.parts[i].length)
            ids[count] = i
            count += 1
        if 2 <= t.count <= LOADS_PARTITIONS_MAX:
            topic_loads(t, lengths, ids, count, t.count)
        t = t.next
