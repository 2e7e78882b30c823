// What each way to the disk costs on this machine: the tables behind the journal in ARCHITECTURE.md.
//
//     cc -O2 -o build/disk_ways perf/disk_ways.c && build/disk_ways DIRECTORY
//
// Synced writes go round and round through one file of 512 MiB; written-ahead ones fill a new file
// of 2 GiB. CPU is this process's own, so the kernel's write-back is not in it.
//
// The second table is a turn of one batch of 4 KiB for each of so many partitions, made durable by
// a sync of each partition's file (blocks written before, the best case), or by one write and sync
// of all of them in one journal.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 4096, FILES_MAX = 256, FILE_BYTES = 1 << 20, TURN_SECONDS = 2 };
enum { RING_BYTES = 512 << 20, AHEAD_BYTES = 64 << 20, POPULATE_BYTES = 4 << 20 };
static const size_t GROWN_BYTES = 2UL << 30;

typedef struct {
    const char *name;
    int synced, direct, ahead, mapped, keep_size;
    size_t by_map; // of a mapped way: so many bytes of each write go through the map, all where 0
} Way;

static const Way WAYS[] = {
    {"O_DIRECT into blocks written before, fdatasync", 1, 1, 0, 0, 0, 0},
    {"pwrite into blocks written before, fdatasync", 1, 0, 0, 0, 0, 0},
    {"memcpy into mmap of blocks written before, fdatasync", 1, 0, 0, 1, 0, 0},
    {"the first 4 KiB by mmap, the rest by pwrite, fdatasync", 1, 0, 0, 1, 0, 4096},
    {"pwrite, file grows", 0, 0, 0, 0, 0, 0},
    {"pwrite into fallocate ahead, size kept", 0, 0, 1, 0, 1, 0},
    {"memcpy into mmap of fallocate, pages populated ahead", 0, 0, 1, 1, 0, 0},
};
static const size_t CHUNKS[] = {4096, 16384, 65536, 1 << 20};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu_seconds(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fill_ring(const char *path, char *buffer) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    check(fd >= 0, path);
    if (lseek(fd, 0, SEEK_END) < RING_BYTES)
        for (off_t at = 0; at < RING_BYTES; at += 1 << 20)
            check(pwrite(fd, buffer, 1 << 20, at) == 1 << 20, "fill");
    check(fsync(fd) == 0, "fsync");
    close(fd);
}

static void prepare_ahead(const Way *way, int fd, char *map, size_t at, size_t chunk) {
    if (way->ahead && at % AHEAD_BYTES == 0)
        check(fallocate(fd, way->keep_size ? FALLOC_FL_KEEP_SIZE : 0, at, AHEAD_BYTES) == 0, "fallocate");
    if (way->ahead && way->mapped && at % POPULATE_BYTES == 0 && chunk <= POPULATE_BYTES)
        check(madvise(map + at, POPULATE_BYTES, MADV_POPULATE_WRITE) == 0, "madvise");
}

