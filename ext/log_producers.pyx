"""The producers of a log (see log_producers.pxd)."""
from kbroker.ext.batch cimport NO_PRODUCER_ID
from kbroker.ext.log_state cimport (
    LOG_COORDINATOR_FENCED,
    LOG_CORRUPT,
    LOG_DUPLICATE,
    LOG_HELD,
    LOG_INVALID_PRODUCER_EPOCH,
    LOG_INVALID_TXN_STATE,
    LOG_NO_MEMORY,
    LOG_OK,
    LOG_OUT_OF_ORDER_SEQUENCE,
    log_active,
    log_disk_error,
    log_offline,
    log_usable,
    log_lock_soon,
)
from kbroker.ext.partition_transactions cimport EndedTxn
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.producers cimport (
    PRODUCER_BAD_MARKER,
    PRODUCER_COORDINATOR_FENCED,
    PRODUCER_DUPLICATE,
    PRODUCER_FENCED,
    PRODUCER_OK,
    PRODUCER_OUT_OF_ORDER,
    PRODUCER_TXN_STATE,
    Producer,
    producers_aborts,
    producers_apply,
    producers_check,
    producers_find,
    producers_new,
    producers_verify,
)
from kbroker.ext.txn_index cimport txn_index_append, txn_index_reserve


cdef int log_code(int verdict) noexcept nogil:
    if verdict == PRODUCER_OK:
        return LOG_OK
    if verdict == PRODUCER_DUPLICATE:
        return LOG_DUPLICATE
    if verdict == PRODUCER_OUT_OF_ORDER:
        return LOG_OUT_OF_ORDER_SEQUENCE
    if verdict == PRODUCER_FENCED:
        return LOG_INVALID_PRODUCER_EPOCH
    if verdict == PRODUCER_TXN_STATE:
        return LOG_INVALID_TXN_STATE
    if verdict == PRODUCER_COORDINATOR_FENCED:
        return LOG_COORDINATOR_FENCED
    if verdict == PRODUCER_BAD_MARKER:
        return LOG_CORRUPT
    return LOG_NO_MEMORY


cdef inline bint has_producers(Log* log) noexcept nogil:
    """They are made when the first is wanted. False: no memory."""
    if log.producers == NULL:
        log.producers = producers_new()
    return log.producers != NULL


cdef int log_check_producer(Log* log, const Terms* terms, const uint8_t* batch,
                            const BatchInfo* info, ProducerBatch* before) noexcept nogil:
    if info.producer_id <= NO_PRODUCER_ID:
        return LOG_OK
    if not has_producers(log):
        return LOG_NO_MEMORY
    return log_code(producers_check(log.producers, terms, batch, info, before))


cdef int log_prepare_abort(Log* log, const uint8_t* batch, const BatchInfo* info) noexcept nogil:
    cdef int error
    if not info.control or log.producers == NULL \
            or not producers_aborts(log.producers, batch, info):
        return LOG_OK
    error = txn_index_reserve(log_active(log))
    return log_disk_error(log, error) if error else LOG_OK


cdef void log_apply_producer(Log* log, const uint8_t* batch, const BatchInfo* info,
                             int64_t base_offset) noexcept nogil:
    cdef EndedTxn ended
    cdef int error
    if info.producer_id <= NO_PRODUCER_ID:
        return
    producers_apply(log.producers, batch, info, base_offset, &ended)
    if ended.first_offset >= 0 and ended.aborted:
        error = txn_index_append(log_active(log), &ended)
        if error:
            log_offline(log, error)


cdef int log_verify(Log* log, int64_t producer_id, int16_t epoch, int32_t sequence, bint bumps,
                    int64_t now_ms, int64_t* guard) noexcept nogil:
    guard[0] = 0
    if not log_lock_soon(log):
        return LOG_HELD
    cdef int code = log_usable(log)
    if code == LOG_OK and not has_producers(log):
        code = LOG_NO_MEMORY
    if code == LOG_OK:
        code = log_code(producers_verify(log.producers, producer_id, epoch, sequence, bumps,
                                         now_ms, guard))
    pthread_mutex_unlock(&log.lock)
    return code


cdef inline Producer* find(Log* log, int64_t producer_id) noexcept nogil:
    if log.producers == NULL:
        return NULL
    return producers_find(log.producers, producer_id)


cdef bint log_needs_no_verifying(Log* log, int64_t producer_id, int16_t epoch) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    cdef Producer* p = find(log, producer_id)
    cdef bint settled = p != NULL and (
        epoch < p.epoch or (epoch == p.epoch and p.txn.first_offset >= 0))
    pthread_mutex_unlock(&log.lock)
    return settled


cdef int log_in_txn(Log* log, int64_t producer_id, int16_t epoch) noexcept nogil:
    if not log_lock_soon(log):
        return LOG_HELD
    cdef Producer* p = find(log, producer_id)
    cdef bint found = p != NULL and epoch == p.epoch and p.txn.first_offset >= 0
    pthread_mutex_unlock(&log.lock)
    return found
