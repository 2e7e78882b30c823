/*
 * Delayed disk calls, by LD_PRELOAD.
 *
 * Calls on files below the directories KBROKER_TEST_DELAY_ROOTS (absolute paths, separated by
 * colons) are counted and delayed as the file KBROKER_TEST_DELAY (64-bit words, mapped) says. The
 * words may change at any time:
 *
 *   0  kinds of calls that are delayed, one bit each; 0 ends all delays, those under way too
 *   1  roots whose calls are delayed, one bit each in the order of the variable
 *   2  the seed
 *   3  how many of a thousand calls are delayed
 *   4  the shortest delay in microseconds
 *   5  the longest delay in microseconds
 *   6  out: how many calls are delayed at this moment
 *   7  out: how many calls have been delayed
 *   8  out: microseconds of all finished delays
 *   9  out: calls of each kind so far, delayed or not (KINDS words)
 *
 * Whether a call is delayed, for how long, and whether before or after its effect, depends on the
 * seed, the kind, the path below the root, and the number of such calls before. Which thread makes
 * the call does not matter. Short delays are more frequent than long ones. Calls that the C library
 * makes inside (mkstemp, realpath) and stores through mmap are not seen.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* SIZE: fallocate and truncate. */
enum { MKDIR, OPEN, SIZE, RENAME, WRITE, SYNC, UNLINK, KINDS };
enum { DELAYED, ROOTS, SEED, CHANCE, SHORTEST, LONGEST, UNDER_WAY, COUNT, TOTAL, CALLS };
enum { ROOTS_MAX = 8, SLOTS = 1 << 16, POLL_US = 2000 };

static volatile int64_t *word;
static char root[ROOTS_MAX][PATH_MAX];
static int roots;
/* Calls so far by hash of kind and path. */
static uint32_t calls[SLOTS];

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KBROKER_TEST_DELAY"), *list = getenv("KBROKER_TEST_DELAY_ROOTS");
    if (!path || !list) return;
    while (*list && roots < ROOTS_MAX) {
        size_t size = strcspn(list, ":");
        snprintf(root[roots++], PATH_MAX, "%.*s", (int)size, list);
        list += size + (list[size] == ':');
    }
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    int fd = real(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *memory = mmap(NULL, 8 * (CALLS + KINDS), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) word = memory;
}

static void add(int index, int64_t n) { __atomic_add_fetch(&word[index], n, __ATOMIC_RELAXED); }

static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Index of the root that `path` is below, or -1. */
static int root_of(const char *path) {
    for (int at = 0; at < roots; at++) {
        size_t size = strlen(root[at]);
        if (!strncmp(path, root[at], size) && (path[size] == '/' || !path[size])) return at;
    }
    return -1;
}

/* Hash of a path without its runs of 32 hexadecimal digits: those are random UUIDs. */
static uint64_t hash_of(const char *path) {
    uint64_t hash = 1469598103934665603u;
    while (*path) {
        if (strspn(path, "0123456789abcdef") >= 32) path += 32;
        else hash = (hash ^ (unsigned char)*path++) * 1099511628211u;
    }
    return hash;
}

