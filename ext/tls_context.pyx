"""Contexts (what is trusted, who we are) and channels (one connection) for Python.

Everything that a file or a setting has wrong is a ValueError of one line that names the source.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.greenlets cimport in_greenlet, rest
from kbroker.ext.posix cimport RTLD_NOW, dlopen, dlsym, ssize_t
from kbroker.ext.sockets cimport POLLIN, POLLOUT, poll, pollfd_t
from kbroker.ext.tls cimport (
    TLS_CLOSED, TLS_FAILED, TLS_WANTS_WRITE, TlsLibrary, tls_free, tls_handshake,
    tls_library, tls_new, tls_read, tls_verify, tls_write,
)
from kbroker.ext.tls_records cimport records_prepare

cdef enum:
    SSL_CTRL_EXTRA_CHAIN_CERT = 14
    SSL_CTRL_MODE = 33
    SSL_CTRL_SET_READ_AHEAD = 41
    SSL_CTRL_SET_SESS_CACHE_MODE = 44
    SSL_CTRL_SET_TLSEXT_HOSTNAME = 55
    SSL_CTRL_SET_MIN_PROTO_VERSION = 123
    SSL_CTRL_SET_MAX_PROTO_VERSION = 124
    SSL_MODES = 0x1 | 0x2 | 0x10    # partial writes, from a buffer that moves; idle ones hold none
    SSL_OP_ENABLE_KTLS = 1 << 3
    SSL_OP_NO_RENEGOTIATION = 1 << 30
    SSL_VERIFY_NONE = 0
    SSL_VERIFY_PEER = 1
    SSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2
    NO_PARTIAL_WILDCARDS = 4
    LOOK_MS = 100                   # how long Python's signals wait at most

_UNSUPPORTED = "unsupported"          # the reason of a cipher that no provider has
VERSIONS = {"TLSv1.2": 0x303, "TLSv1.3": 0x304}


cdef str reason_of(TlsLibrary* library):
    """The last reason that OpenSSL has; its queue is empty then."""
    cdef unsigned long error = library.ERR_get_error()
    cdef unsigned long following = error
    cdef const char* text
    while following:
        error = following
        following = library.ERR_get_error()
    text = library.ERR_reason_error_string(error)
    return (<bytes> text).decode("utf-8", "replace") if text != NULL else "no reason given"


cdef class TlsContext:
    """What is trusted, who we are, and which versions and ciphers are spoken."""

    def __cinit__(self, *, server: bool = False) -> None:
        cdef TlsLibrary* library = tls_library()
        if library == NULL:
            raise ValueError("TLS needs OpenSSL: neither libssl.so.3 nor libssl.so.1.1 is here")
        self.server = server
        self.context = library.SSL_CTX_new(
            library.TLS_server_method() if server else library.TLS_client_method())
        if self.context == NULL:
            raise MemoryError(f"no TLS context: {reason_of(library)}")
        library.SSL_CTX_ctrl(self.context, SSL_CTRL_MODE, SSL_MODES, NULL)
        library.SSL_CTX_ctrl(self.context, SSL_CTRL_SET_READ_AHEAD, 1, NULL)
        library.SSL_CTX_set_options(self.context, <uint64_t> SSL_OP_NO_RENEGOTIATION)
        library.SSL_CTX_set_verify(self.context, SSL_VERIFY_NONE if server else SSL_VERIFY_PEER,
                                   tls_verify)
        if server:
            self.serve(library)

    cdef int serve(self, TlsLibrary* library) except -1:
        """Sessions are resumed by tickets, whose keys are this context's: nothing is kept of them,
        and after a reload everybody shows who he is."""
        records_prepare()
        library.SSL_CTX_ctrl(self.context, SSL_CTRL_SET_SESS_CACHE_MODE, 0, NULL)
        library.SSL_CTX_set_num_tickets(self.context, 1)
        library.SSL_CTX_set_session_id_context(self.context, <const uint8_t*> b"kbroker", 7)
        return 0

    def __dealloc__(self) -> None:
        if self.context != NULL:
            tls_library().SSL_CTX_free(self.context)

    def use_kernel(self) -> None:
        """Have the kernel encrypt where it can (module tls) and OpenSSL knows how, from 3.0 on."""
        cdef TlsLibrary* library = tls_library()
        if library.SSL_sendfile != NULL:
            library.SSL_CTX_set_options(self.context, <uint64_t> SSL_OP_ENABLE_KTLS)

    def ask_clients(self, *, required: bool) -> None:
        """Clients may, or must, show a certificate that is trusted here."""
        tls_library().SSL_CTX_set_verify(
            self.context,
            SSL_VERIFY_PEER | (SSL_VERIFY_FAIL_IF_NO_PEER_CERT if required else 0),
            tls_verify,
        )

    def certificate(self) -> bytes | None:
        """Our own, DER."""
        cdef TlsLibrary* library = tls_library()
        cdef void* found = library.SSL_CTX_get0_certificate(self.context)
        cdef uint8_t* p
        if found == NULL:
            return None
        written = bytearray(library.i2d_X509(found, NULL))
        p = <uint8_t*> <char*> written
        library.i2d_X509(found, &p)
        return bytes(written)

    def speak(self, lowest: str, highest: str) -> None:
        """The versions, "TLSv1.2" or "TLSv1.3"."""
        cdef TlsLibrary* library = tls_library()
        cdef long low = VERSIONS[lowest]
        cdef long high = VERSIONS[highest]
        if not library.SSL_CTX_ctrl(self.context, SSL_CTRL_SET_MIN_PROTO_VERSION, low, NULL) \
                or not library.SSL_CTX_ctrl(
                    self.context, SSL_CTRL_SET_MAX_PROTO_VERSION, high, NULL):
            raise ValueError(f"{lowest} to {highest}: {reason_of(library)}")

    def ciphers(self, suites: list[str]) -> None:
        """Cipher suites by their standard names, as Kafka has them, or by OpenSSL's."""
        cdef TlsLibrary* library = tls_library()
        older = []
        newer = []
        for suite in suites:
            standard = suite.encode()
            name = library.OPENSSL_cipher_name(standard)
            told = standard if name == NULL or name == b"(NONE)" else <bytes> name
            (newer if told.startswith(b"TLS_") else older).append(told)
        if older and not library.SSL_CTX_set_cipher_list(self.context, b":".join(older)) \
                or newer and not library.SSL_CTX_set_ciphersuites(self.context, b":".join(newer)):
            raise ValueError(f"{', '.join(suites)}: {reason_of(library)}")
        if not newer:
            self.speak("TLSv1.2", "TLSv1.2")
        elif not older:
            self.speak("TLSv1.3", "TLSv1.3")

    def trust_system(self) -> None:
        """The certificates that the system trusts."""
        cdef TlsLibrary* library = tls_library()
        if not library.SSL_CTX_set_default_verify_paths(self.context):
            raise ValueError(f"the system's certificates: {reason_of(library)}")

    def trust_pem(self, data: bytes, source: str) -> int:
        """Every certificate of a PEM text; their number."""
        cdef TlsLibrary* library = tls_library()
        found = read_certificates(library, data, source)
        for certificate in found:
            trust(library, self.context, <void*> <size_t> certificate)
            library.X509_free(<void*> <size_t> certificate)
        return len(found)

    def trust_pkcs12(self, data: bytes, password: str | None, source: str) -> int:
        """Every certificate of a PKCS #12 file; their number."""
        cdef TlsLibrary* library = tls_library()
        key, own, others = read_pkcs12(library, data, password, source)
        found = ([own] if own else []) + others
        for certificate in found:
            trust(library, self.context, <void*> <size_t> certificate)
        release(library, key, found)
        if not found:
            raise ValueError(f"{source} holds no certificate")
        return len(found)

    def identity_pem(self, chain: bytes, key: bytes, password: str | None, source: str) -> None:
        """Who we are: a certificate, those up to the CA behind it, and the key of the first."""
        cdef TlsLibrary* library = tls_library()
        certificates = read_certificates(library, chain, source)
        try:
            private = read_key(library, key, password, source)
        except ValueError:
            release(library, 0, certificates)
            raise
        self.identify(certificates, private, source)

    def identity_pkcs12(self, data: bytes, password: str | None, source: str) -> None:
        """The same from a PKCS #12 file."""
        cdef TlsLibrary* library = tls_library()
        key, own, others = read_pkcs12(library, data, password, source)
        if not key or not own:
            release(library, key, ([own] if own else []) + others)
            raise ValueError(f"{source} holds no private key with its certificate")
        self.identify([own, *others], key, source)

    cdef int identify(self, list certificates, size_t key, str source) except -1:
        """Takes the certificates and the key over."""
        cdef TlsLibrary* library = tls_library()
        cdef void* first = <void*> <size_t> certificates[0]
        good = library.SSL_CTX_use_certificate(self.context, first) \
            and library.SSL_CTX_use_PrivateKey(self.context, <void*> <size_t> key) \
            and library.SSL_CTX_check_private_key(self.context)
        release(library, key, certificates[:1])
        for at, certificate in enumerate(certificates[1:], 1):
            if not good or not library.SSL_CTX_ctrl(
                self.context, SSL_CTRL_EXTRA_CHAIN_CERT, 0, <void*> <size_t> certificate
            ):
                release(library, 0, certificates[at:])
                break
        if not good:
            raise ValueError(f"{source}: {reason_of(library)}")
        return 0

    def channel(self, fd: int, host: str, check_host: bool) -> TlsChannel:
        """TLS over a connected socket, which is made non-blocking by whoever owns it.

        host: a name or an address; check_host: the other side's certificate must bear it.
        """
        cdef TlsLibrary* library = tls_library()
        cdef TlsChannel made = TlsChannel.__new__(TlsChannel)
        cdef void* param
        name = host.encode("idna") if not host.isascii() else host.encode()
        is_address = ":" in host or host.replace(".", "").isdigit()
        made.fd = fd
        made.tls = tls_new(self.context, fd, self.server)
        if made.tls == NULL:
            raise MemoryError("no memory for a TLS connection")
        if not is_address:
            library.SSL_ctrl(made.tls.ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, 0,
                             <void*> <const char*> name)
        if check_host:
            param = library.SSL_get0_param(made.tls.ssl)
            library.X509_VERIFY_PARAM_set_hostflags(param, NO_PARTIAL_WILDCARDS)
            if is_address:
                good = library.X509_VERIFY_PARAM_set1_ip_asc(param, name)
            else:
                good = library.SSL_set1_host(made.tls.ssl, name)
            if not good:
                raise ValueError(f"{host!r} is no name of a host")
        return made


