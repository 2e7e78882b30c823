"""TLS over OpenSSL (see tls.pxd)."""
from libc.stdlib cimport calloc, free
from libc.string cimport strerror

from kbroker.ext.debug cimport OBJECT_TLS, object_born, object_died
from kbroker.ext.posix cimport RTLD_NOW, dlopen, dlsym, errno, snprintf

cdef enum:
    SSL_ERROR_SSL = 1
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_WANT_WRITE = 3
    SSL_ERROR_SYSCALL = 5
    SSL_ERROR_ZERO_RETURN = 6
    REASON_MASK = 0x7FFFFF
    SSL_R_UNEXPECTED_EOF_WHILE_READING = 294    # since 3.0; before, SSL_ERROR_SYSCALL
    IO_BYTES_MAX = 1 << 30
    BIO_CTRL_GET_KTLS_SEND = 73

cdef TlsLibrary library
cdef int state = 0                  # 1: all was found, -1: not
cdef void* crypto = NULL            # libcrypto


cdef bint find(void* shared, const char* name, void** out) noexcept:
    out[0] = dlsym(shared, name)
    return out[0] != NULL


cdef bint find_ssl(void* z) noexcept:
    return (
        z != NULL
        and find(z, "TLS_client_method", <void**> &library.TLS_client_method)
        and find(z, "TLS_server_method", <void**> &library.TLS_server_method)
        and find(z, "SSL_CTX_new", <void**> &library.SSL_CTX_new)
        and find(z, "SSL_CTX_free", <void**> &library.SSL_CTX_free)
        and find(z, "SSL_CTX_ctrl", <void**> &library.SSL_CTX_ctrl)
        and find(z, "SSL_CTX_set_verify", <void**> &library.SSL_CTX_set_verify)
        and find(z, "SSL_CTX_set_options", <void**> &library.SSL_CTX_set_options)
        and find(z, "SSL_CTX_get_cert_store", <void**> &library.SSL_CTX_get_cert_store)
        and find(z, "SSL_CTX_set_default_verify_paths",
                 <void**> &library.SSL_CTX_set_default_verify_paths)
        and find(z, "SSL_CTX_use_certificate", <void**> &library.SSL_CTX_use_certificate)
        and find(z, "SSL_CTX_use_PrivateKey", <void**> &library.SSL_CTX_use_PrivateKey)
        and find(z, "SSL_CTX_check_private_key", <void**> &library.SSL_CTX_check_private_key)
        and find(z, "SSL_CTX_set_cipher_list", <void**> &library.SSL_CTX_set_cipher_list)
        and find(z, "SSL_CTX_set_ciphersuites", <void**> &library.SSL_CTX_set_ciphersuites)
        and find(z, "SSL_CTX_set_session_id_context",
                 <void**> &library.SSL_CTX_set_session_id_context)
        and find(z, "SSL_CTX_set_num_tickets", <void**> &library.SSL_CTX_set_num_tickets)
        and find(z, "SSL_CTX_get0_certificate", <void**> &library.SSL_CTX_get0_certificate)
        and find(z, "SSL_new", <void**> &library.SSL_new)
        and find(z, "SSL_free", <void**> &library.SSL_free)
        and find(z, "SSL_set_fd", <void**> &library.SSL_set_fd)
        and find(z, "SSL_ctrl", <void**> &library.SSL_ctrl)
        and find(z, "SSL_set1_host", <void**> &library.SSL_set1_host)
        and find(z, "SSL_get0_param", <void**> &library.SSL_get0_param)
        and find(z, "SSL_set_connect_state", <void**> &library.SSL_set_connect_state)
        and find(z, "SSL_set_accept_state", <void**> &library.SSL_set_accept_state)
        and find(z, "SSL_do_handshake", <void**> &library.SSL_do_handshake)
        and find(z, "SSL_read", <void**> &library.SSL_read)
        and find(z, "SSL_write", <void**> &library.SSL_write)
        and find(z, "SSL_get_error", <void**> &library.SSL_get_error)
        and find(z, "SSL_shutdown", <void**> &library.SSL_shutdown)
        and find(z, "SSL_get_version", <void**> &library.SSL_get_version)
        and (find(z, "SSL_get1_peer_certificate", <void**> &library.SSL_get1_peer_certificate)
             or find(z, "SSL_get_peer_certificate",
                     <void**> &library.SSL_get1_peer_certificate))
        and find(z, "SSL_get_wbio", <void**> &library.SSL_get_wbio)
        and find(z, "SSL_set0_wbio", <void**> &library.SSL_set0_wbio)
        and find(z, "SSL_set_ex_data", <void**> &library.SSL_set_ex_data)
        and find(z, "SSL_get_ex_data", <void**> &library.SSL_get_ex_data)
        and find(z, "SSL_get_ex_data_X509_STORE_CTX_idx",
                 <void**> &library.SSL_get_ex_data_X509_STORE_CTX_idx)
        and find(z, "OPENSSL_cipher_name", <void**> &library.OPENSSL_cipher_name)
    )


