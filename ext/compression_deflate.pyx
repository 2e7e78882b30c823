"""gzip by libdeflate.so.0 (see compression_deflate.pxd)."""

from kbroker.ext.compression_buffer cimport (
    CODEC_NO_MEMORY, CODEC_OK, CODEC_UNAVAILABLE, buffer_reserve,
)
from kbroker.ext.compression_contexts cimport CONTEXTS_KEPT, keep_context, take_context
from kbroker.ext.endian cimport load_le32
from kbroker.ext.posix cimport RTLD_NOW, dlopen, dlsym

cdef enum:
    LEVEL_DEFAULT = 6
    LEVEL_MAX = 9               # gzip's; libdeflate has more, which take far more memory
    EMPTY_MEMBER_BYTES = 18     # a header of 10, nothing, CRC-32 and size
    AT_FLAGS = 3                # zlib checks what they bring: a name, a CRC of the header
    SIZE_BYTES = 4              # of the trailer's end: the size of the output, modulo 2^32
    # What is larger grows step by step, as it proves to be there.
    WHOLE_BYTES_MAX = 16 << 20
    RATIO_MAX = 1032            # no deflate stream is denser (zlib, Technical Details)
    LIBDEFLATE_SUCCESS = 0

ctypedef void* (*alloc_compressor_fn)(int) noexcept nogil
ctypedef void* (*alloc_decompressor_fn)() noexcept nogil
ctypedef void (*free_fn)(void*) noexcept nogil
ctypedef size_t (*bound_fn)(void*, size_t) noexcept nogil
ctypedef size_t (*compress_fn)(void*, const void*, size_t, void*, size_t) noexcept nogil
ctypedef int (*decompress_fn)(
    void*, const void*, size_t, void*, size_t, size_t*, size_t*
) noexcept nogil

cdef alloc_compressor_fn alloc_compressor = NULL
cdef free_fn free_compressor = NULL
cdef bound_fn compress_bound = NULL
cdef compress_fn gzip_compress = NULL
cdef alloc_decompressor_fn alloc_decompressor = NULL
cdef free_fn free_decompressor = NULL
cdef decompress_fn gzip_decompress = NULL
cdef bint has_libdeflate = False

cdef void* compressors[LEVEL_MAX + 1][CONTEXTS_KEPT]
cdef void* decompressors[CONTEXTS_KEPT]


cdef void open_libdeflate() noexcept:
    global alloc_compressor, free_compressor, compress_bound, gzip_compress
    global alloc_decompressor, free_decompressor, gzip_decompress, has_libdeflate
    cdef void* z = dlopen("libdeflate.so.0", RTLD_NOW)
    if z == NULL:
        return
    alloc_compressor = <alloc_compressor_fn> dlsym(z, "libdeflate_alloc_compressor")
    free_compressor = <free_fn> dlsym(z, "libdeflate_free_compressor")
    compress_bound = <bound_fn> dlsym(z, "libdeflate_gzip_compress_bound")
    gzip_compress = <compress_fn> dlsym(z, "libdeflate_gzip_compress")
    alloc_decompressor = <alloc_decompressor_fn> dlsym(z, "libdeflate_alloc_decompressor")
    free_decompressor = <free_fn> dlsym(z, "libdeflate_free_decompressor")
    gzip_decompress = <decompress_fn> dlsym(z, "libdeflate_gzip_decompress_ex")
    has_libdeflate = not (
        alloc_compressor == NULL or free_compressor == NULL or compress_bound == NULL
        or gzip_compress == NULL or alloc_decompressor == NULL or free_decompressor == NULL
        or gzip_decompress == NULL
    )


open_libdeflate()


cdef int deflate_whole(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil:
    cdef void* context
    cdef size_t written
    cdef int code = CODEC_NO_MEMORY
    if not has_libdeflate:
        return CODEC_UNAVAILABLE
    level = level if level >= 0 and level <= LEVEL_MAX else LEVEL_DEFAULT
    context = take_context(compressors[level])
    if context == NULL:
        context = alloc_compressor(level)
        if context == NULL:
            return CODEC_UNAVAILABLE
    if buffer_reserve(out, compress_bound(context, n)) == CODEC_OK:
        written = gzip_compress(context, p, n, out.p + out.n, out.room - out.n)
        out.n += written
        code = CODEC_OK if written else CODEC_UNAVAILABLE
    if not keep_context(compressors[level], context):
        free_compressor(context)
    return code


cdef int inflate_whole(const uint8_t* p, size_t n, size_t limit, Buffer* out) noexcept nogil:
    cdef size_t size
    cdef size_t read = 0
    cdef size_t written = 0
    cdef void* context
    cdef bint whole
    if not has_libdeflate or n < EMPTY_MEMBER_BYTES or p[AT_FLAGS] != 0:
        return CODEC_UNAVAILABLE
    size = load_le32(p + n - SIZE_BYTES)
    if size > limit or size > WHOLE_BYTES_MAX or size // RATIO_MAX > n:
        return CODEC_UNAVAILABLE
    if buffer_reserve(out, size) != CODEC_OK:
        return CODEC_NO_MEMORY
    context = take_context(decompressors)
    if context == NULL:
        context = alloc_decompressor()
        if context == NULL:
            return CODEC_UNAVAILABLE
    whole = gzip_decompress(
        context, p, n, out.p + out.n, size, &read, &written
    ) == LIBDEFLATE_SUCCESS and read == n
    if not keep_context(decompressors, context):
        free_decompressor(context)
    if not whole:
        return CODEC_UNAVAILABLE
    out.n += written
    return CODEC_OK
