"""Records of TLS on their way to the socket (see tls_records.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strerror

from kbroker.ext.posix cimport EAGAIN, EINTR, errno, snprintf, ssize_t
from kbroker.ext.sockets cimport MSG_DONTWAIT, MSG_NOSIGNAL, send
from kbroker.ext.tls cimport (
    TLS_FAILED, TLS_WANTS_WRITE, TLS_WHY_BYTES, TlsLibrary, tls_drop_kept, tls_library,
)

cdef enum:
    BIO_TYPE_SOURCE_SINK = 0x400
    BIO_CTRL_FLUSH = 11
    BIO_FLAGS_WRITE_AGAIN = 0x2 | 0x8
    BIO_FLAGS_ANY = 0xF

cdef TlsLibrary* library = NULL
cdef void* method = NULL            # BIO_METHOD*, for good


cdef int records_prepare() except -1:
    global library
    global method
    if method != NULL:
        return 0
    library = tls_library()
    method = library.BIO_meth_new(BIO_TYPE_SOURCE_SINK | library.BIO_get_new_index(), "records")
    if method == NULL:
        raise MemoryError("no memory for a BIO")
    library.BIO_meth_set_write(method, on_write)
    library.BIO_meth_set_ctrl(method, on_ctrl)
    return 0


cdef bint records_attach(Tls* tls, int fd, int64_t* kept_total) noexcept nogil:
    cdef void* bio = library.BIO_new(method)
    if bio == NULL:
        library.ERR_clear_error()
        return False
    tls.fd = fd
    tls.kept_total = kept_total
    library.BIO_set_data(bio, tls)
    library.SSL_set0_wbio(tls.ssl, bio)         # whose it is now
    return True


# ---- of OpenSSL --------------------------------------------------------------------------------

cdef long on_ctrl(void* bio, int command, long number, void* pointer) noexcept nogil:
    """Nothing is known of kernel TLS here, and a flush has nothing to do."""
    return 1 if command == BIO_CTRL_FLUSH else 0


cdef int on_write(void* bio, const char* p, int n) noexcept nogil:
    cdef Tls* tls = <Tls*> library.BIO_get_data(bio)
    cdef ssize_t sent = 0
    library.BIO_clear_flags(bio, BIO_FLAGS_ANY)
    if tls.collects != NULL:
        if tls.collected + <size_t> n <= RECORDS_BYTES:
            memcpy(tls.collects + tls.collected, p, <size_t> n)
            tls.collected += <size_t> n
            return n
    elif tls.kept == NULL or records_send_kept(tls) == 1:
        sent = socket_send(tls.fd, <const uint8_t*> p, <size_t> n)
    if sent == 0:
        library.BIO_set_flags(bio, BIO_FLAGS_WRITE_AGAIN)
        return -1
    return <int> sent


# ---- sending -----------------------------------------------------------------------------------

cdef ssize_t socket_send(int fd, const uint8_t* p, size_t n) noexcept nogil:
    """What the socket took, 0 when it is full, -1 with errno."""
    cdef ssize_t sent
    while True:
        sent = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent < 0 and errno == EINTR:
            continue
        return 0 if sent < 0 and errno == EAGAIN else sent


cdef int failed(Tls* tls) noexcept nogil:
    snprintf(tls.why, TLS_WHY_BYTES, "%s", strerror(errno))
    return TLS_FAILED


cdef int send_all(Tls* tls, const uint8_t* p, size_t n, size_t* taken) noexcept nogil:
    """A send that takes less has not told epoll yet that somebody waits: the next one does."""
    cdef ssize_t sent
    while taken[0] < n:
        sent = socket_send(tls.fd, p + taken[0], n - taken[0])
        if sent < 0:
            return failed(tls)
        if sent == 0:
            return TLS_WANTS_WRITE
        taken[0] += <size_t> sent
    return 1


cdef int keep(Tls* tls, const uint8_t* p, size_t n) noexcept nogil:
    tls.kept = <uint8_t*> malloc(n)
    if tls.kept == NULL:
        snprintf(tls.why, TLS_WHY_BYTES, "no memory for %ld bytes of records", <long> n)
        return TLS_FAILED
    memcpy(tls.kept, p, n)
    tls.kept_sent = 0
    tls.kept_bytes = n
    tls.kept_total[0] += <int64_t> n
    return TLS_WANTS_WRITE


cdef void records_collect(Tls* tls, uint8_t* p) noexcept nogil:
    tls.collects = p
    tls.collected = 0


cdef int records_send(Tls* tls) noexcept nogil:
    cdef uint8_t* p = tls.collects
    cdef size_t taken = 0
    cdef int code
    tls.collects = NULL
    code = send_all(tls, p, tls.collected, &taken)
    if code == TLS_WANTS_WRITE:
        return keep(tls, p + taken, tls.collected - taken)
    return code


cdef int records_send_kept(Tls* tls) noexcept nogil:
    cdef int code = send_all(tls, tls.kept, tls.kept_bytes, &tls.kept_sent)
    if code == 1:
        tls_drop_kept(tls)
    return code