cdef class TlsChannel:
    """One connection; made by TlsContext.channel. Waits without the GIL.

    ConnectionError with one line that says why; TimeoutError. verify_error: OpenSSL's number of
    what is wrong with the other side's certificate, 0 for nothing.
    """

    def __dealloc__(self) -> None:
        tls_free(self.tls)

    @property
    def verify_error(self) -> int:
        return self.tls.verify_error if self.tls != NULL else 0

    @property
    def version(self) -> str:
        """As it was agreed on, "TLSv1.3"."""
        self.check()
        return (<bytes> tls_library().SSL_get_version(self.tls.ssl)).decode()

    cdef int check(self) except -1:
        if self.tls == NULL:
            raise RuntimeError("this connection was closed or handed over")
        return 0

    cdef int wait(self, int code, double until_s) except -1:
        """Until the socket is as the code wants it."""
        cdef pollfd_t polled
        cdef int wait_ms
        cdef int ready = 0
        cdef bint yields = in_greenlet()
        cdef int64_t began_ns = monotonic_ns()
        if code == TLS_CLOSED:
            raise ConnectionResetError("the other side closed the connection")
        if code == TLS_FAILED:
            raise ConnectionAbortedError((<bytes> self.tls.why).decode("utf-8", "replace"))
        polled.fd = self.fd
        polled.events = POLLOUT if code == TLS_WANTS_WRITE else POLLIN
        while ready == 0:
            left_s = until_s - monotonic_ns() / 1e9
            if left_s <= 0:
                raise TimeoutError
            wait_ms = 0 if yields else min(LOOK_MS, int(left_s * 1000) + 1)
            with nogil:
                ready = poll(&polled, 1, wait_ms)
            if ready == 0 and yields:
                rest(began_ns, <int64_t> (until_s * 1e9))
            PyErr_CheckSignals()
            ready = max(ready, 0)       # a signal is no answer
        return 0

    def handshake(self, timeout_s: float) -> None:
        cdef int code
        cdef double until_s = monotonic_ns() / 1e9 + timeout_s
        self.check()
        while True:
            with nogil:
                code = tls_handshake(self.tls)
            if code == 1:
                return
            self.wait(code, until_s)

    def recv_into(self, into: bytearray | memoryview, timeout_s: float) -> int:
        """At least 1 byte, or 0 when the other side has closed."""
        cdef Borrowed room = Borrowed(into, writable=True)
        cdef ssize_t got
        cdef double until_s = monotonic_ns() / 1e9 + timeout_s
        self.check()
        while True:
            with nogil:
                got = tls_read(self.tls, room.p, room.n)
            if got >= 0:
                return got
            self.wait(<int> got, until_s)

    def sendall(self, data: bytes, timeout_s: float) -> None:
        cdef Borrowed given = Borrowed(data)
        cdef size_t sent = 0
        cdef ssize_t got
        cdef double until_s = monotonic_ns() / 1e9 + timeout_s
        self.check()
        while sent < given.n:
            with nogil:
                got = tls_write(self.tls, given.p + sent, given.n - sent)
            if got > 0:
                sent += <size_t> got
            else:
                self.wait(<int> got, until_s)

    def close(self) -> None:
        """Tells the other side; the socket stays open. Again: nothing."""
        tls_free(self.tls)
        self.tls = NULL


