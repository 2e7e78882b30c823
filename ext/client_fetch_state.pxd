"""What a consumer fetches: partitions with their positions, and one fetch session a link (KIP-227).

A Part is a partition that was assigned. `offset` is where the next request goes on, ahead of
`position`, which is behind the last record that a call has returned to the application. Records
that a call has taken and not returned yet are behind `taken_position`. Answers wait as Chunks, in
order of arrival. `generation` changes when the user goes elsewhere (seek, unassign): what was
fetched for an earlier one is dropped.

All of it is guarded by `lock`, but for the Stream of a chunk: it belongs to the thread that polls,
which alone takes chunks off the list. A Part in need of the control thread (no leader, an error)
has `attention`; the control thread collects these after an event.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.client_link cimport Call, Driver
from kbroker.ext.client_stream cimport Stream, StreamRules
from kbroker.ext.posix cimport pthread_cond_t, pthread_mutex_t
from kbroker.ext.sockets cimport iovec_t

cdef enum:
    SESSIONS_MAX = 1024             # links of one loop
    TOPIC_ID_BYTES = 16
    FETCH_KEY = 1
    FETCH_LOW = 4                   # KIP-98: record batches of magic 2
    FETCH_HIGH = 18
    FETCH_BY_NAME_HIGH = 12         # from 13 on topics go by their ids

cdef enum Attention:                # what the control thread is asked for, beside Kafka's codes
    ATTEND_LEADER = -2              # no link to fetch from
    ATTEND_POSITION = -3            # no offset to begin at
    ATTEND_REPLICA = -4             # `hint_node` is to be read from (KIP-392)
    ATTEND_CORRUPT = -5             # the broker's answer was none

cdef struct Topic:
    Topic* next
    Part* parts
    Part* hint                      # where the last answer's partition was found
    int32_t index                   # in the list of names that Python keeps
    int32_t parts_count
    int32_t name_n
    bint has_id
    uint8_t id[TOPIC_ID_BYTES]
    uint8_t name[256]

cdef struct Part:
    Part* next                      # of its topic
    Topic* topic
    int32_t partition
    int32_t link                    # -1: none
    int32_t node                    # at the end of the link
    int32_t epoch                   # leader epoch, -1: not known
    int64_t generation
    int64_t offset                  # -1: none yet
    int32_t offset_epoch            # of the last record before it, -1: not known
    int64_t sound_from              # chunks of earlier generations are of a log that was truncated
    int64_t truncated_to            # where the position goes back to with them
    int64_t position
    int32_t position_epoch          # of the last record before it, -1: not known
    bint taken                      # in the list of Fetch.taken
    Part* taken_next
    int64_t taken_position          # becomes `position` when the call returns what it took
    int32_t taken_epoch
    int64_t taken_generation        # of the chunk that the records are of
    int64_t call                    # the last call that returned records of it, see Fetch.calls
    int64_t call_position           # `position` before that call
    int32_t call_epoch
    int64_t high_watermark          # -1: not told yet
    int64_t last_stable_offset
    int64_t log_start_offset
    int64_t queued                  # bytes of chunks
    int64_t stop_at                 # nothing is asked for from this offset on
    bint paused                     # by the user
    bint stopped                    # about to be revoked
    bint faulted                    # an answer that cannot be read waits for the user
    int32_t attention               # Attention, or a code of Kafka; 0: none
    bint attended                   # the control thread knows
    int32_t hint_node               # with attention: the leader as the answer tells it, -1
    int32_t hint_epoch
    # The session that knows of it: link, and what it was told last.
    int32_t told_link               # -1: none
    int64_t told_offset
    int32_t told_epoch
    int32_t flight_link             # of the request that it is in, -1: none
    int64_t flight_generation
    int64_t flight_offset
    bint wanted                     # while a request is made

cdef struct Scan:                   # how far an answer on its way was looked at (client_fetch_scan)
    const uint8_t* sound            # end of the last batch that is good, as all before it; or NULL
    const uint8_t* p                # not looked at yet
    const uint8_t* records_end      # of the partition that p is in; NULL: in none
    int32_t topics                  # to come
    int32_t partitions              # of the topic, to come
    bint in_topic
    bint begun
    bint over                       # the rest is left to those who read

cdef struct Session:
    Call call                       # first: `done` gets it
    iovec_t piece
    Scan scan                       # of the answer
    Fetch* fetch
    int32_t link
    bint in_flight
    bint renew                      # a partition of it was unassigned, or a topic has another id
    int16_t version
    int32_t session_id
    int32_t epoch
    int64_t not_before_ns
    int64_t looked                  # the turn in which it was looked at
    int64_t counted                 # the turn in which it was counted
    int32_t asked                   # bytes that its answer may have
    uint8_t* memory
    int64_t room

cdef struct Chunk:                  # records of one partition of one answer
    Chunk* next
    Part* part
    int64_t generation              # of the part when it was asked for
    int64_t bytes
    Stream stream

cdef struct FetchRules:
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t partition_bytes
    int64_t queue_bytes
    int64_t request_timeout_ns
    int64_t backoff_ns
    StreamRules stream
    int32_t rack_n
    uint8_t rack[256]

cdef struct Fetch:
    pthread_mutex_t lock
    pthread_cond_t arrived
    Driver* driver                  # its loop is there once it was added to one
    FetchRules rules
    Topic* topics
    int32_t parts_count
    Chunk* first
    Chunk* last
    Part* taken                     # parts with records that a call took and did not return yet
    int64_t calls                   # of the application, for records; an iteration's step is one
    bint taken_lost                 # some of these records are of a part that went elsewhere since
    int64_t queued
    int64_t asked                   # bytes that answers on their way may have
    int32_t flying                  # links with an answer on its way
    int32_t askers                  # links that are to be asked in this turn, and were not yet
    bint held                       # one was not asked: there was no room for its answer
    bint woken                      # wake() was called since the last wait
    bint attention                  # of some part; told by an event unless `untold`
    bint untold
    bint closed
    bint corked                     # nothing is asked for
    int32_t signal_fd               # eventfd for asyncio, or -1
    bint watched                    # write to it when something arrives
    Session* sessions[SESSIONS_MAX]     # by link % SESSIONS_MAX
    int64_t turn
    # metrics
    int64_t requests
    int64_t answers
    int64_t bytes
    int64_t latency_ns_sum
    int64_t latency_ns_max
    int64_t throttle_ms

# Every partition in turn, of every topic.
cdef inline Part* first_part(Topic* topic) noexcept nogil:
    while topic != NULL and topic.parts == NULL:
        topic = topic.next
    return topic.parts if topic != NULL else NULL

cdef inline Part* next_part(Part* part) noexcept nogil:
    return part.next if part.next != NULL else first_part(part.topic.next)

cdef Fetch* fetch_new(const FetchRules* rules) noexcept nogil
cdef void fetch_free(Fetch* f) noexcept nogil
# ---- with the lock held
cdef Topic* topic_find(Fetch* f, const uint8_t* name, int32_t n) noexcept nogil
cdef Part* part_add(Fetch* f, Topic* topic, int32_t partition) noexcept nogil
cdef void part_remove(Fetch* f, Part* part) noexcept nogil
# Moves `taken_position`. Only the polling thread changes the list.
cdef void part_take(
    Fetch* f, Part* part, int64_t position, int32_t epoch, int64_t generation
) noexcept nogil
# Each position moves to where its part was taken up to; the list is empty then.
cdef void taken_return(Fetch* f) noexcept nogil
# True if all records that were taken may still be returned: nothing of them was revoked, paused,
# sought away from or truncated.
cdef bint taken_sound(const Fetch* f) noexcept nogil
# What is queued of it goes; what is in flight counts no more.
cdef void part_reset(Fetch* f, Part* part, int64_t offset, int32_t epoch) noexcept nogil
cdef void part_attend(Fetch* f, Part* part, int32_t why, int32_t node, int32_t epoch) noexcept nogil
# As who leads `by` tells it. Another than before: the topic was deleted and made again. Brokers'
# sessions have it by the old id, whose answers nobody takes, so each is begun anew; and positions
# of its other partitions are of the old one, so the control thread is to look at them.
cdef void topic_identify(Fetch* f, Part* by, const uint8_t* topic_id) noexcept nogil
cdef bint part_readable(const Part* part) noexcept nogil
cdef bint part_full(const Fetch* f, const Part* part) noexcept nogil
# Bytes that the next request may ask for; -1: none is to be made before some were taken. What is
# queued of partitions that are paused holds up no other.
cdef int32_t fetch_share(const Fetch* f) noexcept nogil
# By the control thread: goes on elsewhere, while what is queued stays.
cdef void part_move(Fetch* f, Part* part, int64_t offset, int32_t epoch) noexcept nogil
# The same, and nothing of what is queued is given out any more.
cdef void part_truncate(Fetch* f, Part* part, int64_t offset, int32_t epoch) noexcept nogil
cdef void chunk_append(Fetch* f, Part* part, Chunk* chunk) noexcept nogil
cdef void chunk_remove(Fetch* f, Chunk* chunk) noexcept nogil
# Whoever waits looks again.
cdef void fetch_signal(Fetch* f) noexcept nogil