static void measure(const Way *way, const char *directory, char *buffer, size_t chunk) {
    char path[4096];
    snprintf(path, sizeof path, "%s/disk_ways.%s", directory, way->synced ? "ring" : "grown");
    if (way->synced)
        fill_ring(path, buffer);
    int fd = open(path, O_RDWR | O_CREAT | (way->direct ? O_DIRECT : 0) | (way->synced ? 0 : O_TRUNC), 0600);
    check(fd >= 0, path);
    size_t limit = way->synced ? RING_BYTES : GROWN_BYTES;
    size_t total = way->synced && chunk < 65536 ? 64 << 20 : limit, count = total / chunk;
    char *map = NULL;
    if (way->mapped)
        check((map = mmap(NULL, limit, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) != MAP_FAILED, "mmap");
    double *took = calloc(count, sizeof *took), began = seconds(), cpu = cpu_seconds();
    for (size_t i = 0; i < count; i++) {
        size_t at = i * chunk;
        double start = seconds();
        prepare_ahead(way, fd, map, at, chunk);
        size_t mapped = !map ? 0 : way->by_map && way->by_map < chunk ? way->by_map : chunk;
        if (mapped)
            memcpy(map + at, buffer, mapped);
        if (mapped < chunk)
            check(pwrite(fd, buffer + mapped, chunk - mapped, at + mapped) == (ssize_t)(chunk - mapped), "pwrite");
        if (way->synced)
            check(fdatasync(fd) == 0, "fdatasync");
        took[i] = seconds() - start;
    }
    double elapsed = seconds() - began;
    cpu = cpu_seconds() - cpu;
    qsort(took, count, sizeof *took, by_size);
    printf("| %s | %zu | %.0f | %.2f | %.0f | %.0f |\n", way->name, chunk, total / elapsed / 1e6,
           cpu / (total / 1e9), took[count / 2] * 1e6, took[count * 99 / 100] * 1e6);
    free(took);
    if (map)
        munmap(map, limit);
    close(fd);
    if (!way->synced)
        unlink(path);
}

static void batch_path(char *path, const char *directory, int file) {
    snprintf(path, 4096, "%s/disk_ways.%d", directory, file);
}

// One turn: a batch for each file, and all of them on the disk.
static void turn(const int *fds, int files, int journal, char *buffer, size_t round) {
    if (journal) {
        size_t bytes = (size_t)files * BATCH, at = round * bytes % (RING_BYTES - FILES_MAX * BATCH);
        check(pwrite(fds[0], buffer, bytes, at / BATCH * BATCH) == (ssize_t)bytes, "pwrite");
        check(fdatasync(fds[0]) == 0, "fdatasync");
        return;
    }
    for (int i = 0; i < files; i++)
        check(pwrite(fds[i], buffer, BATCH, round * BATCH % FILE_BYTES) == BATCH, "pwrite");
    for (int i = 0; i < files; i++)
        check(fdatasync(fds[i]) == 0, "fdatasync");
}

static void bend(const char *directory, char *buffer, int files, int journal) {
    int fds[FILES_MAX];
    char path[4096];
    for (int i = 0; i < (journal ? 1 : files); i++) {
        if (journal)
            snprintf(path, sizeof path, "%s/disk_ways.ring", directory);
        else
            batch_path(path, directory, i);
        check((fds[i] = open(path, O_RDWR | O_CREAT | (journal ? O_DIRECT : 0), 0600)) >= 0, path);
        if (!journal)
            check(pwrite(fds[i], buffer, FILE_BYTES, 0) == FILE_BYTES && fsync(fds[i]) == 0, "fill");
    }
    double began = seconds(), cpu = cpu_seconds();
    size_t rounds = 0;
    while (seconds() - began < TURN_SECONDS)
        turn(fds, files, journal, buffer, rounds++);
    double elapsed = seconds() - began;
    cpu = cpu_seconds() - cpu;
    printf("| %s | %d | %.0f | %.0f | %.1f |\n", journal ? "one journal" : "one sync a file", files,
           rounds * files / elapsed, elapsed / rounds * 1e6, cpu / (rounds * files) * 1e6);
    for (int i = 0; i < (journal ? 1 : files); i++) {
        close(fds[i]);
        batch_path(path, directory, i);
        unlink(path);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: disk_ways DIRECTORY\n");
        return 2;
    }
    char *buffer, ring[4096];
    check(posix_memalign((void **)&buffer, 4096, 1 << 20) == 0, "memory");
    memset(buffer, 7, 1 << 20);
    printf("| way | bytes a write | MB/s | CPU-s/GB | p50 us | p99 us |\n|---|---|---|---|---|---|\n");
    for (size_t w = 0; w < sizeof WAYS / sizeof *WAYS; w++)
        for (size_t c = 0; c < sizeof CHUNKS / sizeof *CHUNKS; c++)
            measure(&WAYS[w], argv[1], buffer, CHUNKS[c]);
    printf("\n| way | partitions | batches/s | us a turn | CPU us a batch |\n|---|---|---|---|---|\n");
    for (int files = 1; files <= FILES_MAX; files *= 4)
        for (int journal = 0; journal < 2; journal++)
            bend(argv[1], buffer, files, journal);
    snprintf(ring, sizeof ring, "%s/disk_ways.ring", argv[1]);
    unlink(ring);
    return 0;
}
