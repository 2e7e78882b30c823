/*
 * In front of the C library: every call that changes what is under KBROKER_TEST_RECORD_ROOT is
 * written to the file KBROKER_TEST_RECORD, in the order in which they took effect, one at a time;
 * their number so far stands in the file KBROKER_TEST_RECORD_COUNT (64 bits, mapped).
 *
 * A record: kind i32 | inode u64 | offset or length i64 | size u32 | path length u16 | second path
 * length u16 | path | second path | data. `size` is the number of bytes of data, which are left out
 * (kind 'Z' in place of 'W') where all of them are zero. Stores through mmap are not seen.
 */
#define _GNU_SOURCE
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
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_size;
static int out = -1;
static volatile int64_t *count;

#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("KBROKER_TEST_RECORD"), *counter = getenv("KBROKER_TEST_RECORD_COUNT");
    root = getenv("KBROKER_TEST_RECORD_ROOT");
    if (!path || !counter || !root) return;
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    int fd = real(counter, O_RDWR | O_CLOEXEC);
    void *memory = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) return;
    count = memory;
    root_size = strlen(root);
    out = real(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static int is_inside(const char *path) {
    return path && !strncmp(path, root, root_size) && (path[root_size] == '/' || !path[root_size]);
}

/* Path of an open file, or of `name` in the folder that is open as `at`. */
static const char *resolved(int at, const char *name, char *into) {
    char link[64];
    if (out < 0) return NULL;
    if (name && name[0] == '/') return snprintf(into, PATH_MAX, "%s", name), into;
    if (name && at == AT_FDCWD) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t n = readlink(link, into, PATH_MAX - 1);
    if (n < 0) return NULL;
    into[n] = 0;
    if (name) snprintf(into + n, PATH_MAX - n, "/%s", name);
    return into;
}

static uint64_t inode_of(const char *path) {
    struct stat found;
    return stat(path, &found) ? 0 : found.st_ino;
}

static uint64_t inode_of_fd(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

/* Under the lock, after the call. */
static void note(int kind, uint64_t inode, int64_t at, const void *data, size_t size,
                 const char *path, const char *second) {
    struct { int32_t kind; uint64_t inode; int64_t at; uint32_t size; uint16_t a, b; }
        __attribute__((packed)) head;
    const char *bytes = data;
    int saved = errno;
    if (kind == 'W' && (!size || (!bytes[0] && !memcmp(bytes, bytes + 1, size - 1)))) kind = 'Z';
    head.kind = kind, head.inode = inode, head.at = at, head.size = (uint32_t)size;
    head.a = path ? strlen(path) : 0, head.b = second ? strlen(second) : 0;
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (real(out, &head, sizeof head) < 0) abort();
    if (head.a && real(out, path, head.a) < 0) abort();
    if (head.b && real(out, second, head.b) < 0) abort();
    if (kind == 'W' && real(out, data, size) < 0) abort();
    *count += 1;
    errno = saved;
}

static int begins(int fd, char *path) {
    if (out < 0 || !resolved(fd, NULL, path) || !is_inside(path)) return 0;
    pthread_mutex_lock(&lock);
    return 1;
}
static void ends(void) { pthread_mutex_unlock(&lock); }

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) {
    REAL(pwrite64, ssize_t, int, const void *, size_t, off_t);
    char path[PATH_MAX];
    if (!begins(fd, path)) return real(fd, p, n, at);
    ssize_t done = real(fd, p, n, at);
    if (done > 0) note('W', inode_of_fd(fd), at, p, done, NULL, NULL);
    ends();
    return done;
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite64(fd, p, n, at); }

ssize_t write(int fd, const void *p, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    char path[PATH_MAX];
    if (fd == out || !begins(fd, path)) return real(fd, p, n);
    ssize_t done = real(fd, p, n);
    if (done > 0) note('W', inode_of_fd(fd), lseek(fd, 0, SEEK_CUR) - done, p, done, NULL, NULL);
    ends();
    return done;
}

#define WITH_FD(name, kind, arguments, call, at) \
    int name arguments { \
        static int (*real) arguments; \
        if (!real) real = (int (*) arguments)dlsym(RTLD_NEXT, #name); \
        char path[PATH_MAX]; \
        if (!begins(fd, path)) return real call; \
        int status = real call; \
        if (!status) note(kind, inode_of_fd(fd), at, NULL, 0, path, NULL); \
        ends(); \
        return status; \
    }
WITH_FD(fdatasync, 'S', (int fd), (fd), 0)
WITH_FD(fsync, 'S', (int fd), (fd), 0)
WITH_FD(syncfs, 'A', (int fd), (fd), 0)
WITH_FD(ftruncate64, 'T', (int fd, off_t size), (fd, size), size)
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int fallocate64(int fd, int mode, off_t at, off_t size) {
    REAL(fallocate64, int, int, int, off_t, off_t);
    char path[PATH_MAX];
    if (!begins(fd, path)) return real(fd, mode, at, size);
    int status = real(fd, mode, at, size);
    if (!status && !(mode & FALLOC_FL_KEEP_SIZE)) note('G', inode_of_fd(fd), at + size, NULL, 0, NULL, NULL);
    ends();
    return status;
}
int fallocate(int fd, int mode, off_t at, off_t n) { return fallocate64(fd, mode, at, n); }

static int opened(int (*real)(int, const char *, int, ...), int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (out < 0 || !resolved(at, name, path) || !is_inside(path) || !(flags & (O_CREAT | O_TRUNC)))
        return real(at, name, flags, mode);
    pthread_mutex_lock(&lock);
    uint64_t before = inode_of(path);
    int fd = real(at, name, flags, mode);
    if (fd >= 0 && !before) note('C', inode_of_fd(fd), 0, NULL, 0, path, NULL);
    else if (fd >= 0 && flags & O_TRUNC) note('T', before, 0, NULL, 0, path, NULL);
    pthread_mutex_unlock(&lock);
    return fd;
}
#define OPEN(name, arguments, at, file) \
    int name arguments { \
        static int (*real)(int, const char *, int, ...); \
        if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64"); \
        mode_t mode = 0; \
        va_list more; \
        va_start(more, flags); \
        if (flags & O_CREAT) mode = va_arg(more, mode_t); \
        va_end(more); \
        return opened(real, at, file, flags, mode); \
    }
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, path)
OPEN(open, (const char *path, int flags, ...), AT_FDCWD, path)
OPEN(openat64, (int at, const char *path, int flags, ...), at, path)
OPEN(openat, (int at, const char *path, int flags, ...), at, path)

/* Names: the call, then what it did to them. */
#define NAMED(name, kind, arguments, call, at, path1, at2, path2) \
    int name arguments { \
        static int (*real) arguments; \
        if (!real) real = (int (*) arguments)dlsym(RTLD_NEXT, #name); \
        char one[PATH_MAX], two[PATH_MAX]; \
        const char *first = resolved(at, path1, one); \
        const char *second = path2 ? resolved(at2, path2, two) : NULL; \
        if (!first || !is_inside(first)) return real call; \
        pthread_mutex_lock(&lock); \
        uint64_t inode = inode_of(first); \
        int status = real call; \
        if (!status) note(kind, inode ? inode : inode_of(first), 0, NULL, 0, first, second); \
        pthread_mutex_unlock(&lock); \
        return status; \
    }
NAMED(rename, 'R', (const char *old, const char *new), (old, new), AT_FDCWD, old, AT_FDCWD, new)
NAMED(renameat, 'R', (int from, const char *old, int to, const char *new), (from, old, to, new), from, old, to, new)
NAMED(link, 'L', (const char *old, const char *new), (old, new), AT_FDCWD, old, AT_FDCWD, new)
NAMED(unlink, 'U', (const char *path), (path), AT_FDCWD, path, 0, NULL)
NAMED(unlinkat, 'U', (int at, const char *path, int flags), (at, path, flags), at, path, 0, NULL)
NAMED(rmdir, 'U', (const char *path), (path), AT_FDCWD, path, 0, NULL)
NAMED(mkdir, 'D', (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, 0, NULL)
