"""The batches of an answer that is on its way (see client_fetch_scan.pxd)."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.batch cimport BATCH_OK, BATCH_SHORT, BatchInfo, batch_crc_ok, batch_parse
from kbroker.ext.client_fetch_wire cimport (
    FetchHead, FetchPart, get_head, get_part_front, get_topic,
)
from kbroker.ext.wire cimport Cursor, Slice, cursor_init, skip, skip_tags

cdef enum:
    FLEXIBLE = 12
    CORRELATION_BYTES = 4


cdef bint begin(Scan* scan, const uint8_t* frame, uint64_t have, int16_t version) noexcept nogil:
    """False: the answer's head is not there yet."""
    cdef FetchHead head
    cdef Cursor c
    cursor_init(&c, frame, have)
    skip(&c, CORRELATION_BYTES)
    if version >= FLEXIBLE:
        skip_tags(&c)
    get_head(&c, version, &head)
    if c.bad:
        return False
    scan.begun = True
    scan.topics = head.topics
    scan.p = c.p
    return True


cdef bint step(Scan* scan, const uint8_t* end, int16_t version) noexcept nogil:
    """One item on: a topic's head, a partition's up to its records, or the tags behind them. False:
    it is not there yet, or that was the last."""
    cdef const uint8_t* topic_id
    cdef int32_t partitions = 0
    cdef FetchPart part
    cdef Slice name
    cdef Cursor c
    cdef int64_t n = 0
    cursor_init(&c, scan.p, end - scan.p)
    scan.over = scan.records_end == NULL and not scan.in_topic and scan.topics <= 0
    if scan.over:
        return False
    if scan.records_end != NULL or scan.in_topic and scan.partitions <= 0:
        if version >= FLEXIBLE:
            skip_tags(&c)
    elif scan.in_topic:
        n = get_part_front(&c, version, &part)
    else:
        get_topic(&c, version, &name, &topic_id, &partitions)
    if c.bad:
        return False
    scan.p = c.p
    if scan.records_end != NULL:
        scan.records_end = NULL
        scan.partitions -= 1
    elif scan.in_topic and scan.partitions > 0:
        scan.records_end = c.p + max(n, <int64_t> 0)
    elif scan.in_topic:
        scan.in_topic = False
    else:
        scan.in_topic = True
        scan.partitions = partitions
        scan.topics -= 1
    return True


cdef void scan_more(
    Scan* scan, const uint8_t* frame, uint64_t have, int16_t version
) noexcept nogil:
    cdef const uint8_t* end = frame + have
    cdef BatchInfo info
    cdef int code
    if scan.over or not scan.begun and not begin(scan, frame, have, version):
        return
    while True:
        if scan.records_end == NULL or scan.p == scan.records_end:
            if not step(scan, end, version):
                return
            continue
        code = batch_parse(scan.p, min(end, scan.records_end), &info)
        if code == BATCH_SHORT:
            if end < scan.records_end:
                return
            scan.p = scan.records_end   # a broker cuts its last batch where the answer is full
        elif code == BATCH_OK and batch_crc_ok(scan.p, &info):
            scan.p += info.length
            scan.sound = scan.p
        else:
            scan.over = True
            return
