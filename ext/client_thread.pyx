"""The thread of a client's loop (see client_thread.pxd).

The thread sleeps, and posters wake it, by the same rule as the broker's network threads: it says
that it sleeps, then looks once more; they post, then look whether it sleeps.
"""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from kbroker.ext.atomics cimport (
    atomic_cas_ptr, atomic_exchange_i32, atomic_exchange_ptr, atomic_fence, atomic_load_i32,
    atomic_load_ptr, atomic_load_relaxed_i32, atomic_store_i32, atomic_store_ptr,
)
from kbroker.ext.client_link cimport (
    Driver, LINKS_MAX, LINK_BROKEN, LINK_TIMEOUT, LOOP_BUFFER_BYTES, Link, LoopEvent,
    link_deadline_ns, link_fail, link_flush, link_free, link_receive, loops_note,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.posix cimport (
    close, pthread_cond_destroy, pthread_cond_signal, pthread_mutex_destroy, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock,
)
from kbroker.ext.sockets cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP,
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, cond_init_monotonic, epoll_create1, epoll_ctl, epoll_event_t,
    epoll_wait, eventfd, thread_name, write,
)

cdef enum:
    READY_MAX = 64                  # sockets that one turn hears of
    EVENTS_FIRST = 64
    EVENTS_MAX = 65536              # that wait for the control thread
    SLEEP_MS_MAX = 1000000000


# ---- any thread --------------------------------------------------------------------------------

cdef void wake_sleeper(Loop* loop) noexcept nogil:
    cdef uint64_t one = 1
    atomic_fence()
    if atomic_load_relaxed_i32(&loop.asleep) and atomic_exchange_i32(&loop.asleep, 0):
        write(loop.event_fd, &one, sizeof(one))


cdef void loop_wake(Loop* loop) noexcept nogil:
    if atomic_load_relaxed_i32(&loop.woken) or atomic_exchange_i32(&loop.woken, 1):
        return
    wake_sleeper(loop)


cdef void loop_post(Loop* loop, LoopPost* post) noexcept nogil:
    cdef void* head = atomic_load_ptr(&loop.inbox)
    while True:
        post.next = <LoopPost*> head
        if atomic_cas_ptr(&loop.inbox, &head, post):
            break
    wake_sleeper(loop)


cdef bint events_grow(LoopShared* shared) noexcept nogil:
    """Room for one event more; the lock is held."""
    cdef int32_t capacity = shared.capacity * 2 if shared.capacity else EVENTS_FIRST
    cdef LoopEvent* larger
    cdef int32_t index
    if shared.count < shared.capacity:
        return True
    if capacity > EVENTS_MAX:
        return False
    larger = <LoopEvent*> malloc(<size_t> capacity * sizeof(LoopEvent))
    if larger == NULL:
        return False
    for index in range(shared.count):
        larger[index] = shared.events[(shared.begin + index) % shared.capacity]
    free(shared.events)
    shared.events = larger
    shared.capacity = capacity
    shared.begin = 0
    return True


cdef int loop_post_event(Loop* loop, int32_t kind, int32_t link, int32_t partition, int32_t code,
                         void* owner) noexcept nogil:
    cdef LoopShared* shared = <LoopShared*> loop.shared
    cdef LoopEvent* event
    cdef int done = -1
    pthread_mutex_lock(&shared.lock)
    if events_grow(shared):
        event = &shared.events[(shared.begin + shared.count) % shared.capacity]
        event.kind = kind
        event.link = link
        event.partition = partition
        event.code = code
        event.owner = owner
        shared.count += 1
        done = 0
    pthread_cond_signal(&shared.arrived)
    pthread_mutex_unlock(&shared.lock)
    return done


cdef void loop_stop(Loop* loop) noexcept nogil:
    atomic_store_i32(&loop.stopping, 1)
    wake_sleeper(loop)


# ---- the thread --------------------------------------------------------------------------------

