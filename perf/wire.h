/* What the load generator and the floor server know of the protocol: big-endian numbers, a buffer
 * that grows, and where the fields of a record batch are.
 *
 * Request:  length i32 | key i16 | version i16 | correlation id i32 | client id string | body
 * Response: length i32 | correlation id i32 | body
 * Batch v2: base offset i64 | length i32 | leader epoch i32 | magic i8 | CRC u32 | attributes i16 |
 *           last offset delta i32 | two timestamps i64 | producer id i64 | its epoch i16 |
 *           base sequence i32 | records i32 | the records
 */
#ifndef PERF_WIRE_H
#define PERF_WIRE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_PRODUCE = 0, KEY_FETCH = 1, KEY_API_VERSIONS = 18 };
enum { PRODUCE_VERSION = 7, FETCH_VERSION = 11, API_VERSIONS_VERSION = 0 };

enum {
    BATCH_LENGTH = 8,
    BATCH_CRC = 17,
    BATCH_ATTRIBUTES = 21,
    BATCH_LAST_DELTA = 23,
    BATCH_COUNT = 57,
    BATCH_HEADER = 61,
    BATCH_PREFIX = 12, /* what the batch's length does not count */
};

static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static inline uint32_t get32(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t get64(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, 8);
    return __builtin_bswap64(value);
}

static inline uint8_t *put16(uint8_t *p, uint16_t value) {
    value = __builtin_bswap16(value);
    memcpy(p, &value, 2);
    return p + 2;
}

static inline uint8_t *put32(uint8_t *p, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(p, &value, 4);
    return p + 4;
}

static inline uint8_t *put64(uint8_t *p, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(p, &value, 8);
    return p + 8;
}

static inline uint8_t *put_string(uint8_t *p, const void *text, uint16_t size) {
    p = put16(p, size);
    memcpy(p, text, size);
    return p + size;
}

/* Ends the program: whoever reads a figure must not get half of one. */
static inline void die(const char *what) {
    perror(what);
    exit(1);
}

static inline void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        die("calloc");
    }
    return memory;
}

#endif
