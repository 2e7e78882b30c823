"""What a client says of its software (see software.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from kbroker.ext.wire cimport Cursor, Slice, cursor_init, get_compact_string


cdef bint is_word(uint8_t c) noexcept nogil:
    return c'a' <= c <= c'z' or c'A' <= c <= c'Z' or c'0' <= c <= c'9'


cdef bint is_said(const Slice* text) noexcept nogil:
    """Letters, digits, '-' and '.', neither of the two first or last."""
    cdef int32_t index
    if text.n == 0 or not is_word(text.p[0]) or not is_word(text.p[text.n - 1]):
        return False
    for index in range(text.n):
        if not is_word(text.p[index]) and text.p[index] != c'-' and text.p[index] != c'.':
            return False
    return True


cdef Software* software_new(const uint8_t* name, uint8_t name_length,
                            const uint8_t* version, uint8_t version_length) noexcept nogil:
    cdef size_t length = <size_t> name_length + version_length
    cdef Software* software = <Software*> malloc(sizeof(Software) + length)
    cdef char* text = <char*> software + sizeof(Software)
    if software == NULL:
        return NULL
    software.name_length = name_length
    software.version_length = version_length
    memcpy(text, name, name_length)
    memcpy(text + name_length, version, version_length)
    return software


cdef inline uint8_t kept(const Slice* text) noexcept nogil:
    """How many bytes of it."""
    return <uint8_t> text.n if text.n <= SOFTWARE_BYTES_MAX else 0


cdef bint software_read(const uint8_t* p, const uint8_t* end, Software** found) noexcept nogil:
    cdef Cursor c
    cdef Slice name
    cdef Slice version
    found[0] = NULL
    cursor_init(&c, p, <size_t> (end - p))
    name = get_compact_string(&c)
    version = get_compact_string(&c)
    if c.bad or not is_said(&name) or not is_said(&version):
        return False
    if kept(&name) or kept(&version):
        found[0] = software_new(name.p, kept(&name), version.p, kept(&version))
    return True


cdef Software* software_copy(const Software* software) noexcept nogil:
    cdef const uint8_t* text = <const uint8_t*> software_text(software)
    return software_new(text, software.name_length, text + software.name_length,
                        software.version_length)
