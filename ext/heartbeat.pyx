"""Heartbeat (see heartbeat.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.atomics cimport atomic_load_i64
from kbroker.ext.broker cimport broker_of
from kbroker.ext.connection cimport H_CLOSE, H_CONTROL, H_DONE
from kbroker.ext.error_codes cimport NONE
from kbroker.ext.pulses cimport PulseKey, pulse_answers
from kbroker.ext.quotas cimport Hold, QUOTA_REQUEST, quota_answer
from kbroker.ext.response cimport reply_begin, reply_end
from kbroker.ext.rights cimport (
    RIGHT_GROUP_READ, RULING_ALLOWED, RULING_UNKNOWN, Rights, rights_find, rights_more, rights_of,
    rights_put, rights_unref,
)
from kbroker.ext.wire cimport (
    Cursor, Writer, cursor_init, get_compact_nullable_string, get_compact_string, get_i32,
    get_nullable_string, get_string, put_i16, put_i32, put_no_tags, skip_tags, writer_init,
)

cdef enum:
    THROTTLE_SINCE = 1
    INSTANCE_SINCE = 3
    FLEXIBLE_SINCE = 4
    ANSWER_BYTES = 7                # throttle time, error code, no tags


cdef int32_t read(Cursor* c, int32_t version, PulseKey* key) noexcept nogil:
    """Who it is; the generation."""
    cdef int32_t generation
    key.instance.p = NULL
    key.instance.n = -1
    if version >= FLEXIBLE_SINCE:
        key.group = get_compact_string(c)
        generation = get_i32(c)
        key.member = get_compact_string(c)
        key.instance = get_compact_nullable_string(c)
        skip_tags(c)
        return generation
    key.group = get_string(c)
    generation = get_i32(c)
    key.member = get_string(c)
    if version >= INSTANCE_SINCE:
        key.instance = get_nullable_string(c)
    return generation


cdef int32_t throttle(Request* request) noexcept nogil:
    request.throttle_ms = quota_answer(request.net, <Hold*> request.quota, QUOTA_REQUEST, 0,
                                       request.thread.now_ms)
    return <int32_t> request.throttle_ms


cdef int answer(Request* request) noexcept nogil:
    cdef uint8_t* body = reply_begin(&request.reply, ANSWER_BYTES)
    cdef Writer w
    if body == NULL:
        request.reason = "out of memory"
        return H_CLOSE
    writer_init(&w, body, ANSWER_BYTES)
    if request.api_version >= THROTTLE_SINCE:
        put_i32(&w, throttle(request))
    put_i16(&w, NONE)
    if request.api_version >= FLEXIBLE_SINCE:
        put_no_tags(&w)
    reply_end(&request.reply, <uint32_t>(w.p - body))
    return H_DONE


cdef bint may_beat(Request* request, const PulseKey* key) noexcept nogil:
    """Whether it is known that the client may read the group. The control thread, which answers
    where not, is asked to tell for the next time."""
    cdef int64_t version = atomic_load_i64(&broker_of(request.net).rights_version)
    cdef Rights* known
    cdef Rights* rights
    cdef int ruling
    if version == 0:
        return True
    known = rights_of(request, version)
    ruling = rights_find(known, RIGHT_GROUP_READ, key.group.p, key.group.n)
    if ruling == RULING_UNKNOWN:
        rights = rights_more(known, version)
        if rights != NULL and not rights_put(rights, RIGHT_GROUP_READ, key.group.p, key.group.n,
                                             RULING_UNKNOWN):
            rights_unref(rights)
            rights = NULL
        request.asked = rights
    return ruling == RULING_ALLOWED


cdef int handle_heartbeat(Request* request) noexcept nogil:
    cdef Cursor c
    cdef PulseKey key
    cdef int32_t generation
    cursor_init(&c, request.p, <size_t>(request.end - request.p))
    generation = read(&c, request.api_version, &key)
    if c.bad or not may_beat(request, &key) or not pulse_answers(
            broker_of(request.net).pulses, &key, generation, request.thread.now_ms):
        return H_CONTROL
    return answer(request)