cdef Loop* loop_new() noexcept nogil:
    cdef Loop* loop = <Loop*> calloc(1, sizeof(Loop))
    cdef LoopShared* shared = <LoopShared*> calloc(1, sizeof(LoopShared))
    cdef epoll_event_t event
    if loop == NULL or shared == NULL:
        free(loop)
        free(shared)
        return NULL
    loop.shared = shared
    loops_note(1)
    pthread_mutex_init(&shared.lock, NULL)
    cond_init_monotonic(&shared.arrived)
    loop.call_deadline_ns = INT64_MAX
    loop.buffer = <uint8_t*> malloc(LOOP_BUFFER_BYTES)
    loop.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    loop.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    event.events = EPOLLIN | <uint32_t> EPOLLET     # need not be read
    event.data.ptr = NULL
    if loop.buffer == NULL or loop.epoll_fd < 0 or loop.event_fd < 0 \
            or epoll_ctl(loop.epoll_fd, EPOLL_CTL_ADD, loop.event_fd, &event) < 0:
        loop_free(loop)
        return NULL
    return loop


cdef void loop_free(Loop* loop) noexcept nogil:
    cdef LoopShared* shared = <LoopShared*> loop.shared
    if loop.epoll_fd >= 0:
        close(loop.epoll_fd)
    if loop.event_fd >= 0:
        close(loop.event_fd)
    pthread_mutex_destroy(&shared.lock)
    pthread_cond_destroy(&shared.arrived)
    free(shared.events)
    free(shared)
    free(loop.buffer)
    free(loop)
    loops_note(-1)


cdef void run_posts(Loop* loop) noexcept nogil:
    cdef LoopPost* taken
    cdef LoopPost* oldest = NULL
    cdef LoopPost* following
    if atomic_load_ptr(&loop.inbox) == NULL:
        return
    taken = <LoopPost*> atomic_exchange_ptr(&loop.inbox, NULL)
    while taken != NULL:            # newest first: turn it round
        following = taken.next
        taken.next = oldest
        oldest = taken
        taken = following
    while oldest != NULL:
        following = oldest.next
        oldest.run(loop, oldest)
        oldest = following


cdef bint may_sleep(Loop* loop) noexcept nogil:
    if loop.again or loop.behind:
        return False
    atomic_exchange_i32(&loop.asleep, 1)
    atomic_fence()
    if atomic_load_ptr(&loop.inbox) == NULL and not atomic_load_i32(&loop.woken) \
            and not atomic_load_i32(&loop.stopping):
        return True
    atomic_store_i32(&loop.asleep, 0)
    return False


cdef int wait_for_sockets(Loop* loop, epoll_event_t* ready, int64_t until_ns) noexcept nogil:
    cdef int64_t wait_ms = 0
    cdef int count
    if loop.call_deadline_ns < until_ns:
        until_ns = loop.call_deadline_ns
    if may_sleep(loop):
        wait_ms = -1
        if until_ns != INT64_MAX:
            wait_ms = (until_ns - monotonic_ns() + 999999) // 1000000
            wait_ms = 0 if wait_ms < 0 else wait_ms
            wait_ms = SLEEP_MS_MAX if wait_ms > SLEEP_MS_MAX else wait_ms
    count = epoll_wait(loop.epoll_fd, ready, READY_MAX, <int> wait_ms)
    atomic_store_i32(&loop.asleep, 0)
    atomic_exchange_i32(&loop.woken, 0)
    loop.again = False
    loop.turns += 1
    loop.now_ns = monotonic_ns()
    return count if count > 0 else 0


cdef void run_sockets(Loop* loop, epoll_event_t* ready, int count) noexcept nogil:
    cdef Link* link
    cdef uint32_t events
    cdef int index
    for index in range(count):
        link = <Link*> ready[index].data.ptr
        events = ready[index].events
        if link == NULL:
            loop.wakeups += 1
            continue
        if link.down:
            continue
        if events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            link.peer_closed = True
            link.readable = True
        # With TLS reading may wait for writing, and the other way round.
        if events & EPOLLIN or link.tls != NULL:
            link.readable = True
        link_receive(link)
        if not link.writable and (events & EPOLLOUT or link.tls != NULL):
            link.writable = True
            link_flush(link)


