"""gzip by libz.so.1, and by libdeflate.so.0 what that can do (see compression_gzip.pxd)."""

from libc.string cimport memset

from kbroker.ext.compression_buffer cimport (
    CODEC_CORRUPT, CODEC_NO_MEMORY, CODEC_OK, CODEC_TOO_LARGE, CODEC_UNAVAILABLE,
    buffer_reserve, buffer_reserve_step,
)
from kbroker.ext.compression_deflate cimport deflate_whole, inflate_whole
from kbroker.ext.posix cimport RTLD_NOW, dlopen, dlsym

ctypedef struct z_stream:
    const uint8_t* next_in
    unsigned int avail_in
    unsigned long total_in
    uint8_t* next_out
    unsigned int avail_out
    unsigned long total_out
    const char* msg
    void* state
    void* zalloc
    void* zfree
    void* opaque
    int data_type
    unsigned long adler
    unsigned long reserved

cdef enum:
    Z_OK = 0
    Z_STREAM_END = 1
    Z_BUF_ERROR = -5
    Z_MEM_ERROR = -4
    Z_NO_FLUSH = 0
    Z_FINISH = 4
    Z_DEFLATED = 8
    Z_LEVEL_DEFAULT = -1
    GZIP_WINDOW_BITS = 15 + 16      # the largest window, in gzip's wrapping
    Z_MEMORY_LEVEL = 8

ctypedef int (*inflate_init_fn)(z_stream*, int, const char*, int) noexcept nogil
ctypedef int (*deflate_init_fn)(
    z_stream*, int, int, int, int, int, const char*, int
) noexcept nogil
ctypedef int (*z_step_fn)(z_stream*, int) noexcept nogil
ctypedef int (*z_fn)(z_stream*) noexcept nogil
ctypedef unsigned long (*z_bound_fn)(z_stream*, unsigned long) noexcept nogil

cdef inflate_init_fn inflate_init = NULL
cdef deflate_init_fn deflate_init = NULL
cdef z_step_fn inflate = NULL
cdef z_step_fn deflate = NULL
cdef z_fn inflate_end = NULL
cdef z_fn inflate_reset = NULL
cdef z_fn deflate_end = NULL
cdef z_bound_fn deflate_bound = NULL
cdef bint has_zlib = False


cdef void open_zlib() noexcept:
    global inflate_init, deflate_init, inflate, deflate, inflate_end, inflate_reset
    global deflate_end, deflate_bound, has_zlib
    cdef void* z = dlopen("libz.so.1", RTLD_NOW)
    if z == NULL:
        return
    inflate_init = <inflate_init_fn> dlsym(z, "inflateInit2_")
    deflate_init = <deflate_init_fn> dlsym(z, "deflateInit2_")
    inflate = <z_step_fn> dlsym(z, "inflate")
    deflate = <z_step_fn> dlsym(z, "deflate")
    inflate_end = <z_fn> dlsym(z, "inflateEnd")
    inflate_reset = <z_fn> dlsym(z, "inflateReset")
    deflate_end = <z_fn> dlsym(z, "deflateEnd")
    deflate_bound = <z_bound_fn> dlsym(z, "deflateBound")
    has_zlib = not (
        inflate_init == NULL or deflate_init == NULL or inflate == NULL or deflate == NULL
        or inflate_end == NULL or inflate_reset == NULL or deflate_end == NULL
        or deflate_bound == NULL
    )


open_zlib()


cdef bint gzip_available() noexcept nogil:
    return has_zlib


cdef int inflate_members(
    z_stream* s, size_t n, size_t limit, Buffer* out
) noexcept nogil:
    """All members of a gzip stream; what follows the last and is no member is left alone."""
    cdef size_t start = out.n
    cdef size_t room
    cdef int code
    while True:
        if out.n == out.room or out.n - start > limit:
            code = buffer_reserve_step(out, out.n - start, n, limit)
            if code != CODEC_OK:
                return code
        room = out.room - out.n
        s.avail_out = <unsigned int> (room if room < 1 << 30 else 1 << 30)
        room = s.avail_out
        s.next_out = out.p + out.n
        code = inflate(s, Z_NO_FLUSH)
        out.n += room - s.avail_out
        if code == Z_STREAM_END:
            if s.avail_in >= 2 and s.next_in[0] == 0x1F and s.next_in[1] == 0x8B:
                inflate_reset(s)
                continue
            return CODEC_OK if out.n - start <= limit else CODEC_TOO_LARGE
        if code == Z_MEM_ERROR:
            return CODEC_NO_MEMORY
        if code != Z_OK or s.avail_in == 0 and s.avail_out:
            return CODEC_CORRUPT


cdef int gzip_decompress(
    const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil:
    cdef z_stream s
    cdef size_t start = out.n
    cdef int code
    if not has_zlib:
        return CODEC_UNAVAILABLE
    if n > 0x7FFFFFFF:
        return CODEC_CORRUPT
    code = inflate_whole(p, n, limit, out)
    if code != CODEC_UNAVAILABLE:
        return code
    memset(&s, 0, sizeof(s))
    s.next_in = p
    s.avail_in = <unsigned int> n
    if inflate_init(&s, GZIP_WINDOW_BITS, "1", sizeof(s)) != Z_OK:
        return CODEC_NO_MEMORY
    code = inflate_members(&s, n, limit, out)
    inflate_end(&s)
    if code != CODEC_OK:
        out.n = start
    return code


cdef int gzip_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil:
    cdef z_stream s
    cdef int code
    if not has_zlib:
        return CODEC_UNAVAILABLE
    if n > 0x7FFFFFFF:
        return CODEC_NO_MEMORY
    code = deflate_whole(level, p, n, out)
    if code != CODEC_UNAVAILABLE:
        return code
    code = CODEC_NO_MEMORY
    memset(&s, 0, sizeof(s))
    level = level if level >= 0 and level <= 9 else Z_LEVEL_DEFAULT
    if deflate_init(
        &s, level, Z_DEFLATED, GZIP_WINDOW_BITS, Z_MEMORY_LEVEL, 0, "1", sizeof(s)
    ) != Z_OK:
        return CODEC_NO_MEMORY
    if buffer_reserve(out, deflate_bound(&s, n)) == CODEC_OK:
        s.next_in = p
        s.avail_in = <unsigned int> n
        s.next_out = out.p + out.n
        s.avail_out = <unsigned int> (out.room - out.n)
        if deflate(&s, Z_FINISH) == Z_STREAM_END:
            out.n += s.total_out
            code = CODEC_OK
    deflate_end(&s)
    return code
