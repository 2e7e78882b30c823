"""The loop of a producer or a consumer: one native thread that has its links (see client_link).

A turn: posts of other threads, what the sockets have, deadlines, the drivers, sending. It sleeps
until a socket, a post, loop_wake, the next deadline or the time that a driver gave; it never
takes the GIL. What Python must learn is posted as an event, for which the control thread waits in
`ClientLoop.events` (client_loop).
"""
from libc.stdint cimport int32_t

from kbroker.ext.client_link cimport Loop, LoopEvent, LoopPost
from kbroker.ext.posix cimport pthread_cond_t, pthread_mutex_t
from kbroker.ext.sockets cimport THREAD_NAME_BYTES

cdef enum EventKind:
    EVENT_CLOSED = 0            # the loop has ended; the last event
    EVENT_LINK_DOWN = 1         # link, code: a LinkCode
    EVENT_TOLD = 2              # by Python itself: ClientLoop.tell
    EVENT_DRIVER = 16           # the first kind that drivers may give away

cdef struct LoopShared:
    char name[THREAD_NAME_BYTES]
    pthread_mutex_t lock            # of the events, and of freeing a link
    pthread_cond_t arrived
    LoopEvent* events               # a ring
    int32_t capacity
    int32_t begin
    int32_t count
    bint closed                     # the thread has ended: no event comes after these

# ---- any thread --------------------------------------------------------------------------------

# The drivers run soon; cheap when the loop is awake or woken already.
cdef void loop_wake(Loop* loop) noexcept nogil
# `post.run` is called on the loop thread. After the loop's end it is called by close().
cdef void loop_post(Loop* loop, LoopPost* post) noexcept nogil
# To the control thread. -1: too many wait for it already (EVENTS_MAX); try again in a later turn.
cdef int loop_post_event(Loop* loop, int32_t kind, int32_t link, int32_t partition, int32_t code,
                         void* owner) noexcept nogil

# ---- the owner of the loop ---------------------------------------------------------------------

cdef Loop* loop_new() noexcept nogil
cdef void loop_free(Loop* loop) noexcept nogil
cdef void* loop_main(void* loop) noexcept nogil
cdef void loop_stop(Loop* loop) noexcept nogil
# After the thread has ended, or where it never ran: posts since then, links, the driver's end.
cdef void loop_finish(Loop* loop) noexcept nogil
