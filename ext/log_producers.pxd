"""The producers of a log: what an append asks them, what it does to them, and who verifies."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.log_state cimport Log
from kbroker.ext.producers cimport ProducerBatch, Terms

# ---- the lock is held

# May this batch be appended on these terms? LOG_OK, LOG_DUPLICATE (with the batch of that time) or
# an error. Room is made for what log_apply_producer will add.
cdef int log_check_producer(Log* log, const Terms* terms, const uint8_t* batch,
                            const BatchInfo* info, ProducerBatch* before) noexcept nogil
# Before it is written: room for the entry that an abort leaves in the transaction index. LOG_OK or
# an error with nothing changed.
cdef int log_prepare_abort(Log* log, const uint8_t* batch, const BatchInfo* info) noexcept nogil
# The batch is in the log. An entry of the transaction index that cannot be written takes the log
# offline: recovery writes it from the marker.
cdef void log_apply_producer(Log* log, const uint8_t* batch, const BatchInfo* info,
                             int64_t base_offset) noexcept nogil

# ---- any thread

# producers_verify: LOG_OK, LOG_INVALID_PRODUCER_EPOCH, or what keeps the log from being used.
cdef int log_verify(Log* log, int64_t producer_id, int16_t epoch, int32_t sequence, bint bumps,
                    int64_t now_ms, int64_t* guard) noexcept nogil
# Is a transaction of the producer open, in this epoch, or is the epoch an old one? Then there is
# nothing to verify.
cdef bint log_needs_no_verifying(Log* log, int64_t producer_id, int16_t epoch) noexcept nogil
cdef int log_in_txn(Log* log, int64_t producer_id, int16_t epoch) noexcept nogil      # LOG_HELD
