"""Hierarchical timing wheel (see timer.pxd).

A timer's slot follows from the bits in which its deadline differs from the wheel's time: the level
is that of the highest such bit, the slot the deadline's digit there. So a slot in use is always
ahead of the wheel's own digit on that level, and lower levels come due before higher ones: the next
thing to do is the first slot of the lowest level in use.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from kbroker.ext.bits cimport highest_bit, lowest_bit
from kbroker.ext.debug cimport debug_assert

cdef enum:
    DIGIT_BITS = 6
    DIGIT_MASK = 63

# The end of the wheel's time.
cdef int64_t SPAN_MS = (<int64_t> 1 << (DIGIT_BITS * WHEEL_LEVELS)) - 1


cdef void wheel_init(Wheel* wheel, int64_t now_ms) noexcept nogil:
    memset(wheel, 0, sizeof(Wheel))
    wheel.now_ms = now_ms


cdef void place(Wheel* wheel, Timer* timer, int64_t due_ms) noexcept nogil:
    """Hang the timer in the slot that comes up at due_ms, or a coarser one before it."""
    cdef uint64_t differing = <uint64_t> (due_ms ^ wheel.now_ms)
    cdef int level = highest_bit(differing) // DIGIT_BITS
    cdef int slot = <int> ((due_ms >> (level * DIGIT_BITS)) & DIGIT_MASK)
    cdef Timer* head = wheel.slots[level][slot]
    timer.previous = NULL
    timer.next = head
    if head != NULL:
        head.previous = timer
    wheel.slots[level][slot] = timer
    wheel.occupied[level] |= <uint64_t> 1 << slot
    timer.slot = 1 + level * WHEEL_SLOTS + slot


cdef void unhang(Wheel* wheel, Timer* timer) noexcept nogil:
    cdef int level = (timer.slot - 1) // WHEEL_SLOTS
    cdef int slot = (timer.slot - 1) % WHEEL_SLOTS
    if timer.previous != NULL:
        timer.previous.next = timer.next
    else:
        wheel.slots[level][slot] = timer.next
        if timer.next == NULL:
            wheel.occupied[level] &= ~(<uint64_t> 1 << slot)
    if timer.next != NULL:
        timer.next.previous = timer.previous
    timer.next = NULL
    timer.previous = NULL
    timer.slot = 0


cdef int64_t due_of(Wheel* wheel, int64_t deadline_ms) noexcept nogil:
    """The tick for a deadline: the next one at the earliest, the end of time at the latest."""
    if deadline_ms <= wheel.now_ms:
        return wheel.now_ms + 1
    return deadline_ms if deadline_ms < SPAN_MS else SPAN_MS


cdef void timer_arm(Wheel* wheel, Timer* timer, int64_t deadline_ms) noexcept nogil:
    if timer.slot != 0:
        unhang(wheel, timer)
    else:
        wheel.armed += 1
    timer.deadline_ms = deadline_ms
    place(wheel, timer, due_of(wheel, deadline_ms))


cdef void timer_disarm(Wheel* wheel, Timer* timer) noexcept nogil:
    if timer.slot == 0:
        return
    unhang(wheel, timer)
    wheel.armed -= 1


cdef int64_t next_due(Wheel* wheel, int* level_out, int* slot_out) noexcept nogil:
    """When the first slot in use comes up; -1 when there is none."""
    cdef int level
    cdef int slot
    cdef int64_t above
    for level in range(WHEEL_LEVELS):
        if wheel.occupied[level] == 0:
            continue
        slot = lowest_bit(wheel.occupied[level])
        level_out[0] = level
        slot_out[0] = slot
        above = wheel.now_ms >> ((level + 1) * DIGIT_BITS)
        return ((above << DIGIT_BITS) | slot) << (level * DIGIT_BITS)
    return -1


cdef int64_t wheel_advance(Wheel* wheel, int64_t now_ms) noexcept nogil:
    cdef int level = 0
    cdef int slot = 0
    cdef int64_t fired = 0
    cdef int64_t due
    cdef Timer* timer
    while wheel.armed:
        due = next_due(wheel, &level, &slot)
        if due < 0 or due > now_ms:
            break
        debug_assert(due >= wheel.now_ms, "timing wheel went backwards")
        wheel.now_ms = due
        # What fires or moves never comes back into this slot: its digit is the wheel's own.
        while wheel.slots[level][slot] != NULL:
            timer = wheel.slots[level][slot]
            unhang(wheel, timer)
            if timer.deadline_ms > due:
                place(wheel, timer, due_of(wheel, timer.deadline_ms))
                continue
            wheel.armed -= 1
            fired += 1
            timer.fire(timer)
    if now_ms > wheel.now_ms:
        wheel.now_ms = now_ms
    return fired


cdef int64_t wheel_wait_ms(Wheel* wheel) noexcept nogil:
    cdef int level
    cdef int slot
    cdef int64_t due
    if wheel.armed == 0:
        return -1
    due = next_due(wheel, &level, &slot)
    return due - wheel.now_ms if due > wheel.now_ms else 0
