"""Streams of bytes with file regions between them (see out_stream.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kbroker.ext.connection cimport Chunk, NetThread, Out, Region

cdef enum:
    FREE_CHUNKS_MAX = 64
    COPY_BYTES_MAX = 4096       # an answer up to this size is copied behind the one before it


# ---- chunks ------------------------------------------------------------------------------------

cdef Chunk* chunk_new(NetThread* thread, uint32_t size) noexcept nogil:
    cdef Chunk* chunk
    cdef uint32_t capacity = CHUNK_BYTES if size <= CHUNK_BYTES else size
    if size <= CHUNK_BYTES and thread != NULL and thread.free_chunks != NULL:
        chunk = thread.free_chunks
        thread.free_chunks = chunk.next
        thread.free_chunks_count -= 1
    else:
        chunk = <Chunk*> malloc(sizeof(Chunk) + <size_t> capacity)
        if chunk == NULL:
            return NULL
    chunk.next = NULL
    chunk.data = <uint8_t*> chunk + sizeof(Chunk)
    chunk.begin = 0
    chunk.end = 0
    chunk.capacity = capacity
    chunk.kind = CHUNK_POOLED if size <= CHUNK_BYTES else CHUNK_LARGE
    return chunk


cdef void chunk_free(NetThread* thread, Chunk* chunk) noexcept nogil:
    if chunk.kind == CHUNK_INLINE:
        return
    if chunk.kind == CHUNK_POOLED and thread != NULL:
        if thread.free_chunks_count < FREE_CHUNKS_MAX:
            chunk.next = thread.free_chunks
            thread.free_chunks = chunk
            thread.free_chunks_count += 1
            return
    free(chunk)


cdef uint8_t* out_reserve(NetThread* thread, Out* out, uint32_t size) noexcept nogil:
    """Room for `size` bytes in one piece behind what is written; NULL when memory is out."""
    cdef Chunk* chunk = out.tail
    if chunk == NULL or chunk.capacity - chunk.end < size:
        chunk = chunk_new(thread, size)
        if chunk == NULL:
            return NULL
        if out.tail == NULL:
            out.head = chunk
        else:
            out.tail.next = chunk
        out.tail = chunk
    return chunk.data + chunk.end


cdef void out_sent(NetThread* thread, Out* out, uint64_t size) noexcept nogil:
    cdef Chunk* chunk
    cdef uint64_t part
    out.sent += size
    out.unsent -= <int64_t> size
    while out.head != NULL:
        chunk = out.head
        part = chunk.end - chunk.begin
        if part > size:
            chunk.begin += <uint32_t> size
            return
        size -= part
        out.head = chunk.next
        if out.head == NULL:
            out.tail = NULL
        chunk_free(thread, chunk)


cdef void region_free(Region* region) noexcept nogil:
    if region.release != NULL:
        region.release(region.ref)
    free(region)


cdef void out_region_done(Out* out) noexcept nogil:
    """The first region was sent or is dropped."""
    cdef Region* region = out.regions
    out.regions = region.next
    if out.regions == NULL:
        out.regions_tail = NULL
    region_free(region)


cdef void out_clear(NetThread* thread, Out* out) noexcept nogil:
    cdef Chunk* chunk
    while out.regions != NULL:
        out_region_done(out)
    while out.head != NULL:
        chunk = out.head
        out.head = chunk.next
        chunk_free(thread, chunk)
    memset(out, 0, sizeof(Out))


cdef void regions_join(Out* out, Region* first, Region* last) noexcept nogil:
    """Append a list of regions, `first` to `last`, to those of `out`."""
    if first == NULL:
        return
    if out.regions_tail == NULL:
        out.regions = first
    else:
        out.regions_tail.next = first
    out.regions_tail = last


cdef void append_regions(Out* target, Out* source) noexcept nogil:
    cdef Region* region = source.regions
    regions_join(target, region, source.regions_tail)
    while region != NULL:
        region.at += target.written
        region = region.next
    source.regions = NULL
    source.regions_tail = NULL


cdef void out_join(NetThread* thread, Out* target, Out* source) noexcept nogil:
    cdef Chunk* chunk
    cdef uint32_t size
    cdef uint8_t* at
    append_regions(target, source)
    while source.head != NULL:
        chunk = source.head
        source.head = chunk.next
        chunk.next = NULL
        size = chunk.end - chunk.begin
        at = NULL
        if size <= COPY_BYTES_MAX or chunk.kind == CHUNK_INLINE:
            at = out_reserve(thread, target, size)
        if at != NULL:
            memcpy(at, chunk.data + chunk.begin, size)
            target.tail.end += size
            chunk_free(thread, chunk)
        elif target.tail == NULL:
            target.head = chunk
            target.tail = chunk
        else:
            target.tail.next = chunk
            target.tail = chunk
    source.tail = NULL
    target.written += source.written
    target.unsent += source.unsent
    source.written = 0
    source.unsent = 0
