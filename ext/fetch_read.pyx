"""Reading for a fetch (see fetch_read.pxd)."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kbroker.ext.error_codes cimport (
    FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR, NONE, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    error_of_log,
)
from kbroker.ext.fetch_state cimport partition_drop_read
from kbroker.ext.fetch_wire cimport FetchPartition
from kbroker.ext.log_read cimport log_aborted, log_end_offset_for_epoch, log_read_soon
from kbroker.ext.log_state cimport (
    LOG_HELD, LOG_OK, READ_TO_HW, READ_TO_LSO, log_acknowledged, log_ref, log_watermarks,
)
from kbroker.ext.registry cimport Topic, registry_by_id, registry_by_name, topic_log


cdef void find_log(Fetch* fetch, FetchPartition* partition) noexcept nogil:
    """Sets partition.log, with a reference, or the error."""
    cdef Topic* topic
    if partition.target.name == NULL:
        topic = registry_by_id(&fetch.broker.registry, partition.target.id)
        if topic == NULL and not partition.target.known:
            # A session that has seen the topic knows it by name, as Kafka's does.
            partition.error = UNKNOWN_TOPIC_ID
            partition.aborted_count = 0
            return
    else:
        topic = registry_by_name(&fetch.broker.registry, partition.target.name,
                                 partition.target.name_length)
    if topic == NULL or partition.target.partition < 0 \
            or partition.target.partition >= topic.partitions_count:
        partition.error = UNKNOWN_TOPIC_OR_PARTITION
        partition.aborted_count = 0     # empty, where an error of the log has null
        return
    partition.log = topic_log(topic, partition.target.partition)
    if partition.log == NULL:
        partition.error = KAFKA_STORAGE_ERROR
    else:
        log_ref(partition.log)


cdef int16_t check_epoch(FetchPartition* partition) noexcept nogil:
    cdef int32_t told = partition.target.current_leader_epoch
    if told < 0 or told == partition.log.leader_epoch:
        return NONE
    return FENCED_LEADER_EPOCH if told < partition.log.leader_epoch else UNKNOWN_LEADER_EPOCH


cdef int16_t check_divergence(FetchPartition* partition) noexcept nogil:
    """KIP-595: does the client's last epoch end before the offset that it asks for?"""
    cdef int32_t epoch = -1
    cdef int64_t end_offset = -1
    cdef int code
    if partition.target.last_fetched_epoch < 0:
        return NONE
    code = log_end_offset_for_epoch(partition.log, partition.target.last_fetched_epoch, &epoch,
                                    &end_offset)
    if code == LOG_HELD:
        partition.held = True
        return NONE
    if code != LOG_OK or epoch < 0:
        return OFFSET_OUT_OF_RANGE
    if epoch < partition.target.last_fetched_epoch or end_offset < partition.target.offset:
        partition.diverging_epoch = epoch
        partition.diverging_end = end_offset
    return NONE


cdef void reset_result(FetchPartition* partition) noexcept nogil:
    partition_drop_read(partition)
    partition.error = NONE
    partition.held = False
    partition.high_watermark = partition.last_stable_offset = partition.log_start = -1
    partition.diverging_epoch = -1


cdef void read_log(FetchPartition* partition, int isolation, int32_t bytes_max,
                   bint min_one) noexcept nogil:
    cdef int code = log_read_soon(partition.log, partition.target.offset, bytes_max, isolation,
                                  min_one, &partition.slice)
    partition.held = code == LOG_HELD
    if not partition.held:
        partition.error = error_of_log(code)


cdef void read_partition(Fetch* fetch, FetchPartition* partition, int32_t bytes_max,
                         bint min_one) noexcept nogil:
    cdef int isolation = READ_TO_LSO if fetch.head.isolation == 1 else READ_TO_HW
    cdef int code
    reset_result(partition)
    if partition.denied:
        partition.error = TOPIC_AUTHORIZATION_FAILED
        partition.aborted_count = 0
    elif partition.log == NULL:
        find_log(fetch, partition)
    if partition.error == NONE and fetch.head.replica_id >= 0:
        partition.error = NOT_LEADER_OR_FOLLOWER
    if partition.error == NONE:
        partition.error = check_epoch(partition)
    if partition.error == NONE:
        partition.error = check_divergence(partition)
    if partition.error != NONE:
        return
    if partition.held:              # whether the client's log diverges is not known: it waits
        log_watermarks(partition.log, &partition.slice.at)
    else:
        read_log(partition, isolation, max(bytes_max, 0),
                 min_one and partition.diverging_epoch < 0)
    if partition.error != NONE:
        return
    if partition.diverging_epoch >= 0:
        partition_drop_read(partition)
    partition.high_watermark = partition.slice.at.hw
    partition.last_stable_offset = partition.slice.at.lso
    partition.log_start = partition.slice.at.log_start
    note_end(fetch, partition)
    if isolation == READ_TO_LSO and partition.diverging_epoch < 0:
        code = log_aborted(partition.log, partition.target.offset, &partition.slice,
                           &partition.aborted, <int*>&partition.aborted_count)
        if code == LOG_HELD:
            partition.held = True
            partition_drop_read(partition)
        else:
            partition.error = error_of_log(code)


cdef inline bint is_left_out(const FetchPartition* partition) noexcept nogil:
    """It is not there, or not for this client. As by Apache Kafka (KafkaApis.handleFetchRequest)
    such a partition takes no part in the wait of those that can be read."""
    return partition.log == NULL and (
        partition.error == UNKNOWN_TOPIC_OR_PARTITION or partition.error == UNKNOWN_TOPIC_ID
        or partition.error == TOPIC_AUTHORIZATION_FAILED)


cdef void note_end(Fetch* fetch, FetchPartition* partition) noexcept nogil:
    """What had been acknowledged when the request came, and whether all of that is durable."""
    if not fetch.evaluated:
        partition.acknowledged = log_acknowledged(partition.log)
    fetch.undurable |= partition.slice.at.leo > partition.slice.at.hw
    fetch.awaits |= partition.acknowledged > partition.slice.at.hw


cdef void fetch_evaluate(Fetch* fetch) noexcept nogil:
    cdef int64_t left = fetch.head.bytes_max
    cdef bint min_one = True
    cdef FetchPartition* partition
    cdef uint32_t left_out = 0
    cdef uint32_t i
    fetch.bytes = 0
    fetch.answer_now = fetch.undurable = fetch.awaits = fetch.held = False
    for i in range(fetch.count):
        partition = &fetch.partitions[i]
        read_partition(fetch, partition,
                       <int32_t>min(<int64_t>partition.target.bytes_max, left), min_one)
        if partition.slice.length > 0:
            min_one = False
            fetch.bytes += partition.slice.length
            left = max(left - partition.slice.length, <int64_t>0)
        fetch.held |= partition.held
        if is_left_out(partition):
            left_out += 1
        elif partition.error != NONE or partition.diverging_epoch >= 0:
            fetch.answer_now = True
    fetch.answer_now |= left_out == fetch.count
    fetch.evaluated = True