# ---- reading keys and certificates: pointers as whole numbers, freed by release ---------------

cdef void trust(TlsLibrary* library, void* context, void* certificate) noexcept:
    library.X509_STORE_add_cert(library.SSL_CTX_get_cert_store(context), certificate)
    library.ERR_clear_error()           # it may have been in there before


cdef int release(TlsLibrary* library, size_t key, list certificates) except -1:
    for certificate in certificates:
        library.X509_free(<void*> <size_t> certificate)
    if key:
        library.EVP_PKEY_free(<void*> key)
    return 0


cdef void* reader(TlsLibrary* library, bytes data) except NULL:
    cdef void* bio
    if len(data) > 1 << 30:
        raise ValueError(f"{len(data)} bytes of keys")
    bio = library.BIO_new_mem_buf(<const char*> data, <int> len(data))
    if bio == NULL:
        raise MemoryError("no memory for reading a key")
    return bio


cdef list read_certificates(TlsLibrary* library, bytes data, str source):
    cdef void* bio = reader(library, data)
    cdef void* certificate
    cdef list found = []
    while True:
        certificate = library.PEM_read_bio_X509(bio, NULL, NULL, <void*> b"")
        if certificate == NULL:
            break
        found.append(<size_t> certificate)
    library.BIO_free(bio)
    why = reason_of(library)
    wanted = data.count(b"-----BEGIN CERTIFICATE-----")
    if len(found) < wanted:
        release(library, 0, found)
        raise ValueError(f"{source}: certificate {len(found) + 1} of {wanted}: {why}")
    if not found:
        raise ValueError(f"{source} holds no certificate in PEM form")
    return found


