// CRC-32C by the instructions of x86-64: SSE4.2 in three streams, AVX-512 by folding.
//
// `crc32` takes 3 cycles and can start every cycle, so one stream alone waits for itself: three
// streams over neighbouring blocks run at once and are joined by a carry-less multiplication
// with x^(bits to move) mod P.
//
// Folding (Gopal and others, "Fast CRC computation using PCLMULQDQ", Intel 2009): a 128-bit
// part H:L of the message that stands T bits before the next one is replaced by
// H * (x^(T+64) mod P) + L * (x^T mod P), which has the same remainder, and is added there.
// A reflected 64 x 64 bit product comes out one bit short, hence every exponent less one.
#ifndef KBROKER_CRC32C_X86_H
#define KBROKER_CRC32C_X86_H

#include <immintrin.h>

// GCC 12 takes the undefined operands inside its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "crc32c_math.h"

#define CRC32C_LONG 2048   // bytes of one of three streams
#define CRC32C_SHORT 256
#define CRC32C_FOLD_MIN 512  // fewer bytes: three short streams are as quick as folding

struct crc32c_x86 {
    uint32_t long1, long2;    // move a remainder over one and over two long streams
    uint32_t short1, short2;
    uint64_t fold[6][2];      // fold over 128 << i bits: {what L is multiplied by, H}
};
static struct crc32c_x86 crc32c_x86;

static void crc32c_x86_init(void) {
    // The product is one bit short, and `crc32` itself multiplies by x^32.
    crc32c_x86.long1 = crc32c_power(8 * CRC32C_LONG - 33);
    crc32c_x86.long2 = crc32c_power(16 * CRC32C_LONG - 33);
    crc32c_x86.short1 = crc32c_power(8 * CRC32C_SHORT - 33);
    crc32c_x86.short2 = crc32c_power(16 * CRC32C_SHORT - 33);
    for (int i = 0; i < 6; i++) {
        crc32c_x86.fold[i][0] = (uint64_t)crc32c_power((128 << i) + 63) << 32;
        crc32c_x86.fold[i][1] = (uint64_t)crc32c_power((128 << i) - 1) << 32;
    }
}

#define CRC32C_SSE42 __attribute__((target("sse4.2,pclmul")))
#define CRC32C_AVX512 \
    __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,avx512bw,avx512dq,vpclmulqdq")))

static inline uint64_t crc32c_load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

CRC32C_SSE42 static inline uint64_t crc32c_move(uint64_t raw, uint32_t power) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)raw),
                                           _mm_cvtsi64_si128((int64_t)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

CRC32C_SSE42 static inline uint64_t crc32c_streams(uint64_t raw, const uint8_t *p, size_t stream,
                                                   uint32_t move1, uint32_t move2) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < stream; i += 8) {
        raw = _mm_crc32_u64(raw, crc32c_load64(p + i));
        second = _mm_crc32_u64(second, crc32c_load64(p + stream + i));
        third = _mm_crc32_u64(third, crc32c_load64(p + 2 * stream + i));
    }
    return crc32c_move(raw, move2) ^ crc32c_move(second, move1) ^ third;
}

CRC32C_SSE42 static uint32_t crc32c_sse42(uint32_t raw32, const uint8_t *p, size_t n) {
    uint64_t raw = raw32;
    for (; n >= 3 * CRC32C_LONG; p += 3 * CRC32C_LONG, n -= 3 * CRC32C_LONG)
        raw = crc32c_streams(raw, p, CRC32C_LONG, crc32c_x86.long1, crc32c_x86.long2);
    for (; n >= 3 * CRC32C_SHORT; p += 3 * CRC32C_SHORT, n -= 3 * CRC32C_SHORT)
        raw = crc32c_streams(raw, p, CRC32C_SHORT, crc32c_x86.short1, crc32c_x86.short2);
    for (; n >= 8; p += 8, n -= 8) raw = _mm_crc32_u64(raw, crc32c_load64(p));
    for (; n; p++, n--) raw = _mm_crc32_u8((uint32_t)raw, *p);
    return (uint32_t)raw;
}

CRC32C_AVX512 static inline __m512i crc32c_fold512(__m512i part, __m512i by, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(part, by, 0x00),
                                     _mm512_clmulepi64_epi128(part, by, 0x11), next, 0x96);
}

// The multipliers that move a part over 128 << i bits.
CRC32C_AVX512 static inline __m512i crc32c_fold_by(int i) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x((int64_t)crc32c_x86.fold[i][1],
                                                 (int64_t)crc32c_x86.fold[i][0]));
}

// The four 128-bit parts of a register, as one remainder.
CRC32C_AVX512 static inline uint32_t crc32c_reduce(__m512i part) {
    __m128i by = _mm512_castsi512_si128(crc32c_fold_by(0));
    __m128i sum = _mm512_castsi512_si128(part);
    __m128i parts[3] = {_mm512_extracti64x2_epi64(part, 1), _mm512_extracti64x2_epi64(part, 2),
                        _mm512_extracti64x2_epi64(part, 3)};
    for (int i = 0; i < 3; i++)
        sum = _mm_xor_si128(parts[i], _mm_xor_si128(_mm_clmulepi64_si128(sum, by, 0x00),
                                                    _mm_clmulepi64_si128(sum, by, 0x11)));
    uint64_t raw = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum));
    return (uint32_t)_mm_crc32_u64(raw, (uint64_t)_mm_extract_epi64(sum, 1));
}

CRC32C_AVX512 static uint32_t crc32c_avx512(uint32_t raw, const uint8_t *p, size_t n) {
    if (n < CRC32C_FOLD_MIN) return crc32c_sse42(raw, p, n);
    const __m512i by4096 = crc32c_fold_by(5), by512 = crc32c_fold_by(2);
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
    __m512i c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
    __m512i e = _mm512_loadu_si512(p + 256), f = _mm512_loadu_si512(p + 320);
    __m512i g = _mm512_loadu_si512(p + 384), h = _mm512_loadu_si512(p + 448);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)raw)));
    for (p += 512, n -= 512; n >= 512; p += 512, n -= 512) {
        a = crc32c_fold512(a, by4096, _mm512_loadu_si512(p));
        b = crc32c_fold512(b, by4096, _mm512_loadu_si512(p + 64));
        c = crc32c_fold512(c, by4096, _mm512_loadu_si512(p + 128));
        d = crc32c_fold512(d, by4096, _mm512_loadu_si512(p + 192));
        e = crc32c_fold512(e, by4096, _mm512_loadu_si512(p + 256));
        f = crc32c_fold512(f, by4096, _mm512_loadu_si512(p + 320));
        g = crc32c_fold512(g, by4096, _mm512_loadu_si512(p + 384));
        h = crc32c_fold512(h, by4096, _mm512_loadu_si512(p + 448));
    }
    const __m512i by2048 = crc32c_fold_by(4), by1024 = crc32c_fold_by(3);
    e = crc32c_fold512(a, by2048, e);
    f = crc32c_fold512(b, by2048, f);
    g = crc32c_fold512(c, by2048, g);
    h = crc32c_fold512(d, by2048, h);
    h = crc32c_fold512(f, by1024, h);
    h = crc32c_fold512(crc32c_fold512(e, by1024, g), by512, h);
    for (; n >= 64; p += 64, n -= 64) h = crc32c_fold512(h, by512, _mm512_loadu_si512(p));
    raw = crc32c_reduce(h);
    // What runs next is not VEX-encoded: with the upper halves in use it would crawl.
    _mm256_zeroupper();
    return crc32c_sse42(raw, p, n);
}

#endif
