from libc.stdint cimport int64_t


cdef bint in_greenlet() except -1
cdef int rest(int64_t began_ns, int64_t until_ns) except -1
cdef size_t user_ident() except? 0
