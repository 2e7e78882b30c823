"""The topic table: name and topic id to partitions, read by data-plane threads without a lock.

Floor: above `log`, below every handler. One writer (the control thread); any number of readers,
each inside a turn of its thread (network.net_synchronize says what that means). A reader may use
a Topic and the logs in it until its turn ends; what it keeps longer it must retain (log_ref).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.log_state cimport Log
from kbroker.ext.posix cimport pthread_mutex_t

# One topic; immutable once it stands in the table. Owned by the registry.
ctypedef struct Topic:
    Topic* next                     # among the retired
    uint8_t* name                   # not terminated
    int32_t name_length
    uint32_t hash                   # of the name
    uint8_t id[16]
    int32_t internal
    int32_t partitions_count
    Log** partitions                # one reference each; NULL: offline

# Open addressing, linear probing; a slot is NULL, a tombstone or a topic.
ctypedef struct TopicTable:
    TopicTable* next                # among the retired
    uint32_t mask
    uint32_t filled                 # slots that are not NULL, tombstones included
    void** by_name
    void** by_id

ctypedef struct Registry:
    void* table                     # atomic TopicTable*
    pthread_mutex_t lock            # writers
    uint32_t topics_count
    int64_t partitions_count
    Topic* retired                  # unlinked, and maybe still held
    TopicTable* retired_tables
    int32_t keeps_retired           # until registry_reclaim: one wait for many removals
    # Waits until no reader can hold what was unlinked before. False: one may for long.
    bint (*synchronize)(void* argument) noexcept nogil
    void* synchronize_argument

# -- readers
cdef Topic* registry_by_name(Registry* registry, const uint8_t* name,
                             int32_t length) noexcept nogil
cdef Topic* registry_by_id(Registry* registry, const uint8_t* topic_id) noexcept nogil

cdef inline Log* topic_log(Topic* topic, int32_t partition) noexcept nogil:
    """The log of a partition, borrowed; NULL when there is none or it is offline."""
    if partition < 0 or partition >= topic.partitions_count:
        return NULL
    return topic.partitions[partition]

# -- the writer
cdef int registry_init(Registry* registry) noexcept nogil
cdef void registry_destroy(Registry* registry) noexcept nogil
# Adds the topic, or replaces the one of that name. Takes references of its own. 0 or ENOMEM.
cdef int registry_put(Registry* registry, const uint8_t* name, int32_t name_length,
                      const uint8_t* topic_id, bint internal, Log** logs,
                      int32_t count) noexcept nogil
# Bytes on disk of all logs of a directory, by its place among log.dirs; any thread, waits for a
# writer.
cdef int64_t registry_disk_bytes(Registry* registry, int32_t directory) noexcept nogil
cdef bint registry_remove(Registry* registry, const uint8_t* name, int32_t length) noexcept nogil
# Free what was unlinked while keeps_retired was set, and clear it.
cdef void registry_reclaim(Registry* registry) noexcept nogil
