/*
 * In front of the C library: ends the process, as kill -9 does, right before the n-th call that
 * changes what is on disk. A write that is cut writes its first half.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long countdown = -1, steps = 0;

void die_at(long n) {
    countdown = n;
    steps = 0;
}
long steps_taken(void) { return steps; }

static int last(void) {
    if (countdown < 0) return 0;
    return steps++ == countdown;
}
static void step(void) {
    if (last()) _exit(99);
}
#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) {
    REAL(pwrite64, ssize_t, int, const void *, size_t, off_t);
    if (last()) {
        real(fd, p, n / 2, at);
        _exit(99);
    }
    return real(fd, p, n, at);
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite64(fd, p, n, at); }
ssize_t write(int fd, const void *p, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    step();
    return real(fd, p, n);
}
int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    step();
    return real(fd);
}
int fsync(int fd) {
    REAL(fsync, int, int);
    step();
    return real(fd);
}
int ftruncate64(int fd, off_t n) {
    REAL(ftruncate64, int, int, off_t);
    step();
    return real(fd, n);
}
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }
int rename(const char *old, const char *new) {
    REAL(rename, int, const char *, const char *);
    step();
    return real(old, new);
}
int unlink(const char *path) {
    REAL(unlink, int, const char *);
    step();
    return real(path);
}
int futimens(int fd, const struct timespec *times) {
    REAL(futimens, int, int, const struct timespec *);
    step();
    return real(fd, times);
}
int open64(const char *path, int flags, ...) {
    va_list more;
    mode_t mode = 0;
    REAL(open64, int, const char *, int, ...);
    va_start(more, flags);
    if (flags & O_CREAT) {
        mode = va_arg(more, mode_t);
        step();
    }
    va_end(more);
    return real(path, flags, mode);
}
int open(const char *path, int flags, ...) {
    va_list more;
    mode_t mode = 0;
    va_start(more, flags);
    if (flags & O_CREAT) mode = va_arg(more, mode_t);
    va_end(more);
    return open64(path, flags, mode);
}
