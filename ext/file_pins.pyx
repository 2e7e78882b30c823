"""Inodes of closed files, kept in memory (see file_pins.pxd)."""
from libc.stdint cimport int64_t

from kbroker.ext.atomics cimport atomic_add_i64
from kbroker.ext.posix cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap

cdef enum:
    PINS_MAX = 16384                    # a quarter of vm.max_map_count as Linux sets it
    PIN_BYTES = 1                       # the kernel takes a page

cdef int64_t pins = 0                   # atomic


cdef void* file_pin(int fd) noexcept nogil:
    cdef void* pin = MAP_FAILED
    if atomic_add_i64(&pins, 1) <= PINS_MAX:
        pin = mmap(NULL, PIN_BYTES, PROT_READ, MAP_SHARED, fd, 0)
    if pin == MAP_FAILED:
        atomic_add_i64(&pins, -1)
        return NULL
    return pin


cdef void file_unpin(void* pin) noexcept nogil:
    if pin != NULL:
        munmap(pin, PIN_BYTES)
        atomic_add_i64(&pins, -1)
