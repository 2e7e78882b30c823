/* The one record batch that a run produces over and over. */
#ifndef PERF_BATCH_H
#define PERF_BATCH_H

#include <time.h>

#include "crc32c.h"
#include "wire.h"

static inline uint8_t *put_varint(uint8_t *p, int64_t value) {
    uint64_t zigzag = (uint64_t)(value << 1) ^ (uint64_t)(value >> 63);
    for (; zigzag >= 0x80; zigzag >>= 7) {
        *p++ = (uint8_t)(zigzag | 0x80);
    }
    *p++ = (uint8_t)zigzag;
    return p;
}

static inline uint8_t *put_record(uint8_t *p, int index, int size) {
    uint8_t head[32], *h = head;
    *h++ = 0;                   /* attributes */
    h = put_varint(h, 0);       /* timestamp delta */
    h = put_varint(h, index);   /* offset delta */
    h = put_varint(h, -1);      /* no key */
    h = put_varint(h, size);
    p = put_varint(p, (h - head) + size + 1);
    memcpy(p, head, (size_t)(h - head));
    p += h - head;
    for (int i = 0; i < size; i++) {
        *p++ = (uint8_t)('a' + (i + index) % 26);
    }
    *p++ = 0; /* no headers */
    return p;
}

/* One uncompressed batch of `records` records without key, `record_bytes` of value in each. */
static inline uint8_t *build_batch(int records, int record_bytes, size_t *size) {
    uint64_t timestamp_ms = (uint64_t)time(NULL) * 1000;
    size_t room = BATCH_HEADER + (size_t)records * (size_t)(record_bytes + 32);
    uint8_t *batch = allocate(1, room);
    uint8_t *p = batch + BATCH_ATTRIBUTES;
    p = put16(p, 0);
    p = put32(p, (uint32_t)records - 1);
    p = put64(put64(p, timestamp_ms), timestamp_ms);
    p = put64(p, (uint64_t)-1); /* no producer id, epoch or sequence */
    p = put16(p, (uint16_t)-1);
    p = put32(p, (uint32_t)-1);
    p = put32(p, (uint32_t)records);
    for (int i = 0; i < records; i++) {
        p = put_record(p, i, record_bytes);
    }
    *size = (size_t)(p - batch);
    put64(batch, 0);
    put32(batch + BATCH_LENGTH, (uint32_t)(*size - BATCH_PREFIX));
    put32(batch + 12, (uint32_t)-1);
    batch[16] = 2; /* magic */
    put32(batch + BATCH_CRC, crc32c(batch + BATCH_ATTRIBUTES, *size - BATCH_ATTRIBUTES));
    return batch;
}

#endif