/* Path of an open file (`name` NULL), or of `name` in the open directory `at`; 0 for none. */
static int resolve(int at, const char *name, char *into) {
    char link[64];
    if (name && (name[0] == '/' || at == AT_FDCWD)) {
        if (name[0] != '/') return 0;
        return snprintf(into, PATH_MAX, "%s", name) < PATH_MAX;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t n = readlink(link, into, PATH_MAX - 1);
    if (n <= 0 || into[0] != '/') return 0;
    into[n] = 0;
    if (name) snprintf(into + n, PATH_MAX - n, "/%s", name);
    return 1;
}

/* Microseconds to wait before the call, or, negative, after it. */
static int64_t delay_of(int kind, int at, const char *name) {
    char path[PATH_MAX];
    int saved = errno, found = -1;
    if (word && resolve(at, name, path)) found = root_of(path);
    errno = saved;
    if (found < 0) return 0;
    add(CALLS + kind, 1);
    uint64_t place = mixed(hash_of(path + strlen(root[found])) + kind * 31u + found);
    uint32_t number = __atomic_fetch_add(&calls[place % SLOTS], 1, __ATOMIC_RELAXED);
    if (!(word[DELAYED] >> kind & 1) || !(word[ROOTS] >> found & 1)) return 0;
    uint64_t draw = mixed(mixed(place ^ (uint64_t)word[SEED]) + number);
    if ((int64_t)(draw % 1000) >= word[CHANCE]) return 0;
    double part = (double)(mixed(draw) >> 11) / (double)(1ull << 53);
    int64_t us = word[SHORTEST] + (int64_t)((word[LONGEST] - word[SHORTEST]) * part * part);
    return draw >> 63 ? -us : us;
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

static void wait_for(int64_t us) {
    if (us <= 0) return;
    int saved = errno;
    int64_t begun = now_us(), left;
    add(UNDER_WAY, 1);
    add(COUNT, 1);
    while (word[DELAYED] && (left = begun + us - now_us()) > 0) {
        struct timespec pause = {0, 1000 * (left < POLL_US ? left : POLL_US)};
        nanosleep(&pause, NULL);
    }
    add(TOTAL, now_us() - begun);
    add(UNDER_WAY, -1);
    errno = saved;
}

#define CALL(result, name, kind, at, path, arguments, call) \
    result name arguments { \
        static result (*real) arguments; \
        if (!real) real = (result (*) arguments)dlsym(RTLD_NEXT, #name); \
        int64_t us = delay_of(kind, at, path); \
        wait_for(us); \
        result value = real call; \
        wait_for(-us); \
        return value; \
    }

CALL(int, mkdir, MKDIR, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
CALL(int, mkdirat, MKDIR, at, path, (int at, const char *path, mode_t mode), (at, path, mode))

CALL(ssize_t, write, WRITE, fd, NULL, (int fd, const void *p, size_t n), (fd, p, n))
CALL(ssize_t, writev, WRITE, fd, NULL, (int fd, const struct iovec *v, int n), (fd, v, n))
CALL(ssize_t, pwrite, WRITE, fd, NULL, (int fd, const void *p, size_t n, off_t to), (fd, p, n, to))
CALL(ssize_t, pwrite64, WRITE, fd, NULL, (int fd, const void *p, size_t n, off_t to), (fd, p, n, to))
#define VECTOR (int fd, const struct iovec *v, int n, off_t to)
#define FLAGGED (int fd, const struct iovec *v, int n, off_t to, int flags)
CALL(ssize_t, pwritev, WRITE, fd, NULL, VECTOR, (fd, v, n, to))
CALL(ssize_t, pwritev64, WRITE, fd, NULL, VECTOR, (fd, v, n, to))
CALL(ssize_t, pwritev2, WRITE, fd, NULL, FLAGGED, (fd, v, n, to, flags))
CALL(ssize_t, pwritev64v2, WRITE, fd, NULL, FLAGGED, (fd, v, n, to, flags))

CALL(int, fsync, SYNC, fd, NULL, (int fd), (fd))
CALL(int, fdatasync, SYNC, fd, NULL, (int fd), (fd))
CALL(int, syncfs, SYNC, fd, NULL, (int fd), (fd))
#define RANGE (int fd, off64_t from, off64_t n, unsigned flags)
CALL(int, sync_file_range, SYNC, fd, NULL, RANGE, (fd, from, n, flags))

CALL(int, fallocate, SIZE, fd, NULL, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
CALL(int, fallocate64, SIZE, fd, NULL, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n))
CALL(int, posix_fallocate, SIZE, fd, NULL, (int fd, off_t at, off_t n), (fd, at, n))
CALL(int, posix_fallocate64, SIZE, fd, NULL, (int fd, off64_t at, off64_t n), (fd, at, n))
CALL(int, ftruncate, SIZE, fd, NULL, (int fd, off_t n), (fd, n))
CALL(int, ftruncate64, SIZE, fd, NULL, (int fd, off64_t n), (fd, n))
CALL(int, truncate, SIZE, AT_FDCWD, path, (const char *path, off_t n), (path, n))
CALL(int, truncate64, SIZE, AT_FDCWD, path, (const char *path, off64_t n), (path, n))

CALL(int, rename, RENAME, AT_FDCWD, old, (const char *old, const char *new), (old, new))
CALL(int, renameat, RENAME, at, old, (int at, const char *old, int to, const char *new),
     (at, old, to, new))
CALL(int, renameat2, RENAME, at, old,
     (int at, const char *old, int to, const char *new, unsigned flags), (at, old, to, new, flags))
CALL(int, link, RENAME, AT_FDCWD, old, (const char *old, const char *new), (old, new))

CALL(int, unlink, UNLINK, AT_FDCWD, path, (const char *path), (path))
CALL(int, unlinkat, UNLINK, at, path, (int at, const char *path, int flags), (at, path, flags))
CALL(int, rmdir, UNLINK, AT_FDCWD, path, (const char *path), (path))

CALL(DIR *, opendir, OPEN, AT_FDCWD, path, (const char *path), (path))
CALL(FILE *, fopen, OPEN, AT_FDCWD, path, (const char *path, const char *mode), (path, mode))
CALL(FILE *, fopen64, OPEN, AT_FDCWD, path, (const char *path, const char *mode), (path, mode))

static int opened(int at, const char *path, int flags, mode_t mode) {
    static int (*real)(int, const char *, int, ...);
    if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    int64_t us = delay_of(OPEN, at, path);
    wait_for(us);
    int fd = real(at, path, flags, mode);
    wait_for(-us);
    return fd;
}
#define OPENS(name, arguments, at) \
    int name arguments { \
        mode_t mode = 0; \
        va_list more; \
        va_start(more, flags); \
        if (flags & (O_CREAT | __O_TMPFILE)) mode = va_arg(more, mode_t); \
        va_end(more); \
        return opened(at, path, flags, mode); \
    }
OPENS(open, (const char *path, int flags, ...), AT_FDCWD)
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENS(openat, (int at, const char *path, int flags, ...), at)
OPENS(openat64, (int at, const char *path, int flags, ...), at)
