// Bit scans over the compiler's builtins; value is never 0.
#ifndef KBROKER_BITS_H
#define KBROKER_BITS_H

#include <stdint.h>

static inline int highest_bit(uint64_t value) { return 63 - __builtin_clzll(value); }
static inline int lowest_bit(uint64_t value) { return __builtin_ctzll(value); }

#endif
