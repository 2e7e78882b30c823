// Unaligned loads and stores in a named byte order: one move, one byte swap where it differs.
#ifndef KBROKER_ENDIAN_IO_H
#define KBROKER_ENDIAN_IO_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define KBROKER_ENDIAN(order, bits)                                                             \
    static inline uint##bits##_t load_##order##bits(const void *at) {                           \
        uint##bits##_t value;                                                                   \
        memcpy(&value, at, sizeof value);                                                       \
        return order##bits##toh(value);                                                         \
    }                                                                                           \
    static inline void store_##order##bits(void *at, uint##bits##_t value) {                    \
        value = hto##order##bits(value);                                                        \
        memcpy(at, &value, sizeof value);                                                       \
    }

KBROKER_ENDIAN(be, 16)
KBROKER_ENDIAN(be, 32)
KBROKER_ENDIAN(be, 64)
KBROKER_ENDIAN(le, 16)
KBROKER_ENDIAN(le, 32)
KBROKER_ENDIAN(le, 64)

#endif
