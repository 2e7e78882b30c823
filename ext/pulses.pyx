"""Members of classic groups that are known to be well (see pulses.pxd)."""
import os

cimport cython
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_cas_u64, atomic_load_ptr, atomic_load_u64, atomic_store_ptr, atomic_store_u64,
)
from kbroker.ext.byte_table cimport bytes_hash

cdef enum:
    SLOTS_FIRST = 64
    # Ages run from 12 days below zero, as the threads' clocks are read at different moments, to 37
    # days; the longest session that can be asked for is 25.
    AGE_SLACK_MS = 1 << 30

cdef uint64_t CLOSED = <uint64_t>0xFFFFFFFF << 32
cdef void* TOMBSTONE = <void*>1


# ---- the word

cdef inline uint64_t word_of(int32_t generation, int64_t now_ms) noexcept nogil:
    return <uint64_t><uint32_t>generation << 32 | <uint32_t>now_ms


cdef inline int64_t age_ms(uint64_t word, int64_t now_ms) noexcept nogil:
    return <int64_t><uint32_t>(<uint32_t>now_ms - <uint32_t>word + AGE_SLACK_MS) - AGE_SLACK_MS


cdef bint beat_answers(Beat* beat, int32_t generation, int64_t now_ms) noexcept nogil:
    cdef uint64_t seen = atomic_load_u64(&beat.word)
    while generation >= 0 and seen >> 32 == <uint32_t>generation:
        if atomic_cas_u64(&beat.word, &seen, word_of(generation, now_ms)):
            return True
    return False


cdef void beat_close(Beat* beat) noexcept nogil:
    cdef uint64_t seen = atomic_load_u64(&beat.word)
    while not atomic_cas_u64(&beat.word, &seen, seen | CLOSED):
        pass


cdef int64_t beat_left_ms(Beat* beat, int64_t session_ms, int64_t now_ms) noexcept nogil:
    """What is left of the session; 0: it is over, and the pulse closed."""
    cdef uint64_t seen = atomic_load_u64(&beat.word)
    cdef int64_t left_ms
    while True:
        left_ms = session_ms - age_ms(seen, now_ms)
        if left_ms > 0:
            return min(left_ms, session_ms)
        if atomic_cas_u64(&beat.word, &seen, seen | CLOSED):
            return 0


# ---- the table: readers

cdef inline bint same(const Slice* one, const Slice* other) noexcept nogil:
    return one.n == other.n and (one.n <= 0 or memcmp(one.p, other.p, <size_t>one.n) == 0)


cdef uint32_t key_hash(uint64_t seed, const PulseKey* key) noexcept nogil:
    cdef uint32_t group = bytes_hash(seed, key.group.p, <size_t>key.group.n)
    return bytes_hash(seed ^ group, key.member.p, <size_t>key.member.n)


cdef bint pulse_answers(PulseTable* pulses, const PulseKey* key, int32_t generation,
                        int64_t now_ms) noexcept nogil:
    cdef BeatTable* table = <BeatTable*>atomic_load_ptr(&pulses.table)
    cdef uint32_t hash = key_hash(pulses.seed, key)
    cdef uint32_t slot = hash & table.mask
    cdef Beat* beat
    while True:
        beat = <Beat*>atomic_load_ptr(&table.slots[slot])
        if beat == NULL:
            return False
        if beat != TOMBSTONE and beat.hash == hash and same(&beat.key.member, &key.member) \
                and same(&beat.key.group, &key.group):
            break
        slot = (slot + 1) & table.mask
    # A request without an instance id is judged by the member's alone, as Kafka does.
    if key.instance.n >= 0 and not same(&beat.key.instance, &key.instance):
        return False
    return beat_answers(beat, generation, now_ms)


# ---- the table: the writer

