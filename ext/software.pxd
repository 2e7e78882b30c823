"""What a client says of its software in ApiVersions: a name and a version (KIP-511).

A connection keeps it in one block, which belongs to its network thread; a request that tells the
control plane of it takes a copy along, as the connection may die meanwhile.
"""
from libc.stdint cimport uint8_t

cdef enum:
    SOFTWARE_BYTES_MAX = 255        # of a name or a version; a longer one counts as not known

# With the characters behind it: of the name, then of the version. A length of 0: not known.
cdef struct Software:
    uint8_t name_length
    uint8_t version_length


cdef inline const char* software_text(const Software* software) noexcept nogil:
    return <const char*> software + sizeof(Software)

# Reads an ApiVersions request of version 3 and up. False: malformed. `found` is the caller's to
# free; NULL when there is nothing to know, or no memory for it.
cdef bint software_read(const uint8_t* p, const uint8_t* end, Software** found) noexcept nogil
# NULL: out of memory.
cdef Software* software_copy(const Software* software) noexcept nogil
