"""Keys by themselves, without a connection: private ones that certificates are made with (elliptic
curves, P-256 when they are new), and public ones that signatures are checked with.

For `kbroker cert create` and for tokens; a handshake needs nothing of this. What is wrong is a
ValueError of one line.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from kbroker.ext.tls cimport (
    TlsLibrary, tls_ctrl, tls_do, tls_get, tls_int, tls_int2, tls_library, tls_make, tls_symbol,
)

cdef enum:
    EVP_PKEY_EC = 408
    BIO_CTRL_INFO = 3
    SIGNATURE_BYTES_MAX = 256

ctypedef int (*key_text)(void*, const char*, const char*) noexcept nogil
ctypedef int (*key_der)(void*, uint8_t**) noexcept nogil
ctypedef int (*key_init)(void*, void**, void*, void*, void*) noexcept nogil
ctypedef int (*key_sign)(void*, uint8_t*, size_t*, const uint8_t*, size_t) noexcept nogil
ctypedef int (*key_pem)(void*, void*, void*, void*, int, void*, void*) noexcept nogil
ctypedef int (*key_check)(void*, const uint8_t*, size_t, const uint8_t*, size_t) noexcept nogil
ctypedef void* (*key_spki)(void**, const uint8_t**, long) noexcept nogil
ctypedef void* (*key_digest)(const char*) noexcept nogil
ctypedef void* (*key_read)(void*, void**, void*, void*) noexcept nogil
ctypedef void* (*key_bio)(const void*, int) noexcept nogil
ctypedef void* (*key_context)(int, void*) noexcept nogil


cdef void* function(const char* name) except NULL:
    cdef void* found = tls_symbol(name)
    if found == NULL:
        raise ValueError("keys need OpenSSL: neither libssl.so.3 nor libssl.so.1.1 is here")
    return found


def fits(bytes public not None, str digest not None, bytes signature not None,
         bytes data not None) -> bool:
    """Whether the owner of a public key (SubjectPublicKeyInfo, DER) signed the data. The digest is
    OpenSSL's name of one, the signature as in a certificate. Without the GIL; any thread. Raises
    ValueError for what is no key."""
    cdef TlsLibrary* library = tls_library()
    cdef key_spki read = <key_spki> function("d2i_PUBKEY")
    cdef key_init begin = <key_init> function("EVP_DigestVerifyInit")
    cdef key_check check = <key_check> function("EVP_DigestVerify")
    cdef tls_make make = <tls_make> function("EVP_MD_CTX_new")
    cdef tls_do unmake = <tls_do> function("EVP_MD_CTX_free")
    cdef tls_do drop = <tls_do> function("EVP_PKEY_free")
    cdef key_digest find = <key_digest> function("EVP_get_digestbyname")
    cdef bytes name = digest.encode()
    cdef const char* name_at = name
    cdef const uint8_t* at = <const uint8_t*> <const char*> public
    cdef const uint8_t* signed = <const uint8_t*> <const char*> data
    cdef const uint8_t* told = <const uint8_t*> <const char*> signature
    cdef size_t signed_bytes = len(data)
    cdef size_t told_bytes = len(signature)
    cdef long public_bytes = len(public)
    cdef void* key
    cdef void* context
    cdef bint good = False
    with nogil:
        key = read(NULL, &at, public_bytes)
        context = make() if key != NULL else NULL
        if context != NULL:
            good = begin(context, NULL, find(name_at), NULL, key) > 0 \
                and check(context, told, told_bytes, signed, signed_bytes) == 1
            unmake(context)
        if key != NULL:
            drop(key)
        library.ERR_clear_error()
    if key == NULL:
        raise ValueError("no public key that can be read")
    return good


cdef class TlsKey:
    """One key."""
    cdef void* key

    def __dealloc__(self) -> None:
        if self.key != NULL:
            (<tls_do> tls_symbol("EVP_PKEY_free"))(self.key)

    @classmethod
    def generate(cls) -> TlsKey:
        """A new one."""
        cdef TlsKey made = TlsKey.__new__(TlsKey)
        cdef void* context = (<key_context> function("EVP_PKEY_CTX_new_id"))(EVP_PKEY_EC, NULL)
        good = context != NULL \
            and (<tls_int> function("EVP_PKEY_keygen_init"))(context) > 0 \
            and (<key_text> function("EVP_PKEY_CTX_ctrl_str"))(
                context, "ec_paramgen_curve", "P-256") > 0 \
            and (<tls_int2> function("EVP_PKEY_keygen"))(context, &made.key) > 0
        (<tls_do> function("EVP_PKEY_CTX_free"))(context)
        if not good:
            raise ValueError("OpenSSL makes no key on the curve P-256")
        return made

    @classmethod
    def read(cls, data: bytes, password: str | None, source: str) -> TlsKey:
        """The key in a PEM text."""
        cdef TlsKey made = TlsKey.__new__(TlsKey)
        cdef void* bio = (<key_bio> function("BIO_new_mem_buf"))(
            <const char*> data, <int> len(data))
        told = (password or "").encode()
        made.key = (<key_read> function("PEM_read_bio_PrivateKey"))(
            bio, NULL, NULL, <void*> <const char*> told)
        (<tls_int> function("BIO_free"))(bio)
        tls_library().ERR_clear_error()
        if made.key == NULL:
            raise ValueError(f"{source} holds no private key that can be read")
        return made

    def public(self) -> bytes:
        """SubjectPublicKeyInfo, DER."""
        cdef key_der write = <key_der> function("i2d_PUBKEY")
        written = bytearray(write(self.key, NULL))
        cdef uint8_t* p = <uint8_t*> <char*> written
        write(self.key, &p)
        return bytes(written)

    def pem(self) -> bytes:
        """PKCS #8, as it is: not encrypted."""
        cdef void* bio = (<tls_get> function("BIO_new"))((<tls_make> function("BIO_s_mem"))())
        cdef char* text = NULL
        cdef long length = 0
        if bio != NULL and (<key_pem> function("PEM_write_bio_PKCS8PrivateKey"))(
                bio, self.key, NULL, NULL, 0, NULL, NULL):
            length = (<tls_ctrl> function("BIO_ctrl"))(bio, BIO_CTRL_INFO, 0, &text)
        told = text[:length] if length > 0 else b""
        (<tls_int> function("BIO_free"))(bio)
        if not told:
            raise ValueError("OpenSSL does not write this key")
        return told

    def sign(self, data: bytes) -> bytes:
        """The signature over SHA-256 of `data`: ECDSA-Sig-Value, DER, of a key that is one."""
        cdef uint8_t signature[SIGNATURE_BYTES_MAX]
        cdef size_t length = SIGNATURE_BYTES_MAX
        cdef void* context = (<tls_make> function("EVP_MD_CTX_new"))()
        cdef void* digest = (<tls_make> function("EVP_sha256"))()
        good = context != NULL \
            and (<key_init> function("EVP_DigestSignInit"))(
                context, NULL, digest, NULL, self.key) > 0 \
            and (<key_sign> function("EVP_DigestSign"))(
                context, signature, &length, <const uint8_t*> <const char*> data, len(data)) > 0
        (<tls_do> function("EVP_MD_CTX_free"))(context)
        if not good:
            tls_library().ERR_clear_error()
            raise ValueError("OpenSSL does not sign with this key")
        return (<char*> signature)[:length]
