// CRC-32C: which implementation this CPU runs. crc32c_init once, before anything else.
#ifndef KBROKER_CRC32C_H
#define KBROKER_CRC32C_H

#include "crc32c_math.h"
#if defined(__x86_64__)
#include "crc32c_x86.h"
#elif defined(__aarch64__)
#include "crc32c_arm.h"
#endif

typedef uint32_t (*crc32c_fn)(uint32_t raw, const uint8_t *p, size_t n);

struct crc32c_way {
    const char *name;
    crc32c_fn fn;
};

// The ways that this CPU can go, the quickest first; the table is always there. After
// crc32c_init the first is what crc32c_run calls.
static struct crc32c_way crc32c_ways[4];
static int crc32c_ways_count;

static void crc32c_add(const char *name, crc32c_fn fn) {
    crc32c_ways[crc32c_ways_count].name = name;
    crc32c_ways[crc32c_ways_count++].fn = fn;
}

static void crc32c_init(void) {
    crc32c_math_init();
    crc32c_ways_count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        crc32c_x86_init();
        if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq"))
            crc32c_add("avx512", crc32c_avx512);
        crc32c_add("sse42", crc32c_sse42);
    }
#elif defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_CRC32) {
        crc32c_armv8_init();
        crc32c_add("armv8", crc32c_armv8);
    }
#endif
    crc32c_add("table", crc32c_table);
}

static inline uint32_t crc32c_run(uint32_t raw, const uint8_t *p, size_t n) {
    return crc32c_ways[0].fn(raw, p, n);
}

#endif
