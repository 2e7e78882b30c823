"""Group commit: entries are copied into a buffer, a flusher writes and syncs it as one group.

Two group buffers take turns. Appenders place entries in the current one; the flusher swaps them,
waits for copies under way (microseconds: only the copy itself happens between placing and
finishing), writes the sealed group with one O_DIRECT write and one fdatasync, and tells every
owner in it how far it is durable. While it does so the next group fills: the slower the disk, the
larger the groups.

A group as written (big endian; `journal_files` has the file around it, `journal_recovery` the way
back):

    0   magic "KBJG"     4   crc32c of 8..63      8   salt
    16  group sequence   24  length in bytes, without the padding to 4096
    28  entries          32  zeros
    64  entries, each: header of 64 bytes, the record batch, padding to 8
        0  crc32c of 4..63 and of the batch's first 21 bytes    4  batch bytes
        8  salt   16 topic id   32 partition   36 zeros   40 base offset   48 end offset
        56 group sequence

What a crash may leave: a group torn anywhere. Nothing in it was acknowledged, and what of it is
whole (the entry's own checksum and the batch's CRC say so) may be kept. What no crash can do is
to have old bytes taken for new, though blocks are written again and again without being cleared:
the salt is drawn at each start, and within a start the group sequence never repeats, so an entry
of an earlier lap or an earlier life fails the comparison whatever its checksum says.

Concurrency: the journal lock guards the groups and the lists. A failed write or sync is final:
`failed` is set, every owner is told with end offset -1, and nothing is accepted any more.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_add_i64, atomic_load_i32, atomic_load_i64, atomic_store_relaxed_i32, atomic_tally_i64,
    cpu_relax,
)
from kbroker.ext.atomics cimport atomic_store_i32
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.crc32c cimport crc32c, crc32c_extend
from kbroker.ext.endian cimport store_be32, store_be64
from kbroker.ext.journal_files cimport (
    file_note_owner,
    file_write,
    files_close,
    files_hint,
    files_next,
    files_open_first,
    journal_checkpointer,
    owner_sync,
)
from kbroker.ext.journal_room cimport journal_demand_locked, journal_is_empty
from kbroker.ext.journal_state cimport JournalGroup
from kbroker.ext.posix cimport (
    CLOCK_MONOTONIC,
    errno,
    fdatasync,
    posix_memalign,
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_timedwait,
    pthread_cond_wait,
    pthread_condattr_init,
    pthread_condattr_setclock,
    pthread_condattr_t,
    pthread_create,
    pthread_join,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    strdup,
    timespec_t,
)
from kbroker.ext.sockets cimport thread_hurries, thread_name, usleep
from kbroker.ext.times cimport histogram_add

cdef enum:
    GROUP_MAGIC = 0x4B424A47        # "KBJG"
    BATCH_PREFIX_BYTES = 21         # base offset to CRC: what the batch's own CRC leaves out
    SPINS_BEFORE_SLEEP = 200
    COPY_WAIT_US = 20
    SLEEPS = 1                      # the flusher will look again within the interval
    SLEEPS_FOR_GOOD = 2             # until it is woken


cdef inline uint32_t entry_bytes(uint32_t batch_bytes) noexcept nogil:
    return (JOURNAL_ENTRY_HEADER_BYTES + batch_bytes + 7) & ~<uint32_t>7


cdef inline bint fits_a_group(Journal* journal, uint32_t batch_bytes) noexcept nogil:
    return <uint64_t>batch_bytes + JOURNAL_GROUP_HEADER_BYTES + JOURNAL_ENTRY_HEADER_BYTES + 8 \
        <= <uint64_t>journal.group_bytes


# -- appending ------------------------------------------------------------------------------

cdef void journal_owner_init(JournalOwner* owner, void* context, const uint8_t* topic_id,
                             int32_t partition) noexcept nogil:
    memset(owner, 0, sizeof(JournalOwner))
    owner.context = context
    memcpy(owner.topic_id, topic_id, 16)
    owner.partition = partition


cdef int journal_reserve(Journal* journal, JournalOwner* owner, uint32_t size,
                         Reservation* out) noexcept nogil:
    """Promise room for a batch of `size` bytes. JOURNAL_OK, JOURNAL_STALL or JOURNAL_FAILED."""
    cdef JournalGroup* group
    cdef int code = JOURNAL_OK
    out.owner = owner
    out.size = entry_bytes(size) if fits_a_group(journal, size) else 0
    pthread_mutex_lock(&journal.lock)
    group = &journal.groups[journal.current]
    if journal.failed:
        code = JOURNAL_FAILED
    elif group.used + journal.admitted + out.size > journal.group_bytes:
        journal.stalled = 1
        journal_demand_locked(journal)
        code = JOURNAL_STALL
    else:
        journal.admitted += out.size
    pthread_mutex_unlock(&journal.lock)
    return code


cdef void journal_cancel(Journal* journal, Reservation* place) noexcept nogil:
    cdef bint stalled = False
    pthread_mutex_lock(&journal.lock)
    journal.admitted -= place.size
    if journal_is_empty(journal):   # nothing that comes would tell who waits of the room
        stalled = journal.stalled
        journal.stalled = 0
        pthread_cond_broadcast(&journal.moved)
    pthread_mutex_unlock(&journal.lock)
    if stalled and journal.unstall != NULL:
        journal.unstall(journal.unstall_argument)


cdef inline bint join_group(Journal* journal, JournalOwner* owner, int which,
                            int64_t end_offset, bint sync) noexcept nogil:
    """Lock held. True: the flusher sleeps for good, and is to be woken when the copy is done."""
    cdef JournalGroup* group = &journal.groups[which]
    cdef bint first = group.count == 0
    if not owner.in_group[which]:
        owner.in_group[which] = 1
        owner.sync_with_group[which] = 0
        owner.next_in_group[which] = group.owners
        group.owners = owner
        journal.call.retain(owner.context)
    if sync:
        owner.sync_with_group[which] = 1
    owner.end_offset[which] = end_offset
    if first:
        group.opened_ns = monotonic_ns()
    group.count += 1
    return first and journal.sleeping == SLEEPS_FOR_GOOD


cdef void journal_commit(Journal* journal, Reservation* place, const uint8_t* batch,
                         uint32_t size, int64_t end_offset) noexcept nogil:
    """Place the batch, now in its segment with its offsets, in the current group.

    A batch that no group can hold is not copied: its owner's segment is synced with the group.
    """
    cdef JournalGroup* group
    cdef uint8_t* target
    cdef uint64_t sequence
    cdef int which
    cdef bint wake
    pthread_mutex_lock(&journal.lock)
    which = journal.current
    group = &journal.groups[which]
    journal.admitted -= place.size
    target = group.buffer + group.used
    group.used += place.size
    sequence = journal.group_sequence
    wake = join_group(journal, place.owner, which, end_offset, place.size == 0)
    atomic_add_i64(&group.inflight, 1)
    pthread_mutex_unlock(&journal.lock)
    if place.size:
        write_entry(journal, place.owner, target, batch, size, end_offset, sequence)
    atomic_add_i64(&group.inflight, -1)
    if wake:
        pthread_cond_signal(&journal.wanted)


cdef void write_entry(Journal* journal, JournalOwner* owner, uint8_t* target,
                      const uint8_t* batch, uint32_t size, int64_t end_offset,
                      uint64_t sequence) noexcept nogil:
    store_be32(target + 4, size)
    store_be64(target + 8, journal.salt)
    memcpy(target + 16, owner.topic_id, 16)
    store_be32(target + 32, <uint32_t>owner.partition)
    store_be32(target + 36, 0)
    memcpy(target + 40, batch, 8)
    store_be64(target + 48, <uint64_t>end_offset)
    store_be64(target + 56, sequence)
    memcpy(target + JOURNAL_ENTRY_HEADER_BYTES, batch, size)
    store_be32(target, crc32c_extend(
        crc32c(target + 4, JOURNAL_ENTRY_HEADER_BYTES - 4), batch, BATCH_PREFIX_BYTES))


cdef void journal_demand(Journal* journal) noexcept nogil:
    """Somebody waits for what was committed so far. Cheap when it was demanded already.

    The flusher is woken without the lock, which it would want at once; and by everybody until it
    runs, as the first may have lost the processor before it could.
    """
    cdef bint wake
    if atomic_load_i32(&journal.demand) and not atomic_load_i32(&journal.sleeping):
        return
    pthread_mutex_lock(&journal.lock)
    wake = journal.sleeping
    atomic_store_relaxed_i32(&journal.demand, 1)
    pthread_mutex_unlock(&journal.lock)
    if wake:
        pthread_cond_signal(&journal.wanted)


# -- the flusher ----------------------------------------------------------------------------

cdef void seal_header(Journal* journal, JournalGroup* group, uint64_t sequence) noexcept nogil:
    cdef uint8_t* head = group.buffer
    memset(head, 0, JOURNAL_GROUP_HEADER_BYTES)
    store_be32(head, GROUP_MAGIC)
    store_be64(head + 8, journal.salt)
    store_be64(head + 16, sequence)
    store_be32(head + 24, group.used)
    store_be32(head + 28, group.count)
    store_be32(head + 4, crc32c(head + 8, JOURNAL_GROUP_HEADER_BYTES - 8))


cdef int write_group(Journal* journal, JournalGroup* group, uint64_t sequence) noexcept nogil:
    """Put a sealed group on disk. 0 or the errno that ends this journal."""
    cdef int64_t size
    cdef int64_t began
    cdef int code
    # Written even when it only has batches too large to copy: its sequence must not be missing.
    seal_header(journal, group, sequence)
    size = (group.used + JOURNAL_BLOCK_BYTES - 1) & ~<int64_t>(JOURNAL_BLOCK_BYTES - 1)
    if journal.active.position + size > journal.active.bytes_max:
        code = files_next(journal, sequence)
        if code:
            return code
    began = monotonic_ns()
    code = file_write(journal.active.fd, group.buffer, size, journal.active.position)
    if code == 0 and fdatasync(journal.active.fd) != 0:
        code = errno
    if code == 0:
        histogram_add(&journal.syncs, monotonic_ns() - began, 1)
        histogram_add(&journal.sizes, size, 1)
        atomic_tally_i64(&journal.batches_written, group.count)
        journal.active.position += size
        atomic_tally_i64(&journal.bytes_written, size)
        files_hint(journal)
    return code


cdef int settle_owners(Journal* journal, int which, int code) noexcept nogil:
    """Tell the owners of a written group."""
    cdef JournalOwner* owner = journal.groups[which].owners
    cdef int sync_code
    while owner != NULL:
        if code == 0 and owner.sync_with_group[which]:
            sync_code = owner_sync(journal, owner)
            if sync_code:
                code = sync_code
        journal.call.durable(owner.context, owner.end_offset[which] if code == 0 else -1)
        owner = owner.next_in_group[which]
    return code


cdef void note_owners_locked(Journal* journal, JournalOwner* owner, int which) noexcept nogil:
    """Lock held: the owners of a written group have entries in the active file."""
    while owner != NULL:
        owner.in_group[which] = 0
        file_note_owner(journal, owner)
        owner = owner.next_in_group[which]


cdef void release_owners(Journal* journal, JournalOwner* owner, int which) noexcept nogil:
    """They stay linked, as nobody joins this group before the flusher makes it the current one."""
    cdef JournalOwner* following
    while owner != NULL:
        following = owner.next_in_group[which]
        journal.call.release(owner.context)
        owner = following


cdef void flush_group(Journal* journal, int which, uint64_t sequence) noexcept nogil:
    """Write what was sealed, tell its owners, and open the buffer for the next turn."""
    cdef JournalGroup* group = &journal.groups[which]
    cdef JournalOwner* owners = group.owners
    cdef int64_t began = monotonic_ns()
    cdef int spins = 0
    cdef int code
    cdef bint stalled
    while atomic_load_i64(&group.inflight) != 0:
        spins += 1
        if spins < SPINS_BEFORE_SLEEP:
            cpu_relax()
        else:
            usleep(COPY_WAIT_US)        # whoever copies may have lost this processor to us
    code = journal.failed
    if code == 0:
        code = write_group(journal, group, sequence)
    code = settle_owners(journal, which, code)
    atomic_tally_i64(&journal.flush_ns_total, monotonic_ns() - began)
    pthread_mutex_lock(&journal.lock)
    if code and not journal.failed:
        journal.failed = code
    note_owners_locked(journal, owners, which)
    group.used = JOURNAL_GROUP_HEADER_BYTES
    group.count = 0
    group.owners = NULL
    atomic_tally_i64(&journal.groups_written, 1)
    stalled = journal.stalled
    journal.stalled = 0
    pthread_cond_broadcast(&journal.moved)
    pthread_mutex_unlock(&journal.lock)
    release_owners(journal, owners, which)
    if stalled and journal.unstall != NULL:
        journal.unstall(journal.unstall_argument)


cdef bint wait_until(Journal* journal, int64_t due) noexcept nogil:
    """Lock held. False: the moment came and nobody woke this."""
    cdef timespec_t at
    at.tv_sec = due // 1000000000
    at.tv_nsec = due % 1000000000
    return pthread_cond_timedwait(&journal.wanted, &journal.lock, &at) == 0


cdef void sleep_until_due(Journal* journal) noexcept nogil:
    """With the lock held: wait until the current group should be written, or the end is near.

    An empty group is looked at again after the time that entries may wait, so that the first of
    them need not wake anybody; only then this sleeps until it is woken.
    """
    cdef int64_t due = monotonic_ns() + journal.interval_ns
    cdef JournalGroup* group
    atomic_store_relaxed_i32(&journal.sleeping, SLEEPS)
    while not journal.stopping:
        group = &journal.groups[journal.current]
        if group.count == 0:
            atomic_store_relaxed_i32(&journal.demand, 0)
            if journal.sleeping == SLEEPS_FOR_GOOD:
                pthread_cond_wait(&journal.wanted, &journal.lock)
            elif not wait_until(journal, due):
                atomic_store_relaxed_i32(&journal.sleeping, SLEEPS_FOR_GOOD)
            continue
        due = group.opened_ns + journal.interval_ns
        if journal.demand or monotonic_ns() >= due:
            break
        atomic_store_relaxed_i32(&journal.sleeping, SLEEPS)
        wait_until(journal, due)
    atomic_store_relaxed_i32(&journal.sleeping, 0)


cdef void* journal_flusher(void* argument) noexcept nogil:
    cdef Journal* journal = <Journal*>argument
    cdef int which
    cdef uint64_t sequence
    thread_name("kbroker-flush")
    thread_hurries()
    while True:
        pthread_mutex_lock(&journal.lock)
        sleep_until_due(journal)
        which = journal.current
        if journal.groups[which].count == 0:      # stopping, and nothing is left
            pthread_mutex_unlock(&journal.lock)
            return NULL
        sequence = journal.group_sequence
        journal.group_sequence += 1
        journal.current = 1 - which
        atomic_store_relaxed_i32(&journal.demand, 0)
        pthread_mutex_unlock(&journal.lock)
        flush_group(journal, which, sequence)


# -- life -----------------------------------------------------------------------------------

cdef int init_locks(Journal* journal) noexcept nogil:
    cdef pthread_condattr_t monotonic
    pthread_condattr_init(&monotonic)
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC)
    pthread_mutex_init(&journal.lock, NULL)
    pthread_cond_init(&journal.wanted, &monotonic)
    pthread_cond_init(&journal.moved, &monotonic)
    pthread_cond_init(&journal.sealed, &monotonic)
    return 0


cdef Journal* journal_create(const char* directory, int64_t group_bytes, int64_t file_bytes,
                             int64_t bytes_max, int64_t interval_ms,
                             const JournalCallbacks* callbacks, uint64_t salt) noexcept nogil:
    """A journal in `directory`, not yet running; NULL with errno when it cannot be made.

    group_bytes: room of each of the two buffers; a file holds at least one full group.
    """
    cdef Journal* journal = <Journal*>calloc(1, sizeof(Journal))
    cdef int i
    if journal == NULL:
        return NULL
    journal.call = callbacks[0]
    journal.directory = strdup(directory)
    journal.salt = salt
    journal.group_sequence = 1
    journal.group_bytes = <uint32_t>group_bytes
    journal.file_bytes = file_bytes
    journal.bytes_max = bytes_max
    journal.interval_ns = interval_ms * 1000000
    init_locks(journal)
    for i in range(2):
        if posix_memalign(<void**>&journal.groups[i].buffer, JOURNAL_BLOCK_BYTES,
                          <size_t>group_bytes + JOURNAL_BLOCK_BYTES) != 0:
            journal_destroy(journal, False)
            return NULL
        journal.groups[i].used = JOURNAL_GROUP_HEADER_BYTES
    if files_open_first(journal) != 0:
        journal_destroy(journal, True)
        return NULL
    return journal


cdef int journal_start(Journal* journal) noexcept nogil:
    """Start the flusher and the checkpointer. 0 or an errno."""
    cdef int code = pthread_create(&journal.flusher, NULL, journal_flusher, journal)
    if code:
        return code
    code = pthread_create(&journal.checkpointer, NULL, journal_checkpointer, journal)
    journal.running = 1
    return code


cdef void journal_stop(Journal* journal) noexcept nogil:
    """Write what is left, then end both threads. Appends must have ended before."""
    if not journal.running:
        return
    pthread_mutex_lock(&journal.lock)
    atomic_store_i32(&journal.stopping, 1)
    pthread_cond_broadcast(&journal.wanted)
    pthread_mutex_unlock(&journal.lock)
    pthread_join(journal.flusher, NULL)
    pthread_mutex_lock(&journal.lock)
    atomic_store_i32(&journal.stopping, 2)
    pthread_cond_broadcast(&journal.sealed)
    pthread_cond_broadcast(&journal.moved)
    pthread_mutex_unlock(&journal.lock)
    pthread_join(journal.checkpointer, NULL)
    journal.running = 0


cdef void journal_destroy(Journal* journal, bint unlink_files) noexcept nogil:
    """Free a stopped journal. Its files go only when every segment is known to be on disk."""
    cdef int i
    files_close(journal, unlink_files)
    for i in range(2):
        free(journal.groups[i].buffer)
    pthread_cond_destroy(&journal.wanted)
    pthread_cond_destroy(&journal.moved)
    pthread_cond_destroy(&journal.sealed)
    pthread_mutex_destroy(&journal.lock)
    free(journal.directory)
    free(journal)
