"""What the handlers of the data plane share: hangs on `Net.broker`."""
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t

from kbroker.ext.atomics cimport (
    atomic_add_relaxed_i64,
    atomic_load_i32,
    atomic_load_relaxed_i64,
    atomic_store_i64,
)
from kbroker.ext.batch cimport BATCH_TOO_LARGE
from kbroker.ext.compression cimport CODEC_MAX
from kbroker.ext.connection cimport Net
from kbroker.ext.error_codes cimport NONE
from kbroker.ext.journal cimport Journal
from kbroker.ext.log_state cimport DIRECTORIES_MAX
from kbroker.ext.pulses cimport PulseTable
from kbroker.ext.registry cimport Registry
from kbroker.ext.sessions cimport SessionCache

cdef enum DiskAnswer:
    DISK_TAKEN
    DISK_LATER                      # stall until the disk's limits have been looked at again
    DISK_FULL                       # refuse

cdef enum:
    REFUSED_KINDS = 32              # of BATCH_..., by the code without its sign
    ERROR_CODES_MAX = 160           # Kafka's, from -1 on; what is above counts as -1

cdef enum:                          # APIs whose errors are counted here, by their keys
    COUNTED_PRODUCE = 0
    COUNTED_FETCH = 1
    COUNTED_LIST_OFFSETS = 2        # what has none is counted as well
    COUNTED_PRODUCE_LATE            # of Produce: appended, but not durable in time
    COUNTED_APIS

# One of log.dirs; the first is the only one, unless more are named.
ctypedef struct Directory:
    Journal* journal                # NULL: durability=page-cache, or the directory is offline
    # What clients may still append before the disk's limits are looked at again; atomic. Whoever
    # finds too little stalls until then. From disk_unlimited() on nobody counts. Topics of the
    # broker itself are not asked.
    int64_t disk_room
    int64_t disk_wanted             # atomic; what the largest request that found too little asked
    int32_t disk_refusing           # atomic; there will not be room: refuse

ctypedef struct Broker:
    Registry registry
    Directory directories[DIRECTORIES_MAX]      # Log.directory is a place here
    int32_t directories_count
    SessionCache sessions
    PulseTable* pulses              # of the groups' members
    # transaction.partition.verification.enable; atomic. Of clients that do not add partitions by
    # their Produce; the others' are always verified.
    int32_t verify_transactions
    int64_t rights_version          # atomic; grows with every change of ACLs; 0: no authorizer
    int32_t node_id
    int32_t fetch_bytes_max         # fetch.max.bytes
    int32_t told_codecs[CODEC_MAX + 1]      # atomic; 1: that its library is missing was logged
    int64_t refused[REFUSED_KINDS]  # atomic; batches of clients, by what is wrong with them
    int64_t refused_bytes           # atomic; of those that were too large
    # Atomic; errors that answers told, one for each partition, by the code and 1.
    int64_t errors[COUNTED_APIS][ERROR_CODES_MAX]

cdef inline Broker* broker_of(Net* net) noexcept nogil:
    return <Broker*>net.broker

cdef inline int64_t disk_unlimited() noexcept nogil:
    return INT64_MAX // 2


cdef inline int disk_take(Directory* disk, int64_t bytes) noexcept nogil:
    """Room for what a client appends. Without limits it costs a load, with them one shared word."""
    cdef int64_t room = atomic_load_relaxed_i64(&disk.disk_room)
    if room >= disk_unlimited():
        return DISK_TAKEN
    if atomic_load_i32(&disk.disk_refusing):
        return DISK_FULL
    if room < bytes:
        if atomic_load_relaxed_i64(&disk.disk_wanted) < bytes:
            atomic_store_i64(&disk.disk_wanted, bytes)
        return DISK_LATER
    atomic_add_relaxed_i64(&disk.disk_room, -bytes)
    return DISK_TAKEN


cdef inline void disk_give_back(Directory* disk, int64_t bytes) noexcept nogil:
    if atomic_load_relaxed_i64(&disk.disk_room) < disk_unlimited():
        atomic_add_relaxed_i64(&disk.disk_room, bytes)


cdef inline void count_refused(Broker* broker, int code, int64_t bytes) noexcept nogil:
    """A batch was refused for its content."""
    if -REFUSED_KINDS < code < 0:
        atomic_add_relaxed_i64(&broker.refused[-code], 1)
    if code == BATCH_TOO_LARGE:
        atomic_add_relaxed_i64(&broker.refused_bytes, bytes)


cdef inline void count_answer(Broker* broker, int api, int16_t code) noexcept nogil:
    """An answer tells this of a partition, or of itself."""
    if code < -1 or code >= ERROR_CODES_MAX - 1:
        code = -1
    atomic_add_relaxed_i64(&broker.errors[api][code + 1], 1)


cdef inline void count_error(Broker* broker, int api, int16_t code) noexcept nogil:
    """As count_answer, of an API whose answers without an error are not counted."""
    if code != NONE:
        count_answer(broker, api, code)
