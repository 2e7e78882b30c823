"""What becomes of a batch when its answer is there, or none will come. Loop thread only."""
from libc.stdint cimport int16_t, int32_t, int64_t

from kbroker.ext.client_topic cimport Part
from kbroker.ext.client_batch cimport ClientBatch
from kbroker.ext.client_produce cimport Answer
from kbroker.ext.client_peers cimport Sender

cdef enum:                          # error codes that decide something here
    CODE_NONE = 0
    CODE_CORRUPT_MESSAGE = 2
    CODE_REQUEST_TIMED_OUT = 7
    CODE_MESSAGE_TOO_LARGE = 10
    CODE_NETWORK_EXCEPTION = 13

# The outcome of a batch that a request carried, as Java's Sender.completeBatch.
cdef void batch_answered(
    Sender* s, ClientBatch* b, const Answer* answer, int16_t version, int64_t now_ns
) noexcept nogil
# For good, without an answer: expired, purged, closed.
cdef void batch_gives_up(Sender* s, ClientBatch* b, int32_t local_error) noexcept nogil
# For good, with a code of Kafka's or ERROR_* in its place; the reference of the sender goes.
cdef void batch_fail(
    Sender* s, ClientBatch* b, int16_t code, int32_t local_error
) noexcept nogil

# ---- sequences

# By less than half of all that there are, since they wrap.
cdef bint precedes(int32_t sequence, int32_t other) noexcept nogil
# A batch gets its producer state, and its place among those without an outcome.
cdef void sequence_assign(Sender* s, Part* part, ClientBatch* b) noexcept nogil
# Whether the first batch of a partition has to wait.
cdef bint sequence_blocks(Sender* s, Part* part, const ClientBatch* b) noexcept nogil
# Unresolved sequences and epochs, once in each turn.
cdef void sequences_settle(Sender* s) noexcept nogil
