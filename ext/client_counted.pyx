"""Memory with a count of its users (see client_counted.pxd)."""
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kbroker.ext.atomics cimport atomic_add_i32
from kbroker.ext.debug cimport OBJECT_CLIENT_MEMORY, object_born, object_died


cdef Memory* memory_make(
    uint8_t* p, int64_t n, void* owner, void (*release)(Memory*) noexcept nogil
) noexcept nogil:
    cdef Memory* memory = <Memory*> malloc(sizeof(Memory))
    if memory == NULL:
        return NULL
    memory.refs = 1
    memory.p = p
    memory.n = n
    memory.owner = owner
    memory.release = release
    object_born(OBJECT_CLIENT_MEMORY)
    return memory


cdef Memory* memory_ref(Memory* memory) noexcept nogil:
    atomic_add_i32(&memory.refs, 1)
    return memory


cdef void memory_unref(Memory* memory) noexcept nogil:
    if memory == NULL or atomic_add_i32(&memory.refs, -1) > 0:
        return
    if memory.release != NULL:
        memory.release(memory)
    else:
        free(memory.p)
    free(memory)
    object_died(OBJECT_CLIENT_MEMORY)
