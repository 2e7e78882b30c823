"""Columns as send_batch() takes them (see client_columns_in.pxd)."""
import array as arrays

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.string cimport memcpy, strcmp

cdef extern from "Python.h":        # borrowed, as cpython.list and cpython.tuple do not give them
    Py_ssize_t PyList_GET_SIZE(object)
    PyObject* PyList_GET_ITEM(object, Py_ssize_t)
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)

cdef enum:
    VIEW_BYTES = 16
    VIEW_INLINE_MAX = 12

# Arrow's format of a timestamp, up to the zone: what turns it into ms (negative: a divisor).
TIME_SCALES = {b"tss:": 1000, b"tsm:": 1, b"tsu:": -1000, b"tsn:": -1000000}
BYTE_KINDS = {
    b"z": COLUMN_OFFSETS, b"u": COLUMN_OFFSETS, b"Z": COLUMN_OFFSETS_LARGE,
    b"U": COLUMN_OFFSETS_LARGE, b"vz": COLUMN_VIEWS, b"vu": COLUMN_VIEWS, b"n": COLUMN_NONE,
}


# ---- reading

cdef bint column_null(const Column* c, int64_t i) noexcept nogil:
    i += c.first
    return c.kind == COLUMN_NONE or (
        c.validity != NULL and not c.validity[i >> 3] >> (i & 7) & 1
    )


cdef Slice column_slice(const Column* c, int64_t i) noexcept nogil:
    cdef Slice s
    cdef int64_t start, end
    s.p = NULL
    s.n = -1
    if column_null(c, i):
        return s
    i += c.first
    if c.kind == COLUMN_OFFSETS:
        start = (<const int32_t*> c.offsets)[i]
        end = (<const int32_t*> c.offsets)[i + 1]
    elif c.kind == COLUMN_OFFSETS_LARGE:
        start = (<const int64_t*> c.offsets)[i]
        end = (<const int64_t*> c.offsets)[i + 1]
    elif c.kind == COLUMN_VIEWS:
        return view_slice(c, c.offsets + i * VIEW_BYTES)
    else:
        start = i * c.stride
        end = start + c.width
        while c.trimmed and end > start and c.data[end - 1] == 0:
            end -= 1
    # Longer ones are refused by the size of a request.
    s.n = <int32_t> min(end - start, <int64_t> 0x7FFFFFFF)
    s.p = c.data + start
    return s


cdef Slice view_slice(const Column* c, const uint8_t* view) noexcept nogil:
    cdef int32_t place[4]
    cdef Slice s
    memcpy(place, view, VIEW_BYTES)
    s.n = place[0]
    if s.n <= VIEW_INLINE_MAX:
        s.p = view + 4
    else:
        s.p = <const uint8_t*> c.variadic[place[2]] + place[3]
    return s


cdef int64_t column_int(const Column* c, int64_t i) noexcept nogil:
    cdef int64_t value
    cdef int32_t small
    i += c.first
    if c.kind == COLUMN_INT32:
        memcpy(&small, c.data + i * c.stride, 4)
        return small
    memcpy(&value, c.data + i * c.stride, 8)
    if c.scale > 1:
        return value * c.scale
    if c.scale < 0:
        return value // -c.scale - (value % -c.scale < 0)
    return value


# ---- taking

