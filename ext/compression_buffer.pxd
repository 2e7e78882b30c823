"""A growing piece of malloc's memory, and the codes of everything that fills one."""


cdef enum:
    CODEC_OK = 0
    CODEC_CORRUPT = -1      # the bytes are not what the codec writes
    CODEC_TOO_LARGE = -2    # more output than the limit
    CODEC_NO_MEMORY = -3
    CODEC_UNAVAILABLE = -4  # the library is not on this machine, or no such codec


ctypedef struct Buffer:    # owned; all zero is an empty one
    unsigned char* p
    size_t n               # bytes used
    size_t room            # bytes allocated


# Room for `more` bytes behind the n that are used: CODEC_OK or CODEC_NO_MEMORY.
cdef int buffer_reserve(Buffer* b, size_t more) noexcept nogil
# The same for the output of n bytes of input, of which `done` stand already: a step further, never
# beyond one byte over the limit: that byte tells a bomb from what just fits. CODEC_TOO_LARGE there.
cdef int buffer_reserve_step(Buffer* b, size_t done, size_t n, size_t limit) noexcept nogil
cdef int buffer_put(Buffer* b, const void* p, size_t n) noexcept nogil
cdef void buffer_free(Buffer* b) noexcept nogil
