/*
 * In front of the C library: calls on files under KBROKER_TEST_FAIL_ROOT fail as the file
 * KBROKER_TEST_FAIL (64-bit words, mapped) says, which may change at any time:
 *
 *   0  which calls: a bit for each of the kinds below (OPEN: any, CREATE or not; READ: read and
 *      pread; LIST: readdir; STAT: of a path); 0 for none
 *   1  this many of them are let pass, then one fails; with word 4 all from there on
 *   2  the errno
 *   3  out: how many have failed
 *   4  1: go on failing
 *   5  instead of 1: of a thousand, so many fail, drawn from the seed in word 6
 *   6  the state of the draw
 *
 * A write that fails has written its first half.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { PWRITE = 1, WRITE = 2, SYNC = 4, RENAME = 8, CREATE = 16, SIZE = 32, UNLINK = 64 };
enum { OPEN = 128, READ = 256, LIST = 512, STAT = 1024 };
enum { KINDS, PASS, CODE, HITS, STAY, CHANCE, DRAW, WORDS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int64_t *word;
static const char *root;
static size_t root_size;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KBROKER_TEST_FAIL");
    root = getenv("KBROKER_TEST_FAIL_ROOT");
    int fd = path && root ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    root_size = strlen(root);
    void *memory = mmap(NULL, 8 * WORDS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) word = memory;
}

static int is_inside(const char *path) { return word && path && !strncmp(path, root, root_size); }

static int draws(void) {
    uint64_t x = (uint64_t)word[DRAW];
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    word[DRAW] = (int64_t)x;
    return (int64_t)(x % 1000) < word[CHANCE];
}

static int fails(int kind) {
    if (!word || !(word[KINDS] & kind)) return 0;
    pthread_mutex_lock(&lock);
    int hit = word[CHANCE] ? draws() : word[STAY] ? word[PASS]-- <= 0 : word[PASS]-- == 0;
    if (hit) word[HITS] += 1, errno = (int)word[CODE];
    pthread_mutex_unlock(&lock);
    return hit;
}

static int fails_fd(int kind, int fd) {
    char link[64], path[PATH_MAX];
    if (!word || !(word[KINDS] & kind)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return is_inside(path) && fails(kind);
}

#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) {
    REAL(pwrite64, ssize_t, int, const void *, size_t, off_t);
    if (!fails_fd(PWRITE, fd)) return real(fd, p, n, at);
    int saved = errno;
    real(fd, p, n / 2, at);
    errno = saved;
    return -1;
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite64(fd, p, n, at); }
ssize_t write(int fd, const void *p, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    return fails_fd(WRITE, fd) ? -1 : real(fd, p, n);
}
ssize_t pread64(int fd, void *p, size_t n, off_t at) {
    REAL(pread64, ssize_t, int, void *, size_t, off_t);
    return fails_fd(READ, fd) ? -1 : real(fd, p, n, at);
}
ssize_t pread(int fd, void *p, size_t n, off_t at) { return pread64(fd, p, n, at); }
ssize_t read(int fd, void *p, size_t n) {
    REAL(read, ssize_t, int, void *, size_t);
    return fails_fd(READ, fd) ? -1 : real(fd, p, n);
}
struct dirent *readdir(DIR *folder) {
    REAL(readdir, struct dirent *, DIR *);
    return fails_fd(LIST, dirfd(folder)) ? NULL : real(folder);
}
struct dirent64 *readdir64(DIR *folder) {
    REAL(readdir64, struct dirent64 *, DIR *);
    return fails_fd(LIST, dirfd(folder)) ? NULL : real(folder);
}
int stat64(const char *path, struct stat64 *out) {
    REAL(stat64, int, const char *, struct stat64 *);
    return is_inside(path) && fails(STAT) ? -1 : real(path, out);
}
int stat(const char *path, struct stat *out) { return stat64(path, (struct stat64 *)out); }
int lstat64(const char *path, struct stat64 *out) {
    REAL(lstat64, int, const char *, struct stat64 *);
    return is_inside(path) && fails(STAT) ? -1 : real(path, out);
}
int lstat(const char *path, struct stat *out) { return lstat64(path, (struct stat64 *)out); }
int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    return fails_fd(SYNC, fd) ? -1 : real(fd);
}
int fsync(int fd) {
    REAL(fsync, int, int);
    return fails_fd(SYNC, fd) ? -1 : real(fd);
}
int syncfs(int fd) {
    REAL(syncfs, int, int);
    return fails_fd(SYNC, fd) ? -1 : real(fd);
}
int ftruncate64(int fd, off_t n) {
    REAL(ftruncate64, int, int, off_t);
    return fails_fd(SIZE, fd) ? -1 : real(fd, n);
}
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }
int fallocate64(int fd, int mode, off_t at, off_t n) {
    REAL(fallocate64, int, int, int, off_t, off_t);
    return fails_fd(SIZE, fd) ? -1 : real(fd, mode, at, n);
}
int fallocate(int fd, int mode, off_t at, off_t n) { return fallocate64(fd, mode, at, n); }
int rename(const char *old, const char *new) {
    REAL(rename, int, const char *, const char *);
    return is_inside(old) && fails(RENAME) ? -1 : real(old, new);
}
int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat, int, int, const char *, int, const char *);
    return fails_fd(RENAME, from) ? -1 : real(from, old, to, new);
}
int unlink(const char *path) {
    REAL(unlink, int, const char *);
    return is_inside(path) && fails(UNLINK) ? -1 : real(path);
}
static int opened(int at, const char *path, int flags, mode_t mode) {
    REAL(openat64, int, int, const char *, int, ...);
    int kinds = flags & O_CREAT ? CREATE | OPEN : OPEN;
    if (path[0] == '/' ? is_inside(path) && fails(kinds) : fails_fd(kinds, at)) return -1;
    return real(at, path, flags, mode);
}
#define OPENS(name, arguments, at) \
    int name arguments { \
        mode_t mode = 0; \
        va_list more; \
        va_start(more, flags); \
        if (flags & O_CREAT) mode = va_arg(more, mode_t); \
        va_end(more); \
        return opened(at, path, flags, mode); \
    }
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENS(open, (const char *path, int flags, ...), AT_FDCWD)
OPENS(openat64, (int at, const char *path, int flags, ...), at)
OPENS(openat, (int at, const char *path, int flags, ...), at)
