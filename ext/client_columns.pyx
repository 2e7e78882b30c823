"""Columns of consumed records (see client_columns.pxd)."""
from importlib import import_module

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.client_arrow cimport store_array, store_schema
from kbroker.ext.client_column_store cimport (
    Binary, Store, binary_null, binary_put, store_ref, store_unref,
)
from kbroker.ext.unmade cimport not_by_hand


@cython.final
@cython.no_gc
cdef class Span:
    """Numbers of a store, through the buffer protocol."""
    cdef Store* store
    cdef void* p
    cdef Py_ssize_t n
    cdef Py_ssize_t item_bytes
    cdef const char* format

    def __dealloc__(self):
        store_unref(self.store)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("columns are read only")
        view.buf = self.p if self.p != NULL else <void*> self.format
        view.obj = self
        view.len = self.n * self.item_bytes
        view.itemsize = self.item_bytes
        view.readonly = 1
        view.ndim = 1
        view.format = <char*> self.format if flags & PyBUF_FORMAT else NULL
        view.shape = &self.n if flags & PyBUF_ND else NULL
        view.strides = &self.item_bytes if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL


cdef object span(Store* store, void* p, Py_ssize_t n, Py_ssize_t item_bytes, const char* format):
    cdef Span made = Span.__new__(Span)
    made.store = store_ref(store)
    made.p = p
    made.n = n
    made.item_bytes = item_bytes
    made.format = format
    return memoryview(made)


@cython.final
@cython.no_gc
cdef class BinaryColumn:
    """Keys or values: a sequence of bytes or None, and the three buffers of Arrow's `binary`."""
    cdef Store* store
    cdef Binary* binary

    def __dealloc__(self):
        store_unref(self.store)

    def __len__(self) -> int:
        return self.binary.count

    def __getitem__(self, at):
        cdef int64_t i = at
        cdef int32_t start
        if i < 0:
            i += self.binary.count
        if i < 0 or i >= self.binary.count:
            raise IndexError(f"row {at} of {self.binary.count}")
        if binary_null(self.binary, i):
            return None
        start = self.binary.ends[i]
        return (<const char*> self.binary.data)[start:self.binary.ends[i + 1]]

    @property
    def null_count(self) -> int:
        return self.binary.nulls

    @property
    def offsets(self) -> memoryview:
        """int32, one more than rows: row i is data[offsets[i]:offsets[i + 1]]."""
        return span(self.store, self.binary.ends, self.binary.count + 1, 4, b"i")

    @property
    def data(self) -> memoryview:
        return span(self.store, self.binary.data, self.binary.n, 1, b"B")

    @property
    def validity(self) -> memoryview | None:
        """One bit a row, least significant first, 1 where it is not null; None: no nulls."""
        if self.binary.validity == NULL:
            return None
        return span(self.store, self.binary.validity, (self.binary.count + 7) // 8, 1, b"B")


cdef BinaryColumn binary_column(Store* store, Binary* binary):
    cdef BinaryColumn made = BinaryColumn.__new__(BinaryColumn)
    made.store = store_ref(store)
    made.binary = binary
    return made


@cython.final
@cython.no_gc
cdef class HeaderColumn:
    """Headers: a sequence of tuples of (name, bytes or None)."""
    cdef Store* store

    def __dealloc__(self):
        store_unref(self.store)

    def __len__(self) -> int:
        return self.store.rows

    def __getitem__(self, at) -> tuple:
        cdef int64_t i = at
        cdef Store* store = self.store
        if i < 0:
            i += store.rows
        if i < 0 or i >= store.rows:
            raise IndexError(f"row {at} of {store.rows}")
        if store.header_ends == NULL:
            return ()
        names = binary_column(store, &store.header_key)
        values = binary_column(store, &store.header_value)
        found = []
        for at in range(store.header_ends[i], store.header_ends[i + 1]):
            found.append((names[at].decode("utf-8", "surrogateescape"), values[at]))
        return tuple(found)


@cython.final
@cython.no_gc
cdef class Columns:
    """Records as columns. `numpy.asarray` of offsets, timestamps, partitions and of the buffers
    of keys and values is a view without a copy; so is `pyarrow.record_batch(columns)`, by Arrow's
    C data interface."""

    def __dealloc__(self):
        store_unref(self.store)

    def __len__(self) -> int:
        return self.store.rows

    @property
    def offsets(self) -> memoryview:
        """int64"""
        return span(self.store, self.store.offsets, self.store.rows, 8, b"q")

    @property
    def timestamps(self) -> memoryview:
        """int64, ms since 1970, -1 for none"""
        return span(self.store, self.store.timestamps, self.store.rows, 8, b"q")

    @property
    def partitions(self) -> memoryview:
        """int32"""
        return span(self.store, self.store.partitions, self.store.rows, 4, b"i")

    @property
    def topic_indexes(self) -> memoryview:
        """int32: places in `topics`"""
        return span(self.store, self.store.topics, self.store.rows, 4, b"i")

    @property
    def keys(self) -> BinaryColumn:
        return binary_column(self.store, &self.store.key)

    @property
    def values(self) -> BinaryColumn:
        return binary_column(self.store, &self.store.value)

    @property
    def headers(self) -> HeaderColumn:
        cdef HeaderColumn made = HeaderColumn.__new__(HeaderColumn)
        made.store = store_ref(self.store)
        return made

    def to_arrow(self):
        """A pyarrow.RecordBatch over the same memory: topic (dictionary), partition, offset,
        timestamp, key, value, headers. Needs pyarrow."""
        return import_module("pyarrow").record_batch(self)

    def __arrow_c_schema__(self):
        return store_schema()

    def __arrow_c_array__(self, requested_schema=None):
        return store_schema(), store_array(self.store)

    def __repr__(self) -> str:
        return f"Columns({self.store.rows} records of {', '.join(self.topics) or 'no topic'})"


cdef Columns columns_of(Store* store, list topics):
    cdef Columns made = Columns.__new__(Columns)
    cdef bytes name
    made.store = store
    made.topics = tuple(topics)
    for topic in topics:
        name = topic.encode()
        if not binary_put(&store.names, <const unsigned char*> name, <int32_t> len(name)):
            raise MemoryError
    return made


not_by_hand(Span)
not_by_hand(BinaryColumn)
not_by_hand(HeaderColumn)
not_by_hand(Columns)
