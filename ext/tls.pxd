"""TLS by the system's OpenSSL (libssl.so.3, else .1.1), opened when it is first wanted.

No header and no -dev package is needed: the few functions are declared here, and have had the same
binary interface in both. A `Tls` is one connection's state over a non-blocking socket that it does
not own; one thread at a time uses it, without the GIL. `tls_context` makes it for Python, a link
of the client's loop takes it over; `encrypted` makes those of the broker's connections.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kbroker.ext.posix cimport ssize_t

cdef enum TlsCode:
    TLS_CLOSED = 0              # the other side ended it
    TLS_WANTS_READ = -1         # again when the socket can be read
    TLS_WANTS_WRITE = -2
    TLS_FAILED = -3             # `why` says why; nothing works any more

cdef enum:
    TLS_WHY_BYTES = 384
    TLS_SUBJECT_BYTES = 200

cdef struct Tls:
    void* ssl
    int verify_error            # X509_V_ERR_* of the first certificate that was refused, else 0
    char subject[TLS_SUBJECT_BYTES]     # of that certificate: /C=../CN=..
    char why[TLS_WHY_BYTES]     # one line, after TLS_FAILED
    # of the broker's connections (encrypted.pxd)
    int ended                   # TlsCode that is to be told by the next read, after bytes
    bint write_reads            # a write waits until something was read
    bint kernel_sends           # the kernel encrypts: what is sent goes to the socket as it is
    # of their records that are to be sent (tls_records.pxd)
    int fd
    uint8_t* collects           # where a burst goes; NULL: none is under way
    size_t collected            # its bytes
    uint8_t* kept               # what the socket did not take; NULL: nothing
    size_t kept_bytes
    size_t kept_sent
    int64_t* kept_total         # the sum of kept_bytes of the thread's connections

ctypedef void* (*tls_make)() noexcept nogil
ctypedef void* (*tls_get)(void*) noexcept nogil
ctypedef void (*tls_do)(void*) noexcept nogil
ctypedef void (*tls_set)(void*, void*) noexcept nogil
ctypedef void (*tls_flags)(void*, int) noexcept nogil
ctypedef int (*tls_int)(void*) noexcept nogil
ctypedef int (*tls_int2)(void*, void*) noexcept nogil
ctypedef int (*tls_text)(void*, const char*) noexcept nogil
ctypedef int (*tls_io)(void*, void*, int) noexcept nogil
ctypedef int (*tls_der)(void*, uint8_t**) noexcept nogil
ctypedef long (*tls_ctrl)(void*, int, long, void*) noexcept nogil
ctypedef void* (*tls_pem)(void*, void**, void*, void*) noexcept nogil
ctypedef const char* (*tls_reason)(unsigned long) noexcept nogil
ctypedef int (*tls_on_write)(void*, const char*, int) noexcept nogil
ctypedef long (*tls_on_ctrl)(void*, int, long, void*) noexcept nogil
ctypedef void* (*tls_at)(void*, int) noexcept nogil

# The functions by their own names.
cdef struct TlsLibrary:
    tls_make TLS_client_method
    tls_make TLS_server_method
    tls_get SSL_CTX_new
    tls_do SSL_CTX_free
    tls_ctrl SSL_CTX_ctrl
    void (*SSL_CTX_set_verify)(void*, int, int (*)(int, void*) noexcept nogil) noexcept nogil
    uint64_t (*SSL_CTX_set_options)(void*, uint64_t) noexcept nogil
    tls_get SSL_CTX_get_cert_store
    tls_int SSL_CTX_set_default_verify_paths
    tls_int2 SSL_CTX_use_certificate
    tls_int2 SSL_CTX_use_PrivateKey
    tls_int SSL_CTX_check_private_key
    tls_text SSL_CTX_set_cipher_list
    tls_text SSL_CTX_set_ciphersuites
    int (*SSL_CTX_set_session_id_context)(void*, const uint8_t*, unsigned int) noexcept nogil
    int (*SSL_CTX_set_num_tickets)(void*, size_t) noexcept nogil
    tls_get SSL_CTX_get0_certificate
    tls_get SSL_new
    tls_do SSL_free
    int (*SSL_set_fd)(void*, int) noexcept nogil
    tls_ctrl SSL_ctrl
    tls_text SSL_set1_host
    tls_get SSL_get0_param
    tls_do SSL_set_connect_state
    tls_do SSL_set_accept_state
    tls_int SSL_do_handshake
    tls_io SSL_read
    tls_io SSL_write
    int (*SSL_get_error)(void*, int) noexcept nogil
    tls_int SSL_shutdown
    const char* (*SSL_get_version)(void*) noexcept nogil
    tls_get SSL_get1_peer_certificate       # 1.1 calls it SSL_get_peer_certificate
    tls_get SSL_get_wbio
    tls_set SSL_set0_wbio
    void* SSL_sendfile                      # NULL: the library knows nothing of kernel TLS
    int (*SSL_set_ex_data)(void*, int, void*) noexcept nogil
    tls_at SSL_get_ex_data
    int (*SSL_get_ex_data_X509_STORE_CTX_idx)() noexcept nogil
    tls_at X509_STORE_CTX_get_ex_data
    tls_int X509_STORE_CTX_get_error
    tls_get X509_STORE_CTX_get_current_cert
    tls_get X509_get_subject_name
    tls_der i2d_X509
    tls_der i2d_X509_NAME
    char* (*X509_NAME_oneline)(void*, char*, int) noexcept nogil
    const char* (*X509_verify_cert_error_string)(long) noexcept nogil
    tls_text X509_VERIFY_PARAM_set1_ip_asc
    void (*X509_VERIFY_PARAM_set_hostflags)(void*, unsigned int) noexcept nogil
    tls_int2 X509_STORE_add_cert
    tls_do X509_free
    tls_do EVP_PKEY_free
    tls_do PKCS12_free
    void* (*BIO_new_mem_buf)(const void*, int) noexcept nogil
    tls_get BIO_new
    tls_int BIO_free
    tls_ctrl BIO_ctrl
    tls_set BIO_set_data
    tls_get BIO_get_data
    tls_flags BIO_set_flags
    tls_flags BIO_clear_flags
    int (*BIO_get_new_index)() noexcept nogil
    void* (*BIO_meth_new)(int, const char*) noexcept nogil
    int (*BIO_meth_set_write)(void*, tls_on_write) noexcept nogil
    int (*BIO_meth_set_ctrl)(void*, tls_on_ctrl) noexcept nogil
    tls_pem PEM_read_bio_X509
    tls_pem PEM_read_bio_PrivateKey
    void* (*d2i_PKCS12_bio)(void*, void**) noexcept nogil
    int (*PKCS12_parse)(void*, const char*, void**, void**, void**) noexcept nogil
    tls_int OPENSSL_sk_num
    tls_at OPENSSL_sk_value
    tls_do OPENSSL_sk_free
    const char* (*OPENSSL_cipher_name)(const char*) noexcept nogil
    unsigned long (*ERR_get_error)() noexcept nogil
    void (*ERR_clear_error)() noexcept nogil
    tls_reason ERR_reason_error_string

# NULL where the system has no OpenSSL. With the GIL.
cdef TlsLibrary* tls_library() noexcept

# Another function of libcrypto, NULL where there is none. With the GIL.
cdef void* tls_symbol(const char* name) noexcept

# A connection to be, as client or as server; NULL: no memory. context: SSL_CTX*.
cdef Tls* tls_new(void* context, int fd, bint server) noexcept nogil
# Tells the other side, once, without waiting; the socket stays open.
cdef void tls_free(Tls* tls) noexcept nogil
# Records that were not taken are sent, or nobody will.
cdef void tls_drop_kept(Tls* tls) noexcept nogil
# 1 when it is done, else a TlsCode.
cdef int tls_handshake(Tls* tls) noexcept nogil
# After it: the subject of the other side's certificate, DER; its bytes, which were written to
# p..p+n if they are at most n, 0 where it showed none.
cdef ssize_t tls_peer_subject(Tls* tls, uint8_t* p, size_t n) noexcept nogil
# After it: whether the kernel encrypts what is sent.
cdef bint tls_kernel_sends(Tls* tls) noexcept nogil
# Bytes, at least 1, or a TlsCode. What is not written must be offered again, and more may follow.
cdef ssize_t tls_read(Tls* tls, uint8_t* p, size_t n) noexcept nogil
cdef ssize_t tls_write(Tls* tls, const uint8_t* p, size_t n) noexcept nogil
# For SSL_CTX_set_verify: remembers which certificate was refused, and why.
cdef int tls_verify(int good, void* store_context) noexcept nogil
