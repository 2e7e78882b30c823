"""Bit scans; the argument is never 0."""
from libc.stdint cimport uint64_t

cdef extern from "bits.h" nogil:
    int highest_bit(uint64_t value) noexcept
    int lowest_bit(uint64_t value) noexcept
