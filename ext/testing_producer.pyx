"""What only tests see of the producer: its reading of Produce answers, the order of sequences."""
from libc.stdint cimport int16_t, int32_t
from libc.string cimport memcpy

from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.client_batch cimport batch_new, batch_unref
from kbroker.ext.client_outcome cimport precedes
from kbroker.ext.client_produce cimport (
    ProduceCall, produce_decode, produce_fault, produce_free, produce_new,
)
from kbroker.ext.client_topic cimport Topic, topic_free, topic_grow, topic_new
from kbroker.ext.wire cimport Slice


cdef object text_of(Slice s):
    return None if s.n < 0 else s.p[:s.n]


def read_produce_answer(version: int, topics: dict[str, tuple[bytes, int]], data: object):
    """The answer to a request for every partition of these topics, name -> (id, partitions): for
    each (code, base offset, append time, log start offset, [(index, text)], text, leader, epoch),
    or None where it is no answer to that."""
    cdef Borrowed view = Borrowed(data)
    cdef int32_t total = sum(count for _, count in topics.values())
    cdef ProduceCall* call = produce_new(total)
    cdef Topic* made[16]
    cdef int32_t count = 0
    cdef int32_t i
    for name, (topic_id, partitions) in topics.items():
        text = name.encode()
        made[count] = topic_new(text, len(text))
        topic_grow(made[count], partitions)
        memcpy(made[count].id, <const char*> topic_id, 16)
        for i in range(<int32_t> partitions):
            call.batches[call.count] = batch_new(NULL, NULL, 0, i, 0)
            call.batches[call.count].part = made[count].parts[i]
            call.count += 1
        count += 1
    call.call.api_version = <int16_t> version
    found = None
    if produce_decode(call, view.p, view.n):
        found = [answer_of(call, i) for i in range(call.count)]
    for i in range(call.count):
        batch_unref(call.batches[i])
    for i in range(count):
        topic_free(made[i])
    produce_free(call)
    return found


cdef tuple answer_of(ProduceCall* call, int32_t i):
    cdef bint flexible = call.call.api_version >= 9
    cdef int32_t index, _fault
    cdef Slice message
    faults = []
    p = call.answers[i].faults
    for _fault in range(call.answers[i].faults_count):
        p = produce_fault(p, flexible, &index, &message)
        faults.append((index, text_of(message)))
    return (
        call.answers[i].code, call.answers[i].base_offset, call.answers[i].append_time,
        call.answers[i].log_start, faults, text_of(call.answers[i].message),
        call.answers[i].leader, call.answers[i].leader_epoch,
    )


def sequence_precedes(sequence: int, other: int) -> bool:
    """Whether the one comes before the other."""
    return precedes(sequence, other)
