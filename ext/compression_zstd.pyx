"""zstd by libzstd.so.1 (see compression_zstd.pxd)."""

from kbroker.ext.compression_buffer cimport (
    CODEC_CORRUPT, CODEC_NO_MEMORY, CODEC_OK, CODEC_TOO_LARGE, CODEC_UNAVAILABLE,
    buffer_reserve, buffer_reserve_step,
)
from kbroker.ext.compression_contexts cimport CONTEXTS_KEPT, keep_context, take_context
from kbroker.ext.posix cimport RTLD_NOW, dlopen, dlsym

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

cdef void* kept_dctx[CONTEXTS_KEPT]
cdef void* kept_cctx[CONTEXTS_KEPT]

# At its default level libzstd takes other parameters where it is told that an input is small. On a
# batch of 16 KB they take a fifth to a quarter more time than those of a stream, which is how the
# Java client compresses, for some percent more or less. Higher levels take much longer as a stream.
cdef enum:
    STREAMED_BYTES_MIN = 512
    STREAMED_BYTES_MAX = 32768
    STREAMED_WINDOW_LOG = 18        # 256 KiB: what reader and writer set aside for it
cdef size_t NOT_ENDED = <size_t> -1     # ZSTD_error_GENERIC


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


open_zstd()


cdef bint zstd_available() noexcept nogil:
    return has_zstd


cdef int inflate_frames(void* dctx, zstd_in* source, size_t limit, Buffer* out) noexcept nogil:
    cdef size_t start = out.n
    cdef size_t hint = 1
    cdef zstd_out sink
    cdef int code
    while source.pos < source.size or hint:
        if out.n == out.room or out.n - start > limit:
            code = buffer_reserve_step(out, out.n - start, source.size, limit)
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
    dctx = take_context(kept_dctx)
    if dctx == NULL:
        dctx = create_dctx()
        if dctx == NULL:
            return CODEC_NO_MEMORY
    source.src = p
    source.size = n
    source.pos = 0
    code = inflate_frames(dctx, &source, limit, out)
    if code != CODEC_OK:
        free_dctx(dctx)                 # it may stand in the middle of a frame
        out.n = start
    elif not keep_context(kept_dctx, dctx):
        free_dctx(dctx)
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
    cctx = take_context(kept_cctx)
    if cctx == NULL:
        cctx = create_cctx()
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
    if code != CODEC_OK or not keep_context(kept_cctx, cctx):
        free_cctx(cctx)
    return code
