"""The Python face of the data plane."""
from kbroker.ext.connection cimport Net

cdef class Engine:
    cdef Net* net
    cdef bint started
    cdef bint stopped
    cdef dict settings
    cdef dict contexts              # TlsContext by place of the listener
    cdef list retired               # those before, while somebody may be about to use them