cdef class ColumnIn:
    def __dealloc__(self) -> None:
        if self.viewed:
            PyBuffer_Release(&self.view)

    cdef PyObject* item(self, int64_t i) except NULL:
        cdef PyObject* found
        if type(self.held) is list:
            if i >= PyList_GET_SIZE(self.held):
                raise ValueError("a list became shorter while it was sent")
            return PyList_GET_ITEM(self.held, i)
        if type(self.held) is tuple:
            return PyTuple_GET_ITEM(self.held, i)
        found = (<PyObject**> (self.c.data + i * self.c.stride))[0]
        return found if found != NULL else <PyObject*> None

    cdef int headers_of(self, int64_t i, int64_t* first) noexcept nogil:
        """How many headers record i has, and where they begin."""
        cdef const int32_t* offsets = <const int32_t*> self.c.offsets
        if column_null(&self.c, i):
            return 0
        i += self.c.first
        first[0] = offsets[i]
        return offsets[i + 1] - offsets[i]

    cdef int take_buffer(self, object given, str field, bint ints) except -1:
        cdef bytes form
        PyObject_GetBuffer(given, &self.view, PyBUF_FORMAT | PyBUF_STRIDES)
        self.viewed = True
        form = self.view.format if self.view.format != NULL else b"B"
        self.c.data = <const uint8_t*> self.view.buf
        if self.view.ndim == 0:
            raise TypeError(f"{field}: a single value; give a sequence of them")
        self.c.length = self.view.shape[0]
        if self.view.strides == NULL:           # ctypes gives none
            self.c.stride = self.view.len // max(self.c.length, <int64_t> 1)
        else:
            self.c.stride = self.view.strides[0]
        if ints and self.view.ndim == 1 and form in (b"l", b"q", b"i"):
            self.c.kind = COLUMN_INT32 if form == b"i" else COLUMN_INT64
        elif not ints and self.view.ndim == 1 and form.endswith(b"s"):
            self.c.kind = COLUMN_FIXED
            self.c.width = self.view.itemsize
            self.c.trimmed = True
        elif not ints and self.view.ndim == 1 and form == b"O":
            self.c.kind = COLUMN_OBJECTS
        elif not ints and self.view.ndim == 2 and self.view.itemsize == 1 \
                and (self.view.strides == NULL or self.view.strides[1] == 1
                     or self.view.shape[1] <= 1):
            self.c.kind = COLUMN_FIXED
            self.c.width = self.view.shape[1]
        else:
            wanted = "int64 or int32" if ints else "'S', 2-D uint8 in rows, or object"
            raise TypeError(
                f"{field}: an array of {self.view.ndim} dimensions with format {form.decode()!r};"
                f" give one of {wanted}"
            )
        return 0

    cdef int take_arrow(self, ArrowSchema* schema, ArrowArray* array, str field) except -1:
        cdef bytes form = schema.format
        if schema.dictionary != NULL:
            raise TypeError(f"{field}: a dictionary-encoded Arrow column; decode it first")
        self.c.length = array.length
        self.c.first = array.offset
        self.c.scale = 1
        if form != b"n" and array.n_buffers > 0 and array.null_count != 0:
            self.c.validity = <const uint8_t*> array.buffers[0]
        if form in BYTE_KINDS:
            self.c.kind = BYTE_KINDS[form]
            if self.c.kind != COLUMN_NONE:
                self.c.offsets = <const uint8_t*> array.buffers[1]
            if self.c.kind == COLUMN_VIEWS:
                self.c.variadic = array.buffers + 2
            elif self.c.kind != COLUMN_NONE:
                self.c.data = <const uint8_t*> array.buffers[2]
            return 0
        if form[:2] == b"w:":
            self.c.kind = COLUMN_FIXED
            self.c.width = self.c.stride = int(form[2:])
        elif form == b"l" or form[:4] in TIME_SCALES:
            self.c.kind = COLUMN_INT64
            self.c.stride = 8
            self.c.scale = TIME_SCALES.get(form[:4], 1)
        elif form == b"i":
            self.c.kind = COLUMN_INT32
            self.c.stride = 4
        elif form == b"+l" or form == b"+m":
            return self.take_headers(schema, array, field)
        else:
            raise TypeError(f"{field}: an Arrow column of format {form.decode()!r} does not serve")
        self.c.data = <const uint8_t*> array.buffers[1]
        return 0

    cdef int take_headers(self, ArrowSchema* schema, ArrowArray* array, str field) except -1:
        cdef ArrowSchema* entry = schema.children[0]
        cdef ArrowArray* entries = array.children[0]
        if strcmp(entry.format, b"+s") != 0 or entry.n_children != 2:
            raise TypeError(f"{field}: give map<utf8, binary> or list<struct<key, value>>")
        self.c.kind = COLUMN_OFFSETS
        self.c.offsets = <const uint8_t*> array.buffers[1]
        self.keys = ColumnIn.__new__(ColumnIn)
        self.values = ColumnIn.__new__(ColumnIn)
        self.keys.take_arrow(entry.children[0], entries.children[0], field)
        self.values.take_arrow(entry.children[1], entries.children[1], field)
        # A struct's own offset counts for its children as well.
        self.keys.c.first += entries.offset
        self.values.c.first += entries.offset
        return 0


cdef ColumnIn of_sequence(object given, str field):
    """A list or a tuple; its items are looked at in chunks, which check its length again."""
    cdef ColumnIn column = ColumnIn.__new__(ColumnIn)
    column.held = given if type(given) in (list, tuple) else list(given)
    column.c.kind = COLUMN_OBJECTS
    column.c.length = len(given)
    return column


