/*
 * In front of the C library: the wall clock is off by as many seconds as the file that
 * KBROKER_TEST_CLOCK names says, a number of 64 bits that may change at any time. Clocks that count
 * from the machine's start are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset_s;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("KBROKER_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *memory = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (memory != MAP_FAILED) offset_s = memory;
}

static int64_t off(void) { return offset_s ? *offset_s : 0; }

int clock_gettime(clockid_t id, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(id, out);
    if (status == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += off();
    return status;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int status = real(out, zone);
    if (status == 0) out->tv_sec += off();
    return status;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
