/* CRC-32C by the processor's own instruction: SSE4.2 on x86-64, the CRC extension on aarch64.
 *
 * One stream, eight bytes an instruction: the least code that is fast. The broker has a faster one.
 */
#ifndef PERF_CRC32C_H
#define PERF_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define CRC_STEP_8(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#define CRC_STEP_1(crc, byte) _mm_crc32_u8(crc, byte)
#elif defined(__aarch64__)
#include <arm_acle.h>
#define CRC_STEP_8(crc, word) __crc32cd(crc, word)
#define CRC_STEP_1(crc, byte) __crc32cb(crc, byte)
#else
#error "x86-64 or aarch64"
#endif

static inline uint32_t crc32c(const uint8_t *bytes, size_t size) {
    uint32_t crc = 0xffffffff;
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        crc = CRC_STEP_8(crc, word);
    }
    while (size--) {
        crc = CRC_STEP_1(crc, *bytes++);
    }
    return ~crc;
}

#endif
