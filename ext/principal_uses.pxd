"""How many connections and requests have a principal, by its number.

The control thread gives numbers and forgets those that nobody has (kbroker.security.principals).
None is given twice, so a count that is missed, for want of memory, costs no more than a number that
is forgotten too early: what has it is answered with an error then. Any thread.
"""
from libc.stdint cimport int32_t

from kbroker.ext.connection cimport Net

cdef void principal_hold(Net* net, int32_t number) noexcept nogil
cdef void principal_drop(Net* net, int32_t number) noexcept nogil
cdef bint principal_is_idle(Net* net, int32_t number) noexcept nogil
cdef void principals_free(Net* net) noexcept nogil
