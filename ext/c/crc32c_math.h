// CRC-32C (Castagnoli): the polynomial's arithmetic and the table, in plain C.
//
// Everything is in the reflected form that the CPUs' instructions use: bit 31 of a 32-bit
// remainder is x^0, bit 0 is x^31. "raw" is the remainder without the two inversions: a
// checksum is ~raw(~0, message).
#ifndef KBROKER_CRC32C_MATH_H
#define KBROKER_CRC32C_MATH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLY 0x82f63b78u

static uint32_t crc32c_slices[8][256];  // [k][b]: byte b followed by k zero bytes
static uint32_t crc32c_squares[64];     // x^(2^k) mod P

// a * b mod P.
static uint32_t crc32c_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        product ^= b & (0u - (a >> bit & 1));
        b = b >> 1 ^ (CRC32C_POLY & (0u - (b & 1)));
    }
    return product;
}

// x^n mod P.
static uint32_t crc32c_power(uint64_t n) {
    uint32_t power = 1u << 31;  // x^0
    for (int k = 0; n; k++, n >>= 1)
        if (n & 1) power = crc32c_multiply(crc32c_squares[k], power);
    return power;
}

// Remainder of a message after n more zero bytes.
static uint32_t crc32c_shift(uint32_t raw, size_t n) {
    return raw ? crc32c_multiply(crc32c_power((uint64_t)n * 8), raw) : 0;
}

static void crc32c_math_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t raw = byte;
        for (int bit = 0; bit < 8; bit++) raw = raw >> 1 ^ (CRC32C_POLY & (0u - (raw & 1)));
        crc32c_slices[0][byte] = raw;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc32c_slices[k - 1][byte];
            crc32c_slices[k][byte] = before >> 8 ^ crc32c_slices[0][before & 0xff];
        }
    crc32c_squares[0] = 1u << 30;  // x^1
    for (int k = 1; k < 64; k++)
        crc32c_squares[k] = crc32c_multiply(crc32c_squares[k - 1], crc32c_squares[k - 1]);
}

// Eight bytes a step through eight tables: what runs where the CPU has no instruction for it.
static uint32_t crc32c_table(uint32_t raw, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        raw ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        raw = crc32c_slices[7][raw & 0xff] ^ crc32c_slices[6][raw >> 8 & 0xff] ^
              crc32c_slices[5][raw >> 16 & 0xff] ^ crc32c_slices[4][raw >> 24] ^
              crc32c_slices[3][p[4]] ^ crc32c_slices[2][p[5]] ^ crc32c_slices[1][p[6]] ^
              crc32c_slices[0][p[7]];
    }
    for (; n; p++, n--) raw = raw >> 8 ^ crc32c_slices[0][(raw ^ *p) & 0xff];
    return raw;
}

#endif