cdef BeatTable* table_new(uint32_t slots) noexcept nogil:
    cdef BeatTable* table = <BeatTable*>calloc(1, sizeof(BeatTable) + slots * sizeof(void*))
    if table != NULL:
        table.mask = slots - 1
        table.slots = <void**>(<uint8_t*>table + sizeof(BeatTable))
    return table


cdef void table_insert(BeatTable* table, Beat* beat) noexcept nogil:
    """Into the first slot that was never used: a reader that passes by never loses its way."""
    cdef uint32_t slot = beat.hash & table.mask
    while atomic_load_ptr(&table.slots[slot]) != NULL:
        slot = (slot + 1) & table.mask
    atomic_store_ptr(&table.slots[slot], beat)
    table.filled += 1


cdef bint make_room(PulseTable* pulses) noexcept nogil:
    """At most half of the slots filled, else a fresh table without tombstones. False: no memory."""
    cdef BeatTable* old = <BeatTable*>pulses.table
    cdef BeatTable* table
    cdef uint32_t slots = SLOTS_FIRST
    cdef uint32_t i
    if (old.filled + 1) * 2 <= old.mask + 1:
        return True
    while slots < (pulses.count + 1) * 4:
        slots *= 2
    table = table_new(slots)
    if table == NULL:
        return False
    for i in range(old.mask + 1):
        if old.slots[i] != NULL and old.slots[i] != TOMBSTONE:
            table_insert(table, <Beat*>old.slots[i])
    atomic_store_ptr(&pulses.table, table)
    old.next = pulses.retired_tables
    pulses.retired_tables = old
    return True


cdef inline void keep(Slice* to, const Slice* of, uint8_t** at) noexcept nogil:
    to.n = of.n
    to.p = at[0]
    if of.n > 0:
        memcpy(at[0], of.p, <size_t>of.n)
        at[0] += of.n


cdef Beat* beat_new(PulseTable* pulses, const PulseKey* key) noexcept nogil:
    """A closed one, in the table; NULL: no memory, or its names are too long."""
    cdef int64_t bytes = <int64_t>key.group.n + key.member.n + max(key.instance.n, 0)
    cdef Beat* beat
    cdef uint8_t* at
    if bytes > PULSE_KEY_BYTES_MAX or not make_room(pulses):
        return NULL
    beat = <Beat*>malloc(sizeof(Beat) + <size_t>bytes)
    if beat == NULL:
        return NULL
    at = <uint8_t*>beat + sizeof(Beat)
    keep(&beat.key.group, &key.group, &at)
    keep(&beat.key.member, &key.member, &at)
    keep(&beat.key.instance, &key.instance, &at)
    beat.word = CLOSED
    beat.hash = key_hash(pulses.seed, key)
    table_insert(<BeatTable*>pulses.table, beat)
    pulses.count += 1
    return beat


cdef void beat_retire(PulseTable* pulses, Beat* beat) noexcept nogil:
    cdef BeatTable* table = <BeatTable*>pulses.table
    cdef uint32_t slot = beat.hash & table.mask
    beat_close(beat)
    while atomic_load_ptr(&table.slots[slot]) != beat:
        slot = (slot + 1) & table.mask
    atomic_store_ptr(&table.slots[slot], TOMBSTONE)
    pulses.count -= 1
    beat.next = pulses.retired
    pulses.retired = beat
    pulses.retired_count += 1


cdef void free_all(Beat* beat, BeatTable* table) noexcept nogil:
    cdef Beat* next_beat
    cdef BeatTable* next_table
    while beat != NULL:
        next_beat = beat.next
        free(beat)
        beat = next_beat
    while table != NULL:
        next_table = table.next
        free(table)
        table = next_table


