"""ApiVersions (see api_versions.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kbroker.ext.atomics cimport atomic_exchange_ptr, atomic_load_ptr
from kbroker.ext.connection cimport API_VERSIONS_KEY, API_VERSIONS_MAX, Api, H_CLOSE, H_DONE
from kbroker.ext.endian cimport store_be16, store_be32
from kbroker.ext.quotas cimport Hold, QUOTA_REQUEST, quota_answer
from kbroker.ext.response cimport reply_begin, reply_end
from kbroker.ext.software cimport Software, software_read

cdef enum:
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    THROTTLE_SINCE = 1
    SOFTWARE_SINCE = 3              # version that brought the client's software name
    API_BYTES = 7                   # key, two versions, no tags

# The body of an answer, pushed by the control plane.
cdef struct ApiVersionsBody:
    uint8_t* bytes
    uint32_t length
    ApiVersionsBody* next_retired


cdef uint32_t throttle_at(int32_t version, const uint8_t* body, uint32_t length) noexcept nogil:
    """Where an answer without an error tells the throttle time: behind the APIs; 0: nowhere."""
    cdef uint32_t at = 2            # the error code, then the APIs
    cdef uint32_t count = 0
    cdef uint32_t shift = 0
    if version < THROTTLE_SINCE:
        return 0
    if version < SOFTWARE_SINCE:    # no compact array, nothing behind it
        return length - 4
    while at < length and body[at] & 0x80:
        count |= <uint32_t> (body[at] & 0x7f) << shift
        shift += 7
        at += 1
    count |= <uint32_t> body[at] << shift
    return at + 1 + (count - 1) * API_BYTES


cdef void tell_throttle(Request* request, uint8_t* body, uint32_t length) noexcept nogil:
    cdef uint32_t at = throttle_at(request.api_version, body, length)
    request.throttle_ms = quota_answer(request.net, <Hold*> request.quota, QUOTA_REQUEST, 0,
                                       request.thread.now_ms)
    if at != 0:
        store_be32(body + at, <uint32_t> request.throttle_ms)


cdef int answer(Request* request, const uint8_t* body, uint32_t length) noexcept nogil:
    cdef uint8_t* at = reply_begin(&request.reply, length)
    if at == NULL:
        request.reason = "out of memory"
        return H_CLOSE
    memcpy(at, body, length)
    reply_end(&request.reply, length)
    return H_DONE


cdef int answer_served(Request* request, const ApiVersionsBody* body) noexcept nogil:
    cdef uint8_t* at = reply_begin(&request.reply, body.length)
    if at == NULL:
        request.reason = "out of memory"
        return H_CLOSE
    memcpy(at, body.bytes, body.length)
    if request.quota != NULL:
        tell_throttle(request, at, body.length)
    reply_end(&request.reply, body.length)
    return H_DONE


cdef int answer_unsupported(Request* request) noexcept nogil:
    """Version 0: error code, one key with its range."""
    cdef uint8_t body[12]
    cdef Api* api = &request.net.apis[API_VERSIONS_KEY]
    store_be16(body, UNSUPPORTED_VERSION)
    store_be32(body + 2, 1)
    store_be16(body + 6, API_VERSIONS_KEY)
    store_be16(body + 8, <uint16_t> api.min_version)
    store_be16(body + 10, <uint16_t> api.max_version)
    return answer(request, body, sizeof(body))


cdef int answer_invalid(Request* request) noexcept nogil:
    """Error code, empty compact array of keys, throttle time, no tagged fields."""
    cdef uint8_t body[8]
    store_be16(body, INVALID_REQUEST)
    body[2] = 1
    store_be32(body + 3, 0)
    body[7] = 0
    return answer(request, body, sizeof(body))


cdef int api_versions_handle(Request* request) noexcept nogil:
    """A request without a name and a version, an older one or one of the future, says as well that
    they are not known."""
    cdef int32_t version = request.api_version
    cdef ApiVersionsBody* body = NULL
    cdef Software* software = NULL
    if 0 <= version < API_VERSIONS_MAX:
        body = <ApiVersionsBody*> atomic_load_ptr(&request.net.api_versions[version])
    if body != NULL and version >= SOFTWARE_SINCE \
            and not software_read(request.p, request.end, &software):
        return answer_invalid(request)
    free(request.connection.software)
    request.connection.software = software
    if body == NULL:
        return answer_unsupported(request)
    return answer_served(request, body)


cdef int api_versions_put(Net* net, int32_t version, const uint8_t* body,
                          uint32_t length) noexcept nogil:
    cdef ApiVersionsBody* entry
    cdef ApiVersionsBody* old
    if version < 0 or version >= API_VERSIONS_MAX:
        return -1
    entry = <ApiVersionsBody*> malloc(sizeof(ApiVersionsBody) + <size_t> length)
    if entry == NULL:
        return -1
    entry.bytes = <uint8_t*> entry + sizeof(ApiVersionsBody)
    entry.length = length
    entry.next_retired = NULL
    memcpy(entry.bytes, body, length)
    old = <ApiVersionsBody*> atomic_exchange_ptr(&net.api_versions[version], entry)
    if old != NULL:
        old.next_retired = <ApiVersionsBody*> net.retired
        net.retired = old
    return 0


cdef void api_versions_reclaim(Net* net) noexcept nogil:
    cdef ApiVersionsBody* old
    while net.retired != NULL:
        old = <ApiVersionsBody*> net.retired
        net.retired = old.next_retired
        free(old)


cdef void api_versions_destroy(Net* net) noexcept nogil:
    cdef int version
    for version in range(API_VERSIONS_MAX):
        free(net.api_versions[version])
        net.api_versions[version] = NULL
    api_versions_reclaim(net)
