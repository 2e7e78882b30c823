"""The acceptor (see listener.pxd).

An accept is rare beside requests, so it costs a thread that sleeps, and the loops of the network
threads stay free of it. Options that accepted sockets inherit (TCP_NODELAY, buffer sizes) are set
once on the listening socket. Out of descriptors, or at a limit (accept_limits.pxd), it does not
poll the listening sockets for a while: the kernel's backlog holds who comes, and nothing spins.

Connections never take the last descriptors of the process: those are for what serves them, a new
segment, an index that is opened again, a module of Python that a first request imports.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from kbroker.ext.accept_limits cimport connection_counts, listener_is_full
from kbroker.ext.addresses cimport ADDRESS_BYTES, addresses_enter
from kbroker.ext.atomics cimport atomic_exchange_i32, atomic_load_i32, atomic_store_i64
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport CONGESTION_BYTES, Connection, LISTENERS_MAX, Listener
from kbroker.ext.connections cimport (
    address_read, connection_discard, connection_new, connection_place,
)
from kbroker.ext.log_ring cimport LOG_ERROR, LOG_WARNING, net_log
from kbroker.ext.posix cimport (
    EAGAIN, EMFILE, ENFILE, ENOMEM, F_DUPFD_CLOEXEC, RLIMIT_NOFILE, close, errno, fcntl, getrlimit,
    pthread_cond_broadcast, pthread_cond_wait, pthread_create, pthread_join, pthread_mutex_lock,
    pthread_mutex_unlock, rlimit_t,
)
from kbroker.ext.shedding cimport net_sheds
from kbroker.ext.sockets cimport (
    AF_INET, ENOBUFS, IPPROTO_TCP, POLLIN, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, TCP_CONGESTION,
    accept4, getsockname, getsockopt, poll, pollfd_t, read, setsockopt, sockaddr_storage_t,
    sockaddr_t, socket, thread_name, write,
)

cdef enum:
    PAUSE_MS = 100              # without listening, when descriptors or memory are out
    ACCEPTS_PER_ROUND = 64      # of one listener, before the others are looked at
    DESCRIPTORS_KEPT = 64       # for files, or an eighth of a lower limit
    DELAYED_MAX = 256

# Refused for the quota of their addresses, and not closed yet; oldest first.
cdef struct Delayed:
    int32_t first
    int32_t count
    int fds[DELAYED_MAX]
    int64_t until_ms[DELAYED_MAX]


cdef bint is_kept(int fd) noexcept nogil:
    """Whether a descriptor is one of the last. The kernel gives the lowest that is free, so that
    all below it are taken. The limit is asked each time: it may change while this runs."""
    cdef rlimit_t limit
    if getrlimit(RLIMIT_NOFILE, &limit) != 0:
        return False
    return <uint64_t> fd >= limit.rlim_cur - min(limit.rlim_cur // 8, <uint64_t> DESCRIPTORS_KEPT)


cdef bint has_descriptors(Net* net) noexcept nogil:
    """Whether the one that the next connection would get is not one of the last."""
    cdef int fd = fcntl(net.acceptor_event_fd, F_DUPFD_CLOEXEC, 0)
    if fd < 0:
        return False
    close(fd)
    return not is_kept(fd)


cdef void close_delayed(Delayed* delayed, int64_t now_ms) noexcept nogil:
    """Those whose time is over; with no place left, the oldest."""
    while delayed.count > 0 and (delayed.until_ms[delayed.first] <= now_ms
                                 or delayed.count == DELAYED_MAX):
        close(delayed.fds[delayed.first])
        delayed.first = (delayed.first + 1) % DELAYED_MAX
        delayed.count -= 1


cdef void delay(Delayed* delayed, int fd, int64_t until_ms) noexcept nogil:
    """Close it then: who tries again at once is kept from that."""
    cdef int32_t at = (delayed.first + delayed.count) % DELAYED_MAX
    delayed.fds[at] = fd
    delayed.until_ms[at] = until_ms
    delayed.count += 1


cdef bint may_choose(const char* congestion) noexcept nogil:
    """Whoever has no rights may have the system's own again, and not all that socket units have."""
    cdef int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
    cdef bint may = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, CONGESTION_BYTES) == 0
    close(fd)
    return may


