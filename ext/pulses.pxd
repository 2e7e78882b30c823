"""Members of classic groups that are known to be well: whose Heartbeat needs no coordinator.

A pulse is a member with one word: generation (uint32, all ones: closed) and, below it, when its
last heartbeat came (monotonic ms, uint32, which goes round after 49 days). An open pulse answers a
heartbeat of that member in that generation: that all is well, and the word remembers when. All
others are the coordinator's, which opens a pulse when it has answered a heartbeat, and closes it in
the step in which another answer would be due, before anybody is told of it.

Word by compare-and-swap: a heartbeat that was answered is seen by whoever closes the pulse, so that
no session ends for want of it; one that comes later finds it closed.

One writer at a time, who holds the GIL; it is let go of only where nothing is half done. Readers
are threads of the data plane, within a turn (network.net_synchronize): what is unlinked is freed
when they have all been seen outside of one, many at a time.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.wire cimport Slice

cdef enum:
    PULSE_KEY_BYTES_MAX = 1024      # of all three names; longer ones are the coordinator's
    PULSES_RETIRED_MAX = 256        # unlinked and not freed yet

ctypedef struct PulseKey:
    Slice group
    Slice member
    Slice instance                  # n < 0: none

ctypedef struct Beat:
    uint64_t word                   # atomic
    Beat* next                      # among the retired
    uint32_t hash
    PulseKey key                    # its bytes follow

# Open addressing, linear probing; a slot is NULL, a tombstone or a Beat.
ctypedef struct BeatTable:
    BeatTable* next                 # among the retired
    uint32_t mask
    uint32_t filled                 # slots that are not NULL, tombstones included
    void** slots

ctypedef struct PulseTable:
    void* table                     # atomic BeatTable*
    uint64_t seed
    uint32_t count
    uint32_t retired_count
    Beat* retired
    BeatTable* retired_tables
    # Waits until no reader can hold what was unlinked before; NULL: there are none. False: one may
    # for long.
    bint (*synchronize)(void* argument) noexcept nogil
    void* synchronize_argument

# True: the member is well, and its session begins anew. False: ask the coordinator.
cdef bint pulse_answers(PulseTable* pulses, const PulseKey* key, int32_t generation,
                        int64_t now_ms) noexcept nogil

cdef class Pulses:
    cdef PulseTable core

cdef class Pulse:
    cdef Pulses owner
    cdef Beat* beat                 # NULL: ended
