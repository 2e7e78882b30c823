/*
 * In front of the C library: ends the process, as kill -9 does, right before the n-th call that
 * changes what is on disk, or has that call fail. A write that is cut writes its first half.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long countdown = -1, steps = 0;
static int failure = 0;
static const char *hit = "";

void die_at(long n) {
    countdown = n;
    steps = 0;
    failure = 0;
    hit = "";
}
void fail_at(long n, int with) {
    die_at(n);
    failure = with;
}
long steps_taken(void) { return steps; }
const char *call_hit(void) { return hit; }

static int last(void) {
    if (countdown < 0) return 0;
    return steps++ == countdown;
}
static int fails(const char *call) {
    if (!last()) return 0;
    hit = call;
    if (!failure) _exit(99);
    errno = failure;
    return 1;
}
#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) {
    REAL(pwrite64, ssize_t, int, const void *, size_t, off_t);
    if (last()) {
        real(fd, p, n / 2, at);
        if (!failure) _exit(99);
        errno = failure;
        return -1;
    }
    return real(fd, p, n, at);
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite64(fd, p, n, at); }
ssize_t write(int fd, const void *p, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    if (fails("write")) return -1;
    return real(fd, p, n);
}
int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    if (fails("fdatasync")) return -1;
    return real(fd);
}
int fsync(int fd) {
    REAL(fsync, int, int);
    if (fails("fsync")) return -1;
    return real(fd);
}
int ftruncate64(int fd, off_t n) {
    REAL(ftruncate64, int, int, off_t);
    if (fails("ftruncate64")) return -1;
    return real(fd, n);
}
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }
int rename(const char *old, const char *new) {
    REAL(rename, int, const char *, const char *);
    if (fails("rename")) return -1;
    return real(old, new);
}
int renameat(int from, const char *old, int to, const char *new) {
    REAL(renameat, int, int, const char *, int, const char *);
    if (fails("renameat")) return -1;
    return real(from, old, to, new);
}
int unlink(const char *path) {
    REAL(unlink, int, const char *);
    if (fails("unlink")) return -1;
    return real(path);
}
int futimens(int fd, const struct timespec *times) {
    REAL(futimens, int, int, const struct timespec *);
    if (fails("futimens")) return -1;
    return real(fd, times);
}
int open64(const char *path, int flags, ...) {
    va_list more;
    mode_t mode = 0;
    REAL(open64, int, const char *, int, ...);
    va_start(more, flags);
    if (flags & O_CREAT) {
        mode = va_arg(more, mode_t);
        if (fails("open64")) return -1;
    }
    va_end(more);
    return real(path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    va_list more;
    mode_t mode = 0;
    REAL(openat64, int, int, const char *, int, ...);
    va_start(more, flags);
    if (flags & O_CREAT) {
        mode = va_arg(more, mode_t);
        if (fails("openat")) return -1;
    }
    va_end(more);
    return real(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) __attribute__((alias("openat")));
int open(const char *path, int flags, ...) {
    va_list more;
    mode_t mode = 0;
    va_start(more, flags);
    if (flags & O_CREAT) mode = va_arg(more, mode_t);
    va_end(more);
    return open64(path, flags, mode);
}
