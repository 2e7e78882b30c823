"""Columns of consumed records (see client_columns.pxd)."""
from importlib import import_module

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.client_arrow cimport store_array, store_schema, wants_views
from kbroker.ext.client_column_store cimport (
    VIEW_BYTES, Binary, Store, Views, binary_null, binary_put, store_copy, store_ref, store_unref,
    store_value, views_pack, views_settle,
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
    cdef Py_ssize_t stride
    cdef const char* format

    def __dealloc__(self):
        store_unref(self.store)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("columns are read only")
        if self.stride != self.item_bytes and flags & PyBUF_STRIDES != PyBUF_STRIDES:
            raise BufferError("these numbers do not stand one behind the other")
        view.buf = self.p if self.p != NULL else <void*> self.format
        view.obj = self
        view.len = self.n * self.item_bytes
        view.itemsize = self.item_bytes
        view.readonly = 1
        view.ndim = 1
        view.format = <char*> self.format if flags & PyBUF_FORMAT else NULL
        view.shape = &self.n if flags & PyBUF_ND else NULL
        view.strides = &self.stride if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL


cdef object span(
    Store* store, void* p, Py_ssize_t n, Py_ssize_t item_bytes, const char* format,
    Py_ssize_t stride=0,
):
    cdef Span made = Span.__new__(Span)
    made.store = store_ref(store)
    made.p = p
    made.n = n
    made.item_bytes = item_bytes
    made.stride = stride if stride else item_bytes
    made.format = format
    return memoryview(made)


cdef int64_t row_of(object at, int64_t rows) except -1:
    """An index as Python's sequences take it."""
    cdef int64_t i = at
    if i < 0:
        i += rows
    if i < 0 or i >= rows:
        raise IndexError(f"row {at} of {rows}")
    return i


@cython.final
@cython.no_gc
cdef class BinaryColumn:
    """Keys or values: a sequence of bytes or None; for Arrow and numpy either as views, which lie
    where the records came in (`lengths`, `views`, `buffers`), or one behind the other as Arrow's
    `binary` (`offsets`, `data`), copied when it is first asked for."""
    cdef Store* store
    cdef Views* column

    def __dealloc__(self):
        store_unref(self.store)

    def __len__(self) -> int:
        return self.store.rows

    def __getitem__(self, at):
        cdef int64_t i = row_of(at, self.store.rows)
        cdef const uint8_t* p = NULL
        cdef int32_t n = store_value(self.store, self.column, i, &p)
        if n < 0:
            return None
        return (<const char*> p)[:n]

    @property
    def null_count(self) -> int:
        return self.column.nulls

    @property
    def nbytes(self) -> int:
        """Of all of them together."""
        return self.column.n

    @property
    def lengths(self) -> memoryview:
        """int32 a row, 0 for null; each 16 bytes behind the one before."""
        views_settle(self.store, self.column)
        return span(self.store, self.column.views, self.store.rows, 4, b"i", VIEW_BYTES)

    @property
    def views(self) -> memoryview:
        """Four int32 a row, as Arrow has them: length, the first four bytes, and of which of
        `buffers` from which byte on. A value of up to 12 bytes stands in the last three itself."""
        views_settle(self.store, self.column)
        return span(self.store, self.column.views, 4 * self.store.rows, 4, b"i")

    @property
    def buffers(self) -> tuple[memoryview, ...]:
        """What `views` point into: the answers that the records came in, as they came, or what a
        compressed batch was unpacked to."""
        found = []
        for i in range(self.store.pieces_count):
            found.append(span(
                self.store, self.store.pieces[i].p, self.store.piece_bytes[i], 1, b"B"
            ))
        return tuple(found)

    @property
    def offsets(self) -> memoryview:
        """int32, one more than rows: row i is data[offsets[i]:offsets[i + 1]]."""
        self.pack()
        return span(self.store, self.column.ends, self.store.rows + 1, 4, b"i")

    @property
    def data(self) -> memoryview:
        self.pack()
        return span(self.store, self.column.data, self.column.n, 1, b"B")

    @property
    def validity(self) -> memoryview | None:
        """One bit a row, least significant first, 1 where it is not null; None: no nulls."""
        if self.column.nulls == 0:
            return None
        views_settle(self.store, self.column)
        return span(self.store, self.column.validity, (self.store.rows + 7) // 8, 1, b"B")

    cdef int pack(self) except -1:
        if not views_pack(self.store, self.column):
            raise MemoryError
        return 0


cdef BinaryColumn binary_column(Store* store, Views* column):
    cdef BinaryColumn made = BinaryColumn.__new__(BinaryColumn)
    made.store = store_ref(store)
    made.column = column
    return made


cdef object binary_item(const Binary* binary, int64_t i):
    cdef int32_t start = binary.ends[i]
    if binary_null(binary, i):
        return None
    return (<const char*> binary.data)[start:binary.ends[i + 1]]


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
        cdef int64_t k
        cdef Store* store = self.store
        cdef int64_t i = row_of(at, store.rows)
        if store.header_ends == NULL:
            return ()
        found = []
        for k in range(store.header_ends[i], store.header_ends[i + 1]):
            name = binary_item(&store.header_key, k).decode("utf-8", "surrogateescape")
            found.append((name, binary_item(&store.header_value, k)))
        return tuple(found)


@cython.final
@cython.no_gc
cdef class Columns:
    """Records as columns. `numpy.asarray` of offsets, timestamps, partitions and of the buffers
    of keys and values is a view without a copy; so is `pyarrow.record_batch(columns)`, by Arrow's
    C data interface, but for keys and values, which are copied once unless they are taken as
    Arrow's binary views.

    It keeps the memory that its records were fetched in (the answers of a broker): `detach()`
    where few of many are kept for long."""

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
    def timestamp_types(self) -> memoryview:
        """int32, as Record.timestamp_type; not among the columns of Arrow"""
        return span(self.store, self.store.timestamp_types, self.store.rows, 4, b"i")

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

    def detach(self) -> Columns:
        """Give back the memory they were fetched in; returns itself. Keys and values are copied;
        what was made of the columns before keeps what it has."""
        cdef Store* old = store_ref(self.store)
        cdef Store* made
        with nogil:
            made = store_copy(old)
        store_unref(old)
        if made == NULL:
            raise MemoryError
        old = self.store
        self.store = made
        store_unref(old)
        return self

    def to_arrow(self, *, views: bool = False):
        """A pyarrow.RecordBatch over the same memory: topic (dictionary), partition, offset,
        timestamp, key, value, headers; key and value as `binary`, which copies them, or with
        `views` as `binary_view`, which does not. Needs pyarrow."""
        cdef _AsViews as_views = _AsViews.__new__(_AsViews)
        as_views.columns = self
        try:
            arrow = import_module("pyarrow")
        except ModuleNotFoundError:
            raise ImportError("pyarrow is missing: pip install 'kbroker[columns]'") from None
        return arrow.record_batch(as_views if views else self)

    def __arrow_c_schema__(self):
        return store_schema(False, False)

    def __arrow_c_array__(self, requested_schema=None):
        """Key and value are binary views (vz) where `requested_schema` has them so."""
        cdef bint keys = wants_views(requested_schema, b"key")
        cdef bint values = wants_views(requested_schema, b"value")
        return store_schema(keys, values), store_array(self.store, keys, values)

    def __repr__(self) -> str:
        return f"Columns({self.store.rows} records of {', '.join(self.topics) or 'no topic'})"


@cython.final
@cython.no_gc
cdef class _AsViews:
    """Columns to Arrow, with views."""
    cdef Columns columns

    def __arrow_c_array__(self, requested_schema=None):
        return store_schema(True, True), store_array(self.columns.store, True, True)


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
not_by_hand(_AsViews)
