/*
 * In front of the C library: fails the n-th call of a kind from now on, and holds up calls of a kind
 * on paths that have a part in them (a descriptor has none) while it is told to.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static int countdown = -1, kind = 0, code = EIO, hits = 0;
static const char *volatile parts[9];
static volatile int waiting[9], syncs = 0;
void hold(int which, const char *part) { parts[which] = part ? strdup(part) : NULL; }
int held(int which) { return waiting[which]; }
int synced(void) { return syncs; }
static void pass(int which, const char *path) {
    const char *part;
    while ((part = parts[which]) && strstr(path, part)) { waiting[which] = 1; usleep(1000); }
    waiting[which] = 0;
}
void fail_next(int which, int n, int with) { kind = which; countdown = n; code = with; hits = 0; }
int failed(void) { return hits; }
static int fails(int which) {
    if (kind != which || countdown < 0 || countdown-- != 0) return 0;
    hits++;
    return 1;
}
#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) {
    REAL(pwrite64, ssize_t, int, const void *, size_t, off_t);
    if (fails(1)) { real(fd, p, n / 2, at); errno = code; return -1; }
    return real(fd, p, n, at);
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite64(fd, p, n, at); }
int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    pass(2, "");
    if (fails(2)) { errno = code; return -1; }
    syncs++;
    return real(fd);
}
int fsync(int fd) {
    REAL(fsync, int, int);
    if (fails(3)) { errno = code; return -1; }
    syncs++;
    return real(fd);
}
int ftruncate64(int fd, off_t n) {
    REAL(ftruncate64, int, int, off_t);
    if (fails(4)) { errno = code; return -1; }
    return real(fd, n);
}
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }
int fallocate64(int fd, int mode, off_t at, off_t n) {
    REAL(fallocate64, int, int, int, off_t, off_t);
    if (fails(5)) { errno = code; return -1; }
    return real(fd, mode, at, n);
}
int fallocate(int fd, int mode, off_t at, off_t n) { return fallocate64(fd, mode, at, n); }
int rename(const char *old, const char *new) {
    REAL(rename, int, const char *, const char *);
    pass(6, old);
    if (fails(6)) { errno = code; return -1; }
    return real(old, new);
}
int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat, int, int, const char *, int, const char *);
    if (fails(6)) { errno = code; return -1; }
    return real(from, old, to, new);
}
int link(const char *old, const char *new) {
    REAL(link, int, const char *, const char *);
    if (fails(9)) { errno = code; return -1; }
    return real(old, new);
}
ssize_t write(int fd, const void *p, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    if (fails(7)) { errno = code; return -1; }
    return real(fd, p, n);
}
static int opened(int at, const char *path, int flags, mode_t mode) {
    REAL(openat64, int, int, const char *, int, ...);
    int ours = strstr(path, "topic-") || strstr(path, "leader-epoch-checkpoint");
    pass(8, path);
    if (ours && fails(8)) { errno = code; return -1; }
    return real(at, path, flags, mode);
}
#define OPEN(name, arguments, at) \
    int name arguments { \
        mode_t mode = 0; \
        va_list more; \
        va_start(more, flags); \
        if (flags & O_CREAT) mode = va_arg(more, mode_t); \
        va_end(more); \
        return opened(at, path, flags, mode); \
    }
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat64, (int at, const char *path, int flags, ...), at)
OPEN(openat, (int at, const char *path, int flags, ...), at)
