"""Brokers of a producer and the sender's state (see client_peers.pxd)."""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_cas_i32, atomic_exchange_i32, atomic_fence, atomic_load_i32, atomic_store_i32,
)
from kbroker.ext.client_thread cimport loop_post_event
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock


cdef void sender_init(Sender* s, Accumulator* a, Driver* driver) noexcept nogil:
    memset(s, 0, sizeof(Sender))
    s.a = a
    s.driver = driver
    s.producer_id = NO_PRODUCER_ID
    s.producer_epoch = -1
    s.expiry_ns = INT64_MAX


cdef void sender_destroy(Sender* s) noexcept nogil:
    cdef int32_t i
    for i in range(s.peers_count):
        free(s.peers[i])
    free(s.active)
    free(s.transactional_id)


cdef void sender_wish(Sender* s, int32_t wish) noexcept nogil:
    cdef int32_t old = atomic_load_i32(&s.wishes)
    while not atomic_cas_i32(&s.wishes, &old, old | wish):
        pass
    if atomic_exchange_i32(&s.event_posted, 1) == 0:
        if loop_post_event(s.driver.loop, EVENT_SENDER, -1, -1, 0, NULL) != 0:
            atomic_store_i32(&s.event_posted, 0)    # the next wish tries again


cdef Peer* sender_peer(Sender* s, int32_t node) noexcept nogil:
    cdef Peer* peer = peer_of(s, node)
    if peer != NULL or s.peers_count == PEERS_MAX:
        return peer
    peer = <Peer*> calloc(1, sizeof(Peer))
    if peer == NULL:
        return NULL
    peer.node = node
    peer.link = -1
    s.peers[s.peers_count] = peer
    atomic_fence()
    atomic_store_i32(&s.peers_count, s.peers_count + 1)
    return peer


cdef Peer* peer_of(Sender* s, int32_t node) noexcept nogil:
    cdef int32_t i
    for i in range(atomic_load_i32(&s.peers_count)):
        if s.peers[i].node == node:
            return s.peers[i]
    return NULL


cdef void sender_wish_slowly(Sender* s, int32_t wish) noexcept nogil:
    cdef int64_t now_ns = s.driver.loop.now_ns
    if now_ns - s.metadata_asked_ns >= WISH_AGAIN_NS \
            or not atomic_load_i32(&s.wishes) & wish:
        s.metadata_asked_ns = now_ns
        sender_wish(s, wish)


# ---- outcomes for Python

cdef void settled_put(Sender* s, ClientBatch* b) noexcept nogil:
    pthread_mutex_lock(&s.a.lock)
    b.next = NULL
    if s.settled_tail != NULL:
        s.settled_tail.next = b
    else:
        s.settled = b
    s.settled_tail = b
    pthread_mutex_unlock(&s.a.lock)
    sender_wish(s, WISH_CALLBACKS)


cdef ClientBatch* settled_take(Sender* s) noexcept nogil:
    cdef ClientBatch* b
    pthread_mutex_lock(&s.a.lock)
    b = s.settled
    if b != NULL:
        s.settled = b.next
        if b.next == NULL:
            s.settled_tail = NULL
        b.next = NULL
    pthread_mutex_unlock(&s.a.lock)
    return b