cdef void reclaim(PulseTable* pulses):
    """Free what was unlinked. What somebody who stands in a disk that hangs may hold stays until
    the next time. The GIL is let go of once all is in its place."""
    cdef Beat** beats = &pulses.retired
    cdef BeatTable** tables = &pulses.retired_tables
    cdef Beat* beat = pulses.retired
    cdef BeatTable* table = pulses.retired_tables
    cdef bint unread = True
    pulses.retired = NULL
    pulses.retired_count = 0
    pulses.retired_tables = NULL
    with nogil:
        if pulses.synchronize != NULL:
            unread = pulses.synchronize(pulses.synchronize_argument)
        if unread:
            free_all(beat, table)
    if unread:
        return
    while beats[0] != NULL:
        beats = &beats[0].next
    while tables[0] != NULL:
        tables = &tables[0].next
    beats[0] = beat
    tables[0] = table


# ---- the face

cdef Slice slice_of(bytes text):
    """Borrowed; null for None."""
    cdef Slice slice
    slice.p = NULL
    slice.n = -1
    if text is not None:
        slice.p = <const uint8_t*><const char*>text
        slice.n = <int32_t>len(text)
    return slice


@cython.final
@cython.no_gc
cdef class Pulses:
    """The pulses of a broker; of the control thread, but for the data plane's reading."""

    def __cinit__(self) -> None:
        memset(&self.core, 0, sizeof(PulseTable))
        self.core.seed = int.from_bytes(os.urandom(8), "big")
        self.core.table = table_new(SLOTS_FIRST)
        if self.core.table == NULL:
            raise MemoryError("no memory for the pulses of groups")

    def __dealloc__(self) -> None:
        # Every pulse has ended: it holds on to this.
        self.core.synchronize = NULL
        reclaim(&self.core)
        free(self.core.table)

    def __len__(self) -> int:
        return self.core.count

    def begin(self, group_id: str, member_id: str, instance_id: str | None) -> Pulse | None:
        """A closed pulse of a member; None where its names are too long to be kept twice."""
        cdef PulseKey key
        cdef Pulse pulse
        group, member = group_id.encode(), member_id.encode()
        instance = None if instance_id is None else instance_id.encode()
        key.group, key.member, key.instance = slice_of(group), slice_of(member), slice_of(instance)
        beat = beat_new(&self.core, &key)
        if beat == NULL:
            return None
        pulse = Pulse.__new__(Pulse)
        pulse.owner = self
        pulse.beat = beat
        if self.core.retired_tables != NULL:
            reclaim(&self.core)
        return pulse

    def answers(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> bool:
        """What a network thread asks: may it answer this heartbeat? If so, it was heard."""
        cdef PulseKey key
        group, member = group_id.encode(), member_id.encode()
        instance = None if instance_id is None else instance_id.encode()
        key.group, key.member, key.instance = slice_of(group), slice_of(member), slice_of(instance)
        return pulse_answers(&self.core, &key, generation, now_ms)


@cython.final
@cython.no_gc
cdef class Pulse:
    """One member's; made by Pulses.begin."""

    def __dealloc__(self) -> None:
        if self.beat != NULL:
            beat_retire(&self.owner.core, self.beat)

    def open(self, generation: int, now_ms: int) -> None:
        """Heartbeats of this generation are answered from now on; the last was heard now."""
        if self.beat != NULL and generation >= 0:
            atomic_store_u64(&self.beat.word, word_of(generation, now_ms))

    def close(self) -> None:
        """They are not; when the last was heard is still known."""
        if self.beat != NULL:
            beat_close(self.beat)

    def left_ms(self, session_ms: int, now_ms: int) -> int:
        """Milliseconds until a session ends that began with the last heartbeat; 0: it is over, and
        no heartbeat is answered any more."""
        return 0 if self.beat == NULL else beat_left_ms(self.beat, session_ms, now_ms)

    def end(self) -> None:
        """Forget the member."""
        if self.beat == NULL:
            return
        beat_retire(&self.owner.core, self.beat)
        self.beat = NULL
        if self.owner.core.retired_count >= PULSES_RETIRED_MAX:
            reclaim(&self.owner.core)
