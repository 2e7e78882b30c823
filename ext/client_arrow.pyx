"""Columns through Arrow's C data interface (see client_arrow.pxd)."""
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strcmp

from kbroker.ext.arrow_abi cimport ArrowArray, ArrowSchema
from kbroker.ext.client_column_store cimport (
    Binary, Store, Views, store_ref, store_settle_headers, store_unref, views_pack, views_settle,
)

cdef enum:
    NULLABLE = 2

ctypedef fused Node:
    ArrowSchema
    ArrowArray

# What an absent buffer of ends or data points to.
cdef int64_t nothing = 0


cdef void node_free(Node* node) noexcept nogil:
    """A schema or an array, and what is below it; NULL: nothing."""
    if node != NULL:
        if node.release != NULL:
            node.release(node)
        free(node)


cdef void below_free(Node* node) noexcept nogil:
    cdef int64_t i
    for i in range(node.n_children):
        node_free(node.children[i])
    node_free(node.dictionary)
    free(node.children)


# ---- schema

cdef void schema_release(ArrowSchema* schema) noexcept nogil:
    below_free(schema)
    schema.release = NULL


cdef ArrowSchema* schema_new(
    const char* format, const char* name, int64_t flags, int64_t children
) except NULL:
    cdef ArrowSchema* schema = <ArrowSchema*> calloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError
    schema.format = format
    schema.name = name
    schema.flags = flags
    schema.release = schema_release
    if children:
        schema.children = <ArrowSchema**> calloc(children, sizeof(void*))
        if schema.children == NULL:
            free(schema)
            raise MemoryError
        schema.n_children = children
    return schema


cdef void schema_capsule_free(object capsule) noexcept:
    node_free(<ArrowSchema*> PyCapsule_GetPointer(capsule, b"arrow_schema"))


cdef bint wants_views(object requested, const char* name) except -1:
    cdef ArrowSchema* top
    cdef int64_t i
    if requested is None:
        return False
    top = <ArrowSchema*> PyCapsule_GetPointer(requested, b"arrow_schema")
    for i in range(top.n_children):
        if top.children[i].name != NULL and strcmp(top.children[i].name, name) == 0:
            return strcmp(top.children[i].format, b"vz") == 0
    return False


cdef object store_schema(bint keys, bint values):
    cdef ArrowSchema* top = schema_new(b"+s", b"", 0, 7)
    cdef object capsule = PyCapsule_New(top, b"arrow_schema", schema_capsule_free)
    cdef ArrowSchema* entry
    top.children[0] = schema_new(b"i", b"topic", 0, 0)
    top.children[0].dictionary = schema_new(b"u", b"", 0, 0)
    top.children[1] = schema_new(b"i", b"partition", 0, 0)
    top.children[2] = schema_new(b"l", b"offset", 0, 0)
    top.children[3] = schema_new(b"tsm:UTC", b"timestamp", 0, 0)
    top.children[4] = schema_new(b"vz" if keys else b"z", b"key", NULLABLE, 0)
    top.children[5] = schema_new(b"vz" if values else b"z", b"value", NULLABLE, 0)
    top.children[6] = schema_new(b"+l", b"headers", 0, 1)
    entry = schema_new(b"+s", b"header", 0, 2)
    top.children[6].children[0] = entry
    entry.children[0] = schema_new(b"u", b"key", 0, 0)
    entry.children[1] = schema_new(b"z", b"value", NULLABLE, 0)
    return capsule


# ---- array

cdef void array_release(ArrowArray* array) noexcept nogil:
    below_free(array)
    free(array.buffers)
    store_unref(<Store*> array.private_data)
    array.release = NULL


cdef ArrowArray* array_new(
    Store* store, int64_t length, int64_t buffers, int64_t children
) except NULL:
    cdef ArrowArray* array = <ArrowArray*> calloc(1, sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError
    array.length = length
    array.release = array_release
    array.private_data = store_ref(store)
    array.buffers = <const void**> calloc(buffers, sizeof(void*))
    array.n_buffers = buffers
    if children:
        array.children = <ArrowArray**> calloc(children, sizeof(void*))
        array.n_children = children if array.children != NULL else 0
    if array.buffers == NULL or array.n_children != children:
        array_release(array)
        free(array)
        raise MemoryError
    return array


cdef ArrowArray* numbers_new(Store* store, const void* p) except NULL:
    cdef ArrowArray* array = array_new(store, store.rows, 2, 0)
    array.buffers[1] = p if p != NULL else <const void*> &nothing
    return array


cdef ArrowArray* binary_new(Store* store, const Binary* binary) except NULL:
    cdef ArrowArray* array = array_new(store, binary.count, 3, 0)
    array.null_count = binary.nulls
    array.buffers[0] = binary.validity
    array.buffers[1] = binary.ends if binary.ends != NULL else <const void*> &nothing
    array.buffers[2] = binary.data if binary.data != NULL else <const void*> &nothing
    return array


cdef ArrowArray* views_new(Store* store, Views* v, bint as_views) except NULL:
    cdef int64_t pieces = store.pieces_count
    cdef ArrowArray* array
    cdef int64_t i
    views_settle(store, v)
    if not as_views and not views_pack(store, v):
        raise MemoryError
    array = array_new(store, store.rows, pieces + 3 if as_views else 3, 0)
    array.null_count = v.nulls
    array.buffers[0] = v.validity if v.nulls else NULL
    array.buffers[1] = v.views if as_views else <const void*> v.ends
    array.buffers[2] = v.data
    if as_views:
        for i in range(pieces):
            array.buffers[2 + i] = store.pieces[i].p
        array.buffers[2 + pieces] = store.piece_bytes
    for i in range(1, array.n_buffers):
        if array.buffers[i] == NULL:
            array.buffers[i] = &nothing
    return array


cdef void array_capsule_free(object capsule) noexcept:
    node_free(<ArrowArray*> PyCapsule_GetPointer(capsule, b"arrow_array"))


cdef object store_array(Store* store, bint keys, bint values):
    cdef ArrowArray* top = array_new(store, store.rows, 1, 7)
    cdef object capsule = PyCapsule_New(top, b"arrow_array", array_capsule_free)
    cdef ArrowArray* entry
    if not store_settle_headers(store):
        raise MemoryError
    top.children[0] = numbers_new(store, store.topics)
    top.children[0].dictionary = binary_new(store, &store.names)
    top.children[1] = numbers_new(store, store.partitions)
    top.children[2] = numbers_new(store, store.offsets)
    top.children[3] = numbers_new(store, store.timestamps)
    top.children[4] = views_new(store, &store.key, keys)
    top.children[5] = views_new(store, &store.value, values)
    top.children[6] = array_new(store, store.rows, 2, 1)
    top.children[6].buffers[1] = store.header_ends
    entry = array_new(store, store.header_key.count, 1, 2)
    top.children[6].children[0] = entry
    entry.children[0] = binary_new(store, &store.header_key)
    entry.children[1] = binary_new(store, &store.header_value)
    return capsule