cdef size_t read_key(TlsLibrary* library, bytes data, object password, str source) except 0:
    cdef void* bio = reader(library, data)
    cdef void* key
    told = (password or "").encode()
    key = library.PEM_read_bio_PrivateKey(bio, NULL, NULL, <void*> <const char*> told)
    library.BIO_free(bio)
    why = reason_of(library)
    if key != NULL:
        return <size_t> key
    if b"PRIVATE KEY-----" not in data:
        raise ValueError(f"{source} holds no private key in PEM form")
    if b"ENCRYPTED" in data:
        hint = "ssl.key.password is wrong" if password else "it is encrypted: give ssl.key.password"
        raise ValueError(f"{source}: private key: {hint}")
    raise ValueError(f"{source}: private key: {why}")


cdef void load_legacy() noexcept:
    """Load OpenSSL's provider of old ciphers beside the default one, if it is on this machine. Only
    key stores need it: TLS speaks none of these ciphers."""
    cdef void* crypto = dlopen("libcrypto.so.3", RTLD_NOW)
    cdef void* (*try_load)(void*, const char*, int) noexcept
    if crypto == NULL:  # OpenSSL 1.1, which has them
        return
    try_load = <void* (*)(void*, const char*, int) noexcept> dlsym(crypto, "OSSL_PROVIDER_try_load")
    if try_load != NULL:
        try_load(NULL, "legacy", 1)


cdef tuple read_pkcs12(TlsLibrary* library, bytes data, object password, str source):
    """(key or 0, its certificate or 0, the others)."""
    cdef void* bio = reader(library, data)
    cdef void* store = library.d2i_PKCS12_bio(bio, NULL)
    cdef void* key = NULL
    cdef void* own = NULL
    cdef void* others = NULL
    cdef int at
    library.BIO_free(bio)
    if store == NULL:
        raise ValueError(f"{source} is no PKCS #12 file: {reason_of(library)}")
    told = (password or "").encode()
    good = library.PKCS12_parse(store, told, &key, &own, &others)
    why = "" if good else reason_of(library)
    if not good and _UNSUPPORTED in why:
        load_legacy()
        good = library.PKCS12_parse(store, told, &key, &own, &others)
        why = "" if good else reason_of(library)
    library.PKCS12_free(store)
    if not good and _UNSUPPORTED in why:
        raise ValueError(
            f"{source} is encrypted with a cipher (of OpenSSL 1 or Java 8) that only OpenSSL's "
            "legacy provider has, which is not here: install it (Debian: openssl-provider-legacy), "
            "or convert the store with the keytool of Java 17: keytool -importkeystore "
            "-srckeystore OLD -destkeystore NEW -deststoretype PKCS12")
    if not good:
        raise ValueError(f"{source}: {why} (is the password right?)")
    found = []
    if others != NULL:
        for at in range(library.OPENSSL_sk_num(others)):
            found.append(<size_t> library.OPENSSL_sk_value(others, at))
        library.OPENSSL_sk_free(others)
    return <size_t> key, <size_t> own, found
