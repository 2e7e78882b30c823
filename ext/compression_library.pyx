"""gzip and zstd by libz.so.1 and libzstd.so.1."""

from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_cas_ptr, atomic_exchange_ptr
from kbroker.ext.compression_buffer cimport (
    CODEC_CORRUPT, CODEC_NO_MEMORY, CODEC_OK, CODEC_TOO_LARGE, CODEC_UNAVAILABLE,
    buffer_reserve,
)

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* name, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW


# ---- zlib.h

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


# ---- zstd.h

ctypedef struct zstd_out:
    void* dst
    size_t size
    size_t pos

ctypedef struct zstd_in:
    const void* src
    size_t size
    size_t pos

cdef enum:
    ZSTD_c_compressionLevel = 100
    ZSTD_c_windowLog = 101
    ZSTD_e_continue = 0
    ZSTD_e_end = 2
    ZSTD_LEVEL_DEFAULT = 3

ctypedef void* (*zstd_create_fn)() noexcept nogil
ctypedef size_t (*zstd_free_fn)(void*) noexcept nogil
ctypedef size_t (*zstd_decompress_fn)(void*, zstd_out*, zstd_in*) noexcept nogil
ctypedef size_t (*zstd_set_fn)(void*, int, int) noexcept nogil
ctypedef size_t (*zstd_compress_fn)(void*, void*, size_t, const void*, size_t) noexcept nogil
ctypedef size_t (*zstd_compress_stream_fn)(void*, zstd_out*, zstd_in*, int) noexcept nogil
ctypedef size_t (*zstd_bound_fn)(size_t) noexcept nogil
ctypedef unsigned int (*zstd_is_error_fn)(size_t) noexcept nogil

cdef zstd_create_fn create_dctx = NULL
cdef zstd_free_fn free_dctx = NULL
cdef zstd_decompress_fn decompress_stream = NULL
cdef zstd_create_fn create_cctx = NULL
cdef zstd_free_fn free_cctx = NULL
cdef zstd_set_fn set_parameter = NULL
cdef zstd_compress_fn compress2 = NULL
cdef zstd_compress_stream_fn compress_stream2 = NULL
cdef zstd_bound_fn compress_bound = NULL
cdef zstd_is_error_fn is_error = NULL
cdef bint has_zstd = False

# Contexts that were used: making one costs about as much as a small batch does. Any thread takes
# one out and puts it back; where there is none, or no place left, it is made and freed.
cdef enum:
    CONTEXTS_KEPT = 4
cdef void* kept_dctx[CONTEXTS_KEPT]
cdef void* kept_cctx[CONTEXTS_KEPT]

cdef enum:
    GROWTH_BYTES_MIN = 65536        # of the output, at a step
    EXPANSION_GUESS = 4

# At its default level libzstd takes other parameters where it is told that an input is small. On a
# batch of 16 KB they take a fifth to a quarter more time than those of a stream, which is how the
# Java client compresses, for some percent more or less. Higher levels take much longer as a stream.
cdef enum:
    STREAMED_BYTES_MIN = 512
    STREAMED_BYTES_MAX = 32768
    STREAMED_WINDOW_LOG = 18        # 256 KiB: what reader and writer set aside for it
cdef size_t NOT_ENDED = <size_t> -1     # ZSTD_error_GENERIC


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


cdef void open_zstd() noexcept:
    global create_dctx, free_dctx, decompress_stream, create_cctx, free_cctx
    global set_parameter, compress2, compress_stream2, compress_bound, is_error, has_zstd
    cdef void* z = dlopen("libzstd.so.1", RTLD_NOW)
    if z == NULL:
        return
    create_dctx = <zstd_create_fn> dlsym(z, "ZSTD_createDCtx")
    free_dctx = <zstd_free_fn> dlsym(z, "ZSTD_freeDCtx")
    decompress_stream = <zstd_decompress_fn> dlsym(z, "ZSTD_decompressStream")
    create_cctx = <zstd_create_fn> dlsym(z, "ZSTD_createCCtx")
    free_cctx = <zstd_free_fn> dlsym(z, "ZSTD_freeCCtx")
    set_parameter = <zstd_set_fn> dlsym(z, "ZSTD_CCtx_setParameter")
    compress2 = <zstd_compress_fn> dlsym(z, "ZSTD_compress2")
    compress_stream2 = <zstd_compress_stream_fn> dlsym(z, "ZSTD_compressStream2")
    compress_bound = <zstd_bound_fn> dlsym(z, "ZSTD_compressBound")
    is_error = <zstd_is_error_fn> dlsym(z, "ZSTD_isError")
    has_zstd = not (
        create_dctx == NULL or free_dctx == NULL or decompress_stream == NULL
        or create_cctx == NULL or free_cctx == NULL or set_parameter == NULL
        or compress2 == NULL or compress_stream2 == NULL or compress_bound == NULL
        or is_error == NULL
    )


open_zlib()
open_zstd()


cdef bint gzip_available() noexcept nogil:
    return has_zlib


cdef bint zstd_available() noexcept nogil:
    return has_zstd