cdef ColumnIn of_arrow(object given, str field):
    cdef ColumnIn column = ColumnIn.__new__(ColumnIn)
    schema, array = given.__arrow_c_array__()
    column.held = (schema, array)
    column.take_arrow(
        <ArrowSchema*> PyCapsule_GetPointer(schema, b"arrow_schema"),
        <ArrowArray*> PyCapsule_GetPointer(array, b"arrow_array"), field,
    )
    return column


cdef object unchunked(object given, str field):
    if not hasattr(given, "combine_chunks") or hasattr(given, "__arrow_c_array__"):
        return given
    combined = given.combine_chunks()
    if hasattr(combined, "to_batches"):
        batches = combined.to_batches()
        if not batches:
            return []                   # no rows
        combined = batches[0] if len(batches) == 1 else None
    if not hasattr(combined, "__arrow_c_array__"):
        raise TypeError(
            f"{field}: the chunks of this {type(given).__name__} do not make one; send them one by"
            " one"
        )
    return combined


cdef ColumnIn column_of_bytes(object given, str field):
    cdef ColumnIn column
    if given is None or isinstance(given, (bytes, bytearray, str)):
        raise TypeError(f"{field}: {type(given).__name__} is one value; give a sequence of them")
    if isinstance(given, (list, tuple)):
        return of_sequence(given, field)
    if hasattr(given, "__arrow_c_array__"):
        column = of_arrow(given, field)
        if column.c.kind in (COLUMN_INT32, COLUMN_INT64) or column.keys is not None:
            raise TypeError(f"{field}: an Arrow column of bytes or text is needed")
        return column
    if PyObject_CheckBuffer(given):
        column = ColumnIn.__new__(ColumnIn)
        column.take_buffer(given, field, False)
        return column
    return of_sequence(list(given), field)


cdef object ms_of_times(object given, str field):
    """numpy's datetime64 of any unit, which no buffer tells of, or pandas' column of it."""
    unknown = given != given            # NaT
    if unknown.any():
        raise ValueError(f"{field} {unknown.argmax()}: NaT is no time")
    if hasattr(given, "to_numpy"):
        given = given.to_numpy("datetime64[ns]")
    return given.astype("datetime64[ms]").astype("int64")


cdef ColumnIn column_of_ints(object given, str field):
    cdef ColumnIn column
    if not isinstance(given, (list, tuple)) and hasattr(given, "__arrow_c_array__"):
        column = of_arrow(given, field)
        if column.c.kind not in (COLUMN_INT32, COLUMN_INT64):
            raise TypeError(f"{field}: an Arrow column of integers or timestamps is needed")
        return column
    if getattr(getattr(given, "dtype", None), "kind", None) == "M":
        given = ms_of_times(given, field)
    if not PyObject_CheckBuffer(given):
        try:
            given = arrays.array("q", given)
        except (TypeError, OverflowError) as error:
            raise TypeError(f"{field}: a sequence of whole numbers is needed; {error}") from None
    column = ColumnIn.__new__(ColumnIn)
    column.take_buffer(given, field, True)
    column.c.scale = 1
    return column


cdef ColumnIn column_of_headers(object given):
    cdef ColumnIn column
    if not hasattr(given, "__arrow_c_array__"):
        raise TypeError(f"headers: {type(given).__name__}; give a list, or a column of Arrow")
    column = of_arrow(given, "headers")
    if column.keys is None and column.c.kind != COLUMN_NONE:
        raise TypeError("headers: give map<utf8, binary> or list<struct<key, value>>")
    return column


cdef dict columns_of_batch(object given):
    cdef ArrowSchema* schema
    cdef ArrowArray* array
    cdef ColumnIn column
    cdef dict found = {}
    cdef int64_t i
    if isinstance(given, (list, tuple)) or not hasattr(given, "__arrow_c_array__"):
        return None
    schema_capsule, array_capsule = given.__arrow_c_array__()
    schema = <ArrowSchema*> PyCapsule_GetPointer(schema_capsule, b"arrow_schema")
    array = <ArrowArray*> PyCapsule_GetPointer(array_capsule, b"arrow_array")
    if strcmp(schema.format, b"+s") != 0:
        return None
    for i in range(schema.n_children):
        name = (<bytes> schema.children[i].name).decode()
        column = ColumnIn.__new__(ColumnIn)
        column.held = (schema_capsule, array_capsule)
        if name not in ("key", "value", "headers", "timestamp", "partition"):
            raise ValueError(
                f"column {name!r}: a batch has the columns value, key, headers, timestamp and"
                " partition"
            )
        column.take_arrow(schema.children[i], array.children[i], name)
        column.c.first += array.offset
        column.c.length = array.length
        found[name] = column
    return found
