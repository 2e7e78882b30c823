"""Sockets, epoll and threads as the network half uses them: foreign names only (see posix.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from kbroker.ext.posix cimport off_t, pthread_cond_t, ssize_t

cdef extern from "<errno.h>" nogil:
    enum:
        ENOBUFS

cdef extern from "<sys/uio.h>" nogil:
    ctypedef struct iovec_t "struct iovec":
        void* iov_base
        size_t iov_len
    ssize_t readv(int fd, const iovec_t* parts, int count)

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void* buffer, size_t count)
    ssize_t write(int fd, const void* buffer, size_t count)
    int usleep(unsigned int microseconds)

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out, int source, off_t* offset, size_t count)

cdef extern from "<sys/socket.h>" nogil:
    enum:
        AF_INET
        AF_INET6
        SOCK_STREAM
        SOCK_NONBLOCK
        SOCK_CLOEXEC
        MSG_NOSIGNAL
        MSG_DONTWAIT
        MSG_MORE
        MSG_PEEK
        SOL_SOCKET
        SO_RCVLOWAT
    ctypedef struct sockaddr_t "struct sockaddr":
        uint16_t sa_family
    ctypedef struct sockaddr_storage_t "struct sockaddr_storage":
        uint16_t ss_family
    ctypedef struct msghdr_t "struct msghdr":
        iovec_t* msg_iov
        size_t msg_iovlen
    int socket(int family, int kind, int protocol)
    int accept4(int fd, sockaddr_t* address, uint32_t* length, int flags)
    int getsockname(int fd, sockaddr_t* address, uint32_t* length)
    ssize_t recv(int fd, void* buffer, size_t count, int flags)
    ssize_t send(int fd, const void* buffer, size_t count, int flags)
    ssize_t sendmsg(int fd, const msghdr_t* message, int flags)
    int getsockopt(int fd, int level, int name, void* value, uint32_t* bytes)
    int setsockopt(int fd, int level, int name, const void* value, uint32_t bytes)

cdef extern from "<netinet/in.h>" nogil:
    enum:
        IPPROTO_TCP
    ctypedef struct in_addr_t "struct in_addr":
        uint32_t s_addr
    ctypedef struct in6_addr_t "struct in6_addr":
        uint8_t s6_addr[16]
    ctypedef struct sockaddr_in_t "struct sockaddr_in":
        uint16_t sin_port
        in_addr_t sin_addr
    ctypedef struct sockaddr_in6_t "struct sockaddr_in6":
        uint16_t sin6_port
        in6_addr_t sin6_addr
    uint16_t ntohs(uint16_t value)

cdef extern from "<netinet/tcp.h>" nogil:
    enum:
        TCP_CONGESTION

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* address, char* text, uint32_t size)

cdef extern from "<poll.h>" nogil:
    enum:
        POLLIN
        POLLOUT
    ctypedef struct pollfd_t "struct pollfd":
        int fd
        short events
        short revents
    int poll(pollfd_t* fds, unsigned long count, int timeout_ms)

cdef extern from "<sys/epoll.h>" nogil:
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLRDHUP
        EPOLLHUP
        EPOLLERR
        EPOLLET
        EPOLL_CTL_ADD
        EPOLL_CLOEXEC
    ctypedef union epoll_data_t:
        void* ptr
    ctypedef struct epoll_event_t "struct epoll_event":
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event_t* event)
    int epoll_wait(int epoll, epoll_event_t* events, int count, int timeout_ms)

cdef extern from "<sys/eventfd.h>" nogil:
    enum:
        EFD_NONBLOCK
        EFD_CLOEXEC
    int eventfd(unsigned int initial, int flags)

cdef extern from "threads.h" nogil:
    # A condition variable whose timed waits count in monotonic time.
    int cond_init_monotonic(pthread_cond_t* condition) noexcept
    # At most 15 characters, shown by top -H.
    void thread_name(const char* name) noexcept
    enum:
        THREAD_NAME_BYTES
    # This thread runs at once when it is woken, whatever computes beside it, like Python: it asks
    # for short slices of the processor; its share stays the same. Older than Linux 6.12: nothing.
    void thread_hurries() noexcept
    # Blocks every signal in this thread and what it starts: signals are the control plane's.
    void signals_block(void* old) noexcept
    void signals_restore(const void* old) noexcept
    enum:
        SIGNAL_SET_BYTES