cdef inline int grow(Buffer* out, size_t start, size_t n, size_t limit) noexcept nogil:
    """More room for output of n bytes of input, never beyond one byte over the limit: that
    byte tells a bomb from what just fits."""
    cdef size_t done = out.n - start
    cdef size_t more = done if done else n * EXPANSION_GUESS
    if done > limit:
        return CODEC_TOO_LARGE
    more = more if more > GROWTH_BYTES_MIN else GROWTH_BYTES_MIN
    more = more if more < limit - done else limit - done + 1
    return buffer_reserve(out, more)


cdef int inflate_members(
    z_stream* s, size_t n, size_t limit, Buffer* out
) noexcept nogil:
    """All members of a gzip stream; what follows the last and is no member is left alone."""
    cdef size_t start = out.n
    cdef size_t room
    cdef int code
    while True:
        if out.n == out.room or out.n - start > limit:
            code = grow(out, start, n, limit)
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
    cdef int code = CODEC_NO_MEMORY
    if not has_zlib:
        return CODEC_UNAVAILABLE
    if n > 0x7FFFFFFF:
        return CODEC_NO_MEMORY
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


cdef void* take_context(void** kept, zstd_create_fn create) noexcept nogil:
    cdef void* found
    cdef int i
    for i in range(CONTEXTS_KEPT):
        found = atomic_exchange_ptr(&kept[i], NULL)
        if found != NULL:
            return found
    return create()


cdef void keep_context(void** kept, void* context, zstd_free_fn discard) noexcept nogil:
    cdef void* expected
    cdef int i
    for i in range(CONTEXTS_KEPT):
        expected = NULL
        if atomic_cas_ptr(&kept[i], &expected, context):
            return
    discard(context)


cdef int inflate_frames(void* dctx, zstd_in* source, size_t limit, Buffer* out) noexcept nogil:
    cdef size_t start = out.n
    cdef size_t hint = 1
    cdef zstd_out sink
    cdef int code
    while source.pos < source.size or hint:
        if out.n == out.room or out.n - start > limit:
            code = grow(out, start, source.size, limit)
            if code != CODEC_OK:
                return code
        sink.dst = out.p
        sink.size = out.room
        sink.pos = out.n
        hint = decompress_stream(dctx, &sink, source)
        if is_error(hint):
            return CODEC_CORRUPT
        out.n = sink.pos
        if hint and source.pos == source.size and sink.pos < sink.size:
            return CODEC_CORRUPT                 # the frame goes on, the input does not
    return CODEC_OK if out.n - start <= limit else CODEC_TOO_LARGE


cdef int zstd_decompress(
    const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil:
    cdef zstd_in source
    cdef size_t start = out.n
    cdef int code
    cdef void* dctx
    if not has_zstd:
        return CODEC_UNAVAILABLE
    dctx = take_context(kept_dctx, create_dctx)
    if dctx == NULL:
        return CODEC_NO_MEMORY
    source.src = p
    source.size = n
    source.pos = 0
    code = inflate_frames(dctx, &source, limit, out)
    if code == CODEC_OK:
        keep_context(kept_dctx, dctx, free_dctx)
    else:
        free_dctx(dctx)                 # it may stand in the middle of a frame
        out.n = start
    return code


cdef size_t compress_streamed(void* cctx, const uint8_t* p, size_t n, Buffer* out) noexcept nogil:
    """A frame that does not tell the size of its content; bytes written, or an error of libzstd."""
    cdef zstd_in source
    cdef zstd_out sink
    cdef size_t left
    source.src = p
    source.size = n
    source.pos = 0
    sink.dst = out.p + out.n
    sink.size = out.room - out.n
    sink.pos = 0
    left = compress_stream2(cctx, &sink, &source, ZSTD_e_continue)
    if not is_error(left):
        left = compress_stream2(cctx, &sink, &source, ZSTD_e_end)
    return sink.pos if left == 0 else NOT_ENDED


cdef int zstd_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil:
    cdef bint streamed = (
        level == ZSTD_LEVEL_DEFAULT and STREAMED_BYTES_MIN <= n and n <= STREAMED_BYTES_MAX
    )
    cdef void* cctx
    cdef size_t written
    cdef int code = CODEC_NO_MEMORY
    if not has_zstd:
        return CODEC_UNAVAILABLE
    cctx = take_context(kept_cctx, create_cctx)
    if cctx == NULL:
        return CODEC_NO_MEMORY
    set_parameter(cctx, ZSTD_c_compressionLevel, level)
    set_parameter(cctx, ZSTD_c_windowLog, STREAMED_WINDOW_LOG if streamed else 0)
    if buffer_reserve(out, compress_bound(n)) == CODEC_OK:
        if streamed:
            written = compress_streamed(cctx, p, n, out)
        else:
            written = compress2(cctx, out.p + out.n, out.room - out.n, p, n)
        if not is_error(written):
            out.n += written
            code = CODEC_OK
    if code == CODEC_OK:
        keep_context(kept_cctx, cctx, free_cctx)
    else:
        free_cctx(cctx)
    return code
