"""Hierarchical timing wheel: one per network thread, owned by it, no lock.

Seven levels of 64 slots, 1 ms a tick at the lowest: 139 years from boot. A timer hangs in the level
of the highest bit in which its deadline differs from now, and moves down as that comes. Arming,
cancelling and firing cost O(1), and the wheel knows when it next has anything to do, so that an
idle thread sleeps.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef enum:
    WHEEL_LEVELS = 7
    WHEEL_SLOTS = 64

# Intrusive node. Whoever embeds it owns it and disarms it before freeing; zeroed is "not armed".
cdef struct Timer:
    Timer* next
    Timer* previous
    int64_t deadline_ms             # monotonic
    void (*fire)(Timer* timer) noexcept nogil   # disarmed before the call: may arm again or free
    void* owner
    int32_t slot                    # 1 + level * 64 + slot, 0 = not armed

cdef struct Wheel:
    int64_t now_ms
    uint64_t occupied[WHEEL_LEVELS]             # a bit per slot
    Timer* slots[WHEEL_LEVELS][WHEEL_SLOTS]
    int64_t armed                   # how many timers hang in it

cdef void wheel_init(Wheel* wheel, int64_t now_ms) noexcept nogil
# Arms or re-arms; a deadline that has passed fires at the next advance.
cdef void timer_arm(Wheel* wheel, Timer* timer, int64_t deadline_ms) noexcept nogil
cdef void timer_disarm(Wheel* wheel, Timer* timer) noexcept nogil
# Fires everything with deadline_ms <= now_ms, returns how many.
cdef int64_t wheel_advance(Wheel* wheel, int64_t now_ms) noexcept nogil
# Milliseconds from the wheel's now until it must be advanced again, -1 when nothing is armed.
cdef int64_t wheel_wait_ms(Wheel* wheel) noexcept nogil