cdef bint find_crypto(void* z) noexcept:
    return (
        z != NULL
        and find(z, "X509_STORE_CTX_get_ex_data", <void**> &library.X509_STORE_CTX_get_ex_data)
        and find(z, "X509_STORE_CTX_get_error", <void**> &library.X509_STORE_CTX_get_error)
        and find(z, "X509_STORE_CTX_get_current_cert",
                 <void**> &library.X509_STORE_CTX_get_current_cert)
        and find(z, "X509_get_subject_name", <void**> &library.X509_get_subject_name)
        and find(z, "i2d_X509", <void**> &library.i2d_X509)
        and find(z, "i2d_X509_NAME", <void**> &library.i2d_X509_NAME)
        and find(z, "X509_NAME_oneline", <void**> &library.X509_NAME_oneline)
        and find(z, "X509_verify_cert_error_string",
                 <void**> &library.X509_verify_cert_error_string)
        and find(z, "X509_VERIFY_PARAM_set1_ip_asc",
                 <void**> &library.X509_VERIFY_PARAM_set1_ip_asc)
        and find(z, "X509_VERIFY_PARAM_set_hostflags",
                 <void**> &library.X509_VERIFY_PARAM_set_hostflags)
        and find(z, "X509_STORE_add_cert", <void**> &library.X509_STORE_add_cert)
        and find(z, "X509_free", <void**> &library.X509_free)
        and find(z, "EVP_PKEY_free", <void**> &library.EVP_PKEY_free)
        and find(z, "PKCS12_free", <void**> &library.PKCS12_free)
        and find(z, "BIO_new_mem_buf", <void**> &library.BIO_new_mem_buf)
        and find(z, "BIO_new", <void**> &library.BIO_new)
        and find(z, "BIO_free", <void**> &library.BIO_free)
        and find(z, "BIO_ctrl", <void**> &library.BIO_ctrl)
        and find(z, "BIO_set_data", <void**> &library.BIO_set_data)
        and find(z, "BIO_get_data", <void**> &library.BIO_get_data)
        and find(z, "BIO_set_flags", <void**> &library.BIO_set_flags)
        and find(z, "BIO_clear_flags", <void**> &library.BIO_clear_flags)
        and find(z, "BIO_get_new_index", <void**> &library.BIO_get_new_index)
        and find(z, "BIO_meth_new", <void**> &library.BIO_meth_new)
        and find(z, "BIO_meth_set_write", <void**> &library.BIO_meth_set_write)
        and find(z, "BIO_meth_set_ctrl", <void**> &library.BIO_meth_set_ctrl)
        and find(z, "PEM_read_bio_X509", <void**> &library.PEM_read_bio_X509)
        and find(z, "PEM_read_bio_PrivateKey", <void**> &library.PEM_read_bio_PrivateKey)
        and find(z, "d2i_PKCS12_bio", <void**> &library.d2i_PKCS12_bio)
        and find(z, "PKCS12_parse", <void**> &library.PKCS12_parse)
        and find(z, "OPENSSL_sk_num", <void**> &library.OPENSSL_sk_num)
        and find(z, "OPENSSL_sk_value", <void**> &library.OPENSSL_sk_value)
        and find(z, "OPENSSL_sk_free", <void**> &library.OPENSSL_sk_free)
        and find(z, "ERR_get_error", <void**> &library.ERR_get_error)
        and find(z, "ERR_clear_error", <void**> &library.ERR_clear_error)
        and find(z, "ERR_reason_error_string", <void**> &library.ERR_reason_error_string)
    )


cdef TlsLibrary* tls_library() noexcept:
    global state
    global crypto
    cdef void* newer
    if state == 0:
        state = -1
        newer = dlopen("libssl.so.3", RTLD_NOW)
        crypto = dlopen("libcrypto.so.3", RTLD_NOW)
        if find_ssl(newer) and find_crypto(crypto):
            state = 1
            find(newer, "SSL_sendfile", &library.SSL_sendfile)
            return &library
        crypto = dlopen("libcrypto.so.1.1", RTLD_NOW)
        if find_ssl(dlopen("libssl.so.1.1", RTLD_NOW)) and find_crypto(crypto):
            state = 1
    return &library if state == 1 else NULL


cdef void* tls_symbol(const char* name) noexcept:
    return dlsym(crypto, name) if tls_library() != NULL else NULL


