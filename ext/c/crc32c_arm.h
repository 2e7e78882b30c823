// CRC-32C by the instructions of ARMv8-A: three streams, joined by table arithmetic.
#ifndef KBROKER_CRC32C_ARM_H
#define KBROKER_CRC32C_ARM_H

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "crc32c_math.h"

// Bytes of one of three streams. Joining them costs two multiplications of 32 steps each, so
// the streams are long.
#define CRC32C_STREAM 4096

static uint32_t crc32c_over1, crc32c_over2;  // move a remainder over one and two streams

#pragma GCC push_options
#pragma GCC target("+crc")

static inline uint64_t crc32c_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t crc32c_armv8(uint32_t raw, const uint8_t *p, size_t n) {
    for (; n >= 3 * CRC32C_STREAM; p += 3 * CRC32C_STREAM, n -= 3 * CRC32C_STREAM) {
        uint32_t second = 0, third = 0;
        for (size_t i = 0; i < CRC32C_STREAM; i += 8) {
            raw = __crc32cd(raw, crc32c_load64(p + i));
            second = __crc32cd(second, crc32c_load64(p + CRC32C_STREAM + i));
            third = __crc32cd(third, crc32c_load64(p + 2 * CRC32C_STREAM + i));
        }
        raw = crc32c_multiply(crc32c_over2, raw) ^ crc32c_multiply(crc32c_over1, second) ^ third;
    }
    for (; n >= 8; p += 8, n -= 8) raw = __crc32cd(raw, crc32c_load64(p));
    for (; n; p++, n--) raw = __crc32cb(raw, *p);
    return raw;
}

#pragma GCC pop_options

static void crc32c_armv8_init(void) {
    crc32c_over1 = crc32c_power(8 * CRC32C_STREAM);
    crc32c_over2 = crc32c_power(16 * CRC32C_STREAM);
}

#endif