cdef void run_behind(Loop* loop) noexcept nogil:
    """Links that had more to read than their share of the last turn."""
    cdef Link* link
    cdef int index
    if not loop.behind:
        return
    loop.behind = False
    for index in range(LINKS_MAX):
        link = <Link*> loop.links[index]
        if link != NULL and link.active and link.readable and not link.down:
            link_receive(link)


cdef void run_deadlines(Loop* loop) noexcept nogil:
    cdef int64_t earliest_ns = INT64_MAX
    cdef int64_t deadline_ns
    cdef Link* link
    cdef int index
    if loop.now_ns < loop.call_deadline_ns:
        return
    loop.call_deadline_ns = INT64_MAX       # calls submitted on the way lower it
    for index in range(LINKS_MAX):
        link = <Link*> loop.links[index]
        if link == NULL or link.down:
            continue
        deadline_ns = link_deadline_ns(link)
        if deadline_ns <= loop.now_ns:
            link_fail(link, LINK_TIMEOUT)
        elif deadline_ns < earliest_ns:
            earliest_ns = deadline_ns
    if earliest_ns < loop.call_deadline_ns:
        loop.call_deadline_ns = earliest_ns


cdef void flush_dirty(Loop* loop) noexcept nogil:
    cdef Link* link
    while loop.dirty != NULL:
        link = loop.dirty
        loop.dirty = link.next
        link.dirty = False
        link_flush(link)


cdef void forget(Loop* loop, Link* link) noexcept nogil:
    cdef LoopShared* shared = <LoopShared*> loop.shared
    pthread_mutex_lock(&shared.lock)        # who asks for its counters holds it
    atomic_store_ptr(&loop.links[link.id % LINKS_MAX], NULL)
    link_free(link)
    pthread_mutex_unlock(&shared.lock)


cdef void reap(Loop* loop) noexcept nogil:
    """Links that broke; nothing of this turn knows them any more. Where the control thread does
    not take its events, they are told, and freed, later."""
    cdef Link* link
    cdef Link* left = loop.downs
    loop.downs = NULL
    while left != NULL:
        link = left
        left = link.next
        if loop_post_event(loop, EVENT_LINK_DOWN, link.id, -1, link.code, NULL) < 0:
            link.next = loop.downs
            loop.downs = link
            continue
        forget(loop, link)


cdef int64_t run_drivers(Loop* loop) noexcept nogil:
    """When the first of them wants to be called again."""
    cdef int64_t earliest_ns = INT64_MAX
    cdef int64_t again_ns
    cdef Driver* driver
    cdef int32_t index
    for index in range(loop.driver_count):
        driver = loop.drivers[index]
        if driver.drive != NULL:
            again_ns = driver.drive(driver.self, loop.now_ns)
            earliest_ns = again_ns if again_ns < earliest_ns else earliest_ns
    return earliest_ns


cdef void loop_finish(Loop* loop) noexcept nogil:
    cdef LoopShared* shared = <LoopShared*> loop.shared
    cdef Link* link
    cdef int index
    run_posts(loop)
    for index in range(LINKS_MAX):
        link = <Link*> loop.links[index]
        if link == NULL:
            continue
        link_fail(link, LINK_BROKEN)
        forget(loop, link)
    loop.downs = NULL
    for index in range(loop.driver_count if not shared.closed else 0):
        if loop.drivers[index].stopped != NULL:
            loop.drivers[index].stopped(loop.drivers[index].self)
    pthread_mutex_lock(&shared.lock)
    shared.closed = True
    pthread_cond_signal(&shared.arrived)
    pthread_mutex_unlock(&shared.lock)


cdef void* loop_main(void* argument) noexcept nogil:
    cdef Loop* loop = <Loop*> argument
    cdef epoll_event_t ready[READY_MAX]
    cdef int64_t until_ns = 0
    cdef int count
    thread_name((<LoopShared*> loop.shared).name)
    while not atomic_load_i32(&loop.stopping):
        count = wait_for_sockets(loop, ready, until_ns)
        run_posts(loop)
        run_sockets(loop, ready, count)
        run_behind(loop)
        run_deadlines(loop)
        until_ns = run_drivers(loop)
        flush_dirty(loop)
        reap(loop)
    loop_finish(loop)
    return NULL
