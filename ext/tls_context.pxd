"""TLS settings and connections as Python makes them."""
from libc.stddef cimport size_t

from kbroker.ext.tls cimport Tls, TlsLibrary

cdef class TlsContext:
    cdef void* context              # SSL_CTX*
    cdef readonly bint server
    cdef int serve(self, TlsLibrary* library) except -1
    cdef int identify(self, list certificates, size_t key, str source) except -1

cdef class TlsChannel:
    """Used by one thread at a time, until a link takes `tls` over."""
    cdef Tls* tls                   # NULL once it was taken
    cdef int fd
    cdef int wait(self, int code, double until_s) except -1
    cdef int check(self) except -1
