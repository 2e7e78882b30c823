"""Tables of rights (see rights.pxd)."""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from kbroker.ext.atomics cimport atomic_add_i32, atomic_add_relaxed_i32
from kbroker.ext.byte_table cimport bytes_hash, process_seed

cdef enum:
    SLOTS_FIRST = 16
    NAMES_FIRST_BYTES = 256
    NAMES_MAX_BYTES = 1073741824


cdef RightEntry* new_entries(uint32_t slots) noexcept nogil:
    cdef RightEntry* entries = <RightEntry*>malloc(slots * sizeof(RightEntry))
    cdef uint32_t i
    if entries != NULL:
        for i in range(slots):
            entries[i].length = -1
    return entries


cdef Rights* rights_new(int64_t version) noexcept nogil:
    cdef Rights* rights = <Rights*>calloc(1, sizeof(Rights))
    if rights == NULL:
        return NULL
    rights.refs = 1
    rights.version = version
    rights.mask = SLOTS_FIRST - 1
    rights.entries = new_entries(SLOTS_FIRST)
    rights.names = <uint8_t*>malloc(NAMES_FIRST_BYTES)
    rights.names_capacity = NAMES_FIRST_BYTES
    if rights.entries == NULL or rights.names == NULL:
        rights_unref(rights)
        return NULL
    return rights


cdef Rights* rights_more(const Rights* old, int64_t version) noexcept nogil:
    cdef Rights* rights = rights_new(version)
    cdef const RightEntry* entry
    cdef uint32_t i
    if rights == NULL or old == NULL or old.version != version \
            or rights_bytes(old) > RIGHTS_BYTES_MAX // 2:
        return rights
    for i in range(old.mask + 1):
        entry = &old.entries[i]
        if entry.length >= 0 and not rights_put(rights, entry.right, &old.names[entry.at],
                                                entry.length, entry.ruling):
            rights_unref(rights)
            return NULL
    return rights


cdef Rights* rights_ref(Rights* rights) noexcept nogil:
    if rights != NULL:
        atomic_add_relaxed_i32(&rights.refs, 1)
    return rights


cdef void rights_unref(Rights* rights) noexcept nogil:
    if rights == NULL or atomic_add_i32(&rights.refs, -1) != 0:
        return
    free(rights.entries)
    free(rights.names)
    free(rights)


cdef inline uint32_t hash_of(int right, const uint8_t* name, int32_t length) noexcept nogil:
    return bytes_hash(process_seed() ^ <uint64_t>right, name, <size_t>length)


cdef RightEntry* slot_of(const Rights* rights, uint32_t hash, int right, const uint8_t* name,
                         int32_t length) noexcept nogil:
    """Its entry, or the free one where it would go; there is always a free one."""
    cdef uint32_t slot = hash & rights.mask
    cdef RightEntry* entry
    while True:
        entry = &rights.entries[slot]
        if entry.length < 0 or (
                entry.hash == hash and entry.right == right and entry.length == length
                and memcmp(&rights.names[entry.at], name, <size_t>length) == 0):
            return entry
        slot = (slot + 1) & rights.mask


cdef int rights_find(const Rights* rights, int right, const uint8_t* name,
                     int32_t length) noexcept nogil:
    cdef const RightEntry* entry
    if rights == NULL or length < 0:
        return RULING_UNKNOWN
    entry = slot_of(rights, hash_of(right, name, length), right, name, length)
    return RULING_UNKNOWN if entry.length < 0 else entry.ruling


cdef bint grow_entries(Rights* rights) noexcept nogil:
    """At most half of the slots are taken."""
    cdef uint32_t slots = rights.mask + 1
    cdef RightEntry* old = rights.entries
    cdef RightEntry* entry
    cdef uint32_t i, slot
    if (rights.count + 1) * 2 <= slots:
        return True
    rights.entries = new_entries(slots * 2)
    if rights.entries == NULL:
        rights.entries = old
        return False
    rights.mask = slots * 2 - 1
    for i in range(slots):
        entry = &old[i]
        if entry.length >= 0:
            slot = entry.hash & rights.mask
            while rights.entries[slot].length >= 0:
                slot = (slot + 1) & rights.mask
            rights.entries[slot] = entry[0]
    free(old)
    return True


cdef bint grow_names(Rights* rights, int32_t length) noexcept nogil:
    cdef uint64_t wanted = <uint64_t>rights.names_bytes + <uint64_t>length
    cdef uint64_t capacity = rights.names_capacity
    cdef uint8_t* names
    if wanted <= capacity:
        return True
    if wanted > NAMES_MAX_BYTES:
        return False
    while capacity < wanted:
        capacity *= 2
    names = <uint8_t*>realloc(rights.names, capacity)
    if names == NULL:
        return False
    rights.names = names
    rights.names_capacity = <uint32_t>capacity
    return True


cdef bint rights_put(Rights* rights, int right, const uint8_t* name, int32_t length,
                     int ruling) noexcept nogil:
    cdef uint32_t hash
    cdef RightEntry* entry
    if length < 0 or not grow_entries(rights) or not grow_names(rights, length):
        return False
    hash = hash_of(right, name, length)
    entry = slot_of(rights, hash, right, name, length)
    if entry.length >= 0:
        if ruling != RULING_UNKNOWN:
            entry.ruling = <uint8_t>ruling
        return True
    entry.at = rights.names_bytes
    entry.length = length
    entry.hash = hash
    entry.right = <uint8_t>right
    entry.ruling = <uint8_t>ruling
    if length > 0:
        memcpy(&rights.names[entry.at], name, <size_t>length)
    rights.names_bytes += <uint32_t>length
    rights.count += 1
    return True


cdef int64_t rights_bytes(const Rights* rights) noexcept nogil:
    return (<int64_t>sizeof(Rights) + <int64_t>(rights.mask + 1) * <int64_t>sizeof(RightEntry)
            + rights.names_capacity)