cdef void listener_skips_pacing(Listener* listener) noexcept nogil:
    cdef uint32_t length = CONGESTION_BYTES - 1
    if getsockopt(listener.fd, IPPROTO_TCP, TCP_CONGESTION, listener.paces, &length) != 0 \
            or memcmp(listener.paces, "bbr", 3) != 0 or not may_choose(listener.paces) \
            or setsockopt(listener.fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) != 0:
        listener.paces[0] = 0


cdef void pace(const Listener* listener, int fd, const uint8_t* peer) noexcept nogil:
    """To another machine as the system has it. Whoever was paced once is so for good: hence not
    the other way round."""
    cdef sockaddr_storage_t address
    cdef uint32_t length = sizeof(address)
    cdef uint8_t[ADDRESS_BYTES] own
    if listener.paces[0] == 0:
        return
    if getsockname(fd, <sockaddr_t*> &address, &length) == 0:
        address_read(&address, own)
        if memcmp(own, peer, ADDRESS_BYTES) == 0:
            return
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, listener.paces, CONGESTION_BYTES)


cdef void take(Net* net, int32_t listener, int fd, sockaddr_storage_t* address,
               Delayed* delayed) noexcept nogil:
    cdef Connection* connection = connection_new(net, fd, listener, address)
    cdef int64_t now_ms = monotonic_ns() // 1000000
    cdef int64_t wait_ms
    if connection == NULL:
        close(fd)
        return
    wait_ms = connection_counts(net, listener, connection.address, now_ms)
    if wait_ms > 0:
        connection.fd = -1
        connection_discard(connection)
        close_delayed(delayed, now_ms)
        delay(delayed, fd, now_ms + wait_ms)
        return
    if not addresses_enter(net, connection.address):
        net_log(net, LOG_WARNING, "refused a connection: its address has as many as "
                "max.connections.per.ip allows", 0, 0)
        connection_discard(connection)
        return
    pace(&net.listeners[listener], fd, connection.address)
    connection_place(net, connection)
    net_sheds(net)


