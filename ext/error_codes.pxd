"""Kafka's error codes as the data plane answers them, and what a log's answer means in them."""
from libc.stdint cimport int16_t

from kbroker.ext.log_state cimport (
    LOG_CLOSED,
    LOG_COORDINATOR_FENCED,
    LOG_CORRUPT,
    LOG_DUPLICATE,
    LOG_INVALID_PRODUCER_EPOCH,
    LOG_INVALID_TXN_STATE,
    LOG_OFFSET_OUT_OF_RANGE,
    LOG_OK,
    LOG_OUT_OF_ORDER_SEQUENCE,
    LOG_STORAGE_ERROR,
    LOG_TOO_LARGE,
)

cdef enum KafkaError:
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    INVALID_REQUIRED_ACKS = 21
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    INVALID_RECORD = 87
    UNKNOWN_TOPIC_ID = 100
    FETCH_SESSION_TOPIC_ID_ERROR = 106


cdef inline int16_t error_of_log(int code) noexcept nogil:
    """The Kafka error for a LogError."""
    if code == LOG_OK or code == LOG_DUPLICATE:
        return NONE
    if code == LOG_OUT_OF_ORDER_SEQUENCE:
        return OUT_OF_ORDER_SEQUENCE_NUMBER
    if code == LOG_INVALID_PRODUCER_EPOCH:
        return INVALID_PRODUCER_EPOCH
    if code == LOG_OFFSET_OUT_OF_RANGE:
        return OFFSET_OUT_OF_RANGE
    if code == LOG_STORAGE_ERROR or code == LOG_CORRUPT:
        return KAFKA_STORAGE_ERROR
    if code == LOG_TOO_LARGE:
        return RECORD_LIST_TOO_LARGE
    if code == LOG_INVALID_TXN_STATE:
        return INVALID_TXN_STATE
    if code == LOG_COORDINATOR_FENCED:
        return TRANSACTION_COORDINATOR_FENCED
    if code == LOG_CLOSED:
        return NOT_LEADER_OR_FOLLOWER
    return UNKNOWN_SERVER_ERROR