cdef Tls* tls_new(void* context, int fd, bint server) noexcept nogil:
    cdef Tls* tls = <Tls*> calloc(1, sizeof(Tls))
    if tls == NULL:
        return NULL
    tls.ssl = library.SSL_new(context)
    if tls.ssl == NULL or not library.SSL_set_fd(tls.ssl, fd) \
            or not library.SSL_set_ex_data(tls.ssl, 0, tls):
        if tls.ssl != NULL:
            library.SSL_free(tls.ssl)
        free(tls)
        library.ERR_clear_error()
        return NULL
    if server:
        library.SSL_set_accept_state(tls.ssl)
    else:
        library.SSL_set_connect_state(tls.ssl)
    object_born(OBJECT_TLS)
    return tls


cdef void tls_free(Tls* tls) noexcept nogil:
    if tls == NULL:
        return
    library.SSL_shutdown(tls.ssl)
    library.SSL_free(tls.ssl)
    library.ERR_clear_error()
    tls_drop_kept(tls)
    free(tls)
    object_died(OBJECT_TLS)


cdef void tls_drop_kept(Tls* tls) noexcept nogil:
    if tls.kept == NULL:
        return
    tls.kept_total[0] -= <int64_t> tls.kept_bytes
    free(tls.kept)
    tls.kept = NULL


cdef int tls_verify(int good, void* store_context) noexcept nogil:
    cdef void* ssl = library.X509_STORE_CTX_get_ex_data(
        store_context, library.SSL_get_ex_data_X509_STORE_CTX_idx())
    cdef Tls* tls = <Tls*> library.SSL_get_ex_data(ssl, 0) if ssl != NULL else NULL
    cdef void* certificate
    if good or tls == NULL or tls.verify_error:
        return good
    tls.verify_error = library.X509_STORE_CTX_get_error(store_context)
    certificate = library.X509_STORE_CTX_get_current_cert(store_context)
    if certificate != NULL:
        library.X509_NAME_oneline(library.X509_get_subject_name(certificate), tls.subject,
                                  TLS_SUBJECT_BYTES)
    return good


cdef int tell_why(Tls* tls, const char* reason) noexcept nogil:
    if tls.verify_error:
        snprintf(tls.why, TLS_WHY_BYTES, "certificate %s: %s", tls.subject,
                 library.X509_verify_cert_error_string(tls.verify_error))
    else:
        if reason == NULL:
            reason = "no reason given"
        snprintf(tls.why, TLS_WHY_BYTES, "%s", reason)
    return TLS_FAILED


cdef int outcome(Tls* tls, int got) noexcept nogil:
    """What an operation that gave `got` says."""
    cdef int system = errno
    cdef int code = library.SSL_get_error(tls.ssl, got)
    cdef unsigned long error
    if code == SSL_ERROR_WANT_READ:
        return TLS_WANTS_READ
    if code == SSL_ERROR_WANT_WRITE:
        return TLS_WANTS_WRITE
    if code == SSL_ERROR_ZERO_RETURN:
        return TLS_CLOSED
    error = library.ERR_get_error()
    if code == SSL_ERROR_SYSCALL and error == 0:
        if got == 0 or system == 0:
            return TLS_CLOSED
        return tell_why(tls, strerror(system))
    if error & REASON_MASK == SSL_R_UNEXPECTED_EOF_WHILE_READING:
        return TLS_CLOSED
    return tell_why(tls, library.ERR_reason_error_string(error))


cdef int tls_handshake(Tls* tls) noexcept nogil:
    library.ERR_clear_error()
    cdef int got = library.SSL_do_handshake(tls.ssl)
    return 1 if got == 1 else outcome(tls, got)


cdef ssize_t tls_read(Tls* tls, uint8_t* p, size_t n) noexcept nogil:
    library.ERR_clear_error()
    cdef int got = library.SSL_read(tls.ssl, p, <int> (n if n < IO_BYTES_MAX else IO_BYTES_MAX))
    return got if got > 0 else outcome(tls, got)


cdef ssize_t tls_write(Tls* tls, const uint8_t* p, size_t n) noexcept nogil:
    library.ERR_clear_error()
    cdef int got = library.SSL_write(tls.ssl, <void*> p,
                                     <int> (n if n < IO_BYTES_MAX else IO_BYTES_MAX))
    return got if got > 0 else outcome(tls, got)


cdef ssize_t tls_peer_subject(Tls* tls, uint8_t* p, size_t n) noexcept nogil:
    cdef void* certificate = library.SSL_get1_peer_certificate(tls.ssl)
    cdef void* name
    cdef ssize_t length = 0
    if certificate == NULL:
        return 0
    name = library.X509_get_subject_name(certificate)
    length = library.i2d_X509_NAME(name, NULL)
    if 0 < <size_t> length <= n:
        library.i2d_X509_NAME(name, &p)
    library.X509_free(certificate)
    library.ERR_clear_error()
    return length


cdef bint tls_kernel_sends(Tls* tls) noexcept nogil:
    return library.SSL_sendfile != NULL and library.BIO_ctrl(
        library.SSL_get_wbio(tls.ssl), BIO_CTRL_GET_KTLS_SEND, 0, NULL) > 0