cdef int accept_some(Net* net, int32_t listener, Delayed* delayed) noexcept nogil:
    """All that may come now; else the errno of what is short, descriptors or memory."""
    cdef sockaddr_storage_t address
    cdef uint32_t length
    cdef int fd
    cdef int _count
    for _count in range(ACCEPTS_PER_ROUND):
        if net.listeners[listener].resumes_ms > monotonic_ns() // 1000000 \
                or listener_is_full(net, listener):
            return 0
        length = sizeof(address)
        fd = accept4(net.listeners[listener].fd, <sockaddr_t*> &address, &length,
                     SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd >= 0:
            take(net, listener, fd, &address, delayed)
            if is_kept(fd):
                return EMFILE
        elif errno in (EMFILE, ENFILE, ENOBUFS, ENOMEM):
            return errno
        elif errno == EAGAIN:
            return 0
        # Any other error is of that one connection, which is gone.
    return 0


cdef void drain_event(Net* net) noexcept nogil:
    cdef uint64_t count
    read(net.acceptor_event_fd, &count, sizeof(count))


cdef void run_errand(Net* net) noexcept nogil:
    pthread_mutex_lock(&net.threads_lock)
    if net.errand != NULL:
        net.errand_code = net.errand(net)
        net.errand = NULL
        pthread_cond_broadcast(&net.errand_done)
    pthread_mutex_unlock(&net.threads_lock)


cdef int accept_round(Net* net, pollfd_t* polled, Delayed* delayed) noexcept nogil:
    """Of all listeners that have somebody, as accept_some; polled is NULL where that is not
    known."""
    cdef int32_t index
    cdef int result
    for index in range(net.listeners_count):
        if polled == NULL or polled[1 + index].revents:
            result = accept_some(net, index, delayed)
            if result != 0:
                return result
    return 0


cdef int64_t look_at(Net* net, pollfd_t* polled, const Delayed* delayed) noexcept nogil:
    """Choose the sockets from which connections may come; ms until that is to be done again, -1
    for when somebody closes or writes to the eventfd."""
    cdef int64_t now_ms = monotonic_ns() // 1000000
    cdef int64_t until_ms = -1
    cdef int64_t resumes_ms
    cdef int32_t index
    if delayed.count > 0:
        until_ms = delayed.until_ms[delayed.first]
    for index in range(net.listeners_count):
        polled[1 + index].fd = -1
        resumes_ms = net.listeners[index].resumes_ms
        if resumes_ms > now_ms:
            until_ms = resumes_ms if until_ms < 0 else min(until_ms, resumes_ms)
        elif not listener_is_full(net, index):
            polled[1 + index].fd = net.listeners[index].fd
    return -1 if until_ms < 0 else max(until_ms - now_ms, <int64_t> 0)


cdef void* acceptor_main(void* argument) noexcept nogil:
    cdef Net* net = <Net*> argument
    cdef pollfd_t polled[1 + LISTENERS_MAX]
    cdef Delayed delayed
    cdef int32_t index
    cdef int short_of = 0       # an errno
    cdef int64_t refusals = 0
    thread_name("kbroker-accept")
    memset(polled, 0, sizeof(polled))
    memset(&delayed, 0, sizeof(delayed))
    polled[0].fd = net.acceptor_event_fd
    polled[0].events = POLLIN
    for index in range(net.listeners_count):
        polled[1 + index].events = POLLIN
    while atomic_load_i32(&net.acceptor_running):
        if short_of:
            if refusals % 100 == 0:
                net_log(net, LOG_ERROR, "cannot accept connections: descriptors or memory are "
                        "short (errno %ld)", short_of, 0)
            refusals += 1
            poll(polled, 1, PAUSE_MS)
            if has_descriptors(net):
                short_of = accept_round(net, NULL, &delayed)
        elif poll(polled, 1 + <unsigned long> net.listeners_count,
                  <int> look_at(net, polled, &delayed)) > 0:
            short_of = accept_round(net, polled, &delayed)
        close_delayed(&delayed, monotonic_ns() // 1000000)
        if polled[0].revents:
            drain_event(net)
            polled[0].revents = 0
            run_errand(net)
    run_errand(net)             # of somebody who saw this run a moment ago
    close_delayed(&delayed, 0x7fffffffffffffff)
    return NULL


cdef void acceptor_post(Net* net, int32_t (*errand)(Net* net) noexcept nogil) noexcept nogil:
    cdef uint64_t one = 1
    net.errand = errand
    write(net.acceptor_event_fd, &one, sizeof(one))


cdef int acceptor_errand(Net* net, int32_t (*errand)(Net* net) noexcept nogil) noexcept nogil:
    if not atomic_load_i32(&net.acceptor_running):
        return errand(net)
    acceptor_post(net, errand)
    while net.errand != NULL:
        pthread_cond_wait(&net.errand_done, &net.threads_lock)
    return net.errand_code


cdef void acceptor_limit(Net* net, int64_t connections_max) noexcept nogil:
    cdef uint64_t one = 1
    atomic_store_i64(&net.settings.connections_max, connections_max)
    net_sheds(net)
    write(net.acceptor_event_fd, &one, sizeof(one))


cdef int acceptor_start(Net* net) noexcept nogil:
    """0, or an errno."""
    cdef int code
    net.acceptor_running = 1
    code = pthread_create(&net.acceptor, NULL, acceptor_main, net)
    if code != 0:
        net.acceptor_running = 0
    return code


cdef void acceptor_stop(Net* net) noexcept nogil:
    cdef uint64_t one = 1
    cdef int32_t index
    if atomic_exchange_i32(&net.acceptor_running, 0):
        write(net.acceptor_event_fd, &one, sizeof(one))
        pthread_join(net.acceptor, NULL)
    for index in range(net.listeners_count):
        if net.listeners[index].fd >= 0:
            close(net.listeners[index].fd)
            net.listeners[index].fd = -1
