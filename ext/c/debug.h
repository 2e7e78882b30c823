// Assertions of the debug build: an impossible state ends the process where it is seen. Live objects
// are counted there, and in what `make test` builds.
#ifndef KBROKER_DEBUG_H
#define KBROKER_DEBUG_H

#include <stdio.h>
#include <stdlib.h>

#ifdef KBROKER_DEBUG
#define KBROKER_DEBUG_BUILD 1
#else
#define KBROKER_DEBUG_BUILD 0
#endif

#if defined(KBROKER_DEBUG) || defined(KBROKER_COUNT)
#define KBROKER_COUNTS_OBJECTS 1
#else
#define KBROKER_COUNTS_OBJECTS 0
#endif

static inline void debug_assert(int holds, const char *what) {
    if (KBROKER_DEBUG_BUILD && !holds) {
        fprintf(stderr, "kbroker: assertion failed: %s\n", what);
        abort();
    }
}

#endif
