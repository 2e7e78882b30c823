/* A load generator with next to no cost of its own: record batches built once, one epoll thread,
 * connections that keep a window of requests in flight, and one line of JSON at the end.
 *
 *   load produce PORT PID SECONDS TOPIC PARTITIONS CONNECTIONS WINDOW RECORDS RECORD_BYTES ACKS
 *                RATE [sleep]
 *   load fetch   PORT PID SECONDS TOPIC PARTITIONS CONNECTIONS MAX_BYTES [committed]
 *   load ping    PORT PID SECONDS CONNECTIONS WINDOW
 *
 * produce: RATE 0 is a closed loop: each connection sends as fast as its window allows. Above 0 it
 *   is an open loop of RATE requests a second over all connections, each timed from the moment when
 *   it was due, so that a stall is charged to every request that it delays. The open loop spins
 *   unless told to sleep, which costs precision and leaves both processors to the broker.
 * fetch: each connection reads its partition from its beginning to its end, over and over; what is
 *   committed only, where that is said.
 * ping: ApiVersions v0.
 *
 * With LOAD_OWN_IDS in the environment each connection has a client id of its own, load-0 and so on.
 *
 * PID is the broker's. Its CPU time (its threads' user and system time, children not counted) is
 * read from /proc before and after, so that each figure is a cost as well as a rate. A request that
 * failed counts in `errors`, one without an answer ten seconds after the end in `lost`: a figure
 * with either is no figure, and the exit status is 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../ext/c/threads.h"
#include "batch.h"
#include "wire.h"

enum { PRODUCE, FETCH, PING };
enum { EVENTS_MAX = 256, DRAIN_SECONDS = 10, IDLE_WAIT_MS = 50, RESPONSE_ROOM = 1 << 16 };

typedef struct {
    int mode, port, pid;
    double seconds;
    const char *topic;
    int partitions, connections, window;
    int records, record_bytes, acks; /* produce */
    int max_bytes, committed;        /* fetch */
    double rate;                     /* requests a second; 0: closed loop */
    int sleeps;                      /* open loop: between what is due */
} Options;

typedef struct {
    int fd, partition;
    uint8_t *request; /* what is sent next; built once but for fetch */
    size_t request_size, sent;
    int sending; /* a request is on its way out, `sent` bytes of it are gone */
    uint8_t *input;
    size_t input_size, input_room;
    double *started; /* ring of window + 1: when the requests in flight began */
    int first, in_flight;
    int64_t offset; /* fetch: the next one */
} Connection;

typedef struct {
    int64_t requests, records, bytes, errors;
    int last_error, outstanding;
} Totals;

static Options options;
static Totals totals;
static Connection *connections;
static uint8_t *batch;
static size_t batch_size;

/* ---- time ------------------------------------------------------------------------------------ */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* User and system time of the whole process in seconds; children that ended are not in it. */
static double cpu_seconds(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    unsigned long user = 0, system = 0;
    const char *after_name = strrchr(text, ')');
    if (after_name != NULL) {
        sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system);
    }
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double resident_mb(int pid) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kib = atol(line + 6);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (double)kib * 1024 / 1e6;
}

/* ---- latencies: counted in buckets 1/64 of their power of two wide, from a nanosecond up ----- */

enum { BUCKET_BITS = 6, BUCKETS = (64 - BUCKET_BITS) << BUCKET_BITS };
static int64_t histogram[BUCKETS];

static void latency_add(double seconds) {
    uint64_t ns = seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
    if (ns < 1 << BUCKET_BITS) {
        ns = 1 << BUCKET_BITS;
    }
    int shift = 63 - __builtin_clzll(ns) - BUCKET_BITS;
    histogram[(shift << BUCKET_BITS) + (int)(ns >> shift) - (1 << BUCKET_BITS)]++;
}

static double latency_ms(double quantile) {
    int64_t count = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        count += histogram[i];
    }
    int64_t wanted = (int64_t)(quantile * (double)(count - 1)) + 1;
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (count > 0 && seen >= wanted) {
            int shift = i >> BUCKET_BITS;
            return (double)((uint64_t)((i & 63) + (1 << BUCKET_BITS)) << shift) / 1e6;
        }
    }
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

static uint8_t *put_header(const Connection *c, int key, int version) {
    char id[32] = "load";
    if (getenv("LOAD_OWN_IDS") != NULL) {
        snprintf(id, sizeof id, "load-%ld", (long)(c - connections));
    }
    uint8_t *p = put16(put16(c->request + 4, (uint16_t)key), (uint16_t)version);
    return put_string(put32(p, 0), id, (uint16_t)strlen(id));
}

static void finish_request(Connection *c, const uint8_t *end) {
    c->request_size = (size_t)(end - c->request);
    put32(c->request, (uint32_t)c->request_size - 4);
}

static void build_produce(Connection *c) {
    uint8_t *p = put_header(c, KEY_PRODUCE, PRODUCE_VERSION);
    p = put16(p, (uint16_t)-1); /* no transactional id */
    p = put16(p, (uint16_t)options.acks);
    p = put32(p, 30000); /* timeout, ms */
    p = put_string(put32(p, 1), options.topic, (uint16_t)strlen(options.topic));
    p = put32(put32(p, 1), (uint32_t)c->partition);
    p = put32(p, (uint32_t)batch_size);
    memcpy(p, batch, batch_size);
    finish_request(c, p + batch_size);
}

static void build_fetch(Connection *c) {
    uint8_t *p = put_header(c, KEY_FETCH, FETCH_VERSION);
    p = put32(p, (uint32_t)-1);                 /* replica: a consumer */
    p = put32(put32(p, 500), 1);                /* max wait, ms; min bytes */
    p = put32(p, (uint32_t)options.max_bytes);
    *p++ = (uint8_t)options.committed;          /* isolation level */
    p = put32(put32(p, 0), (uint32_t)-1);       /* no session */
    p = put_string(put32(p, 1), options.topic, (uint16_t)strlen(options.topic));
    p = put32(put32(p, 1), (uint32_t)c->partition);
    p = put32(p, (uint32_t)-1);                 /* leader epoch: any */
    p = put64(put64(p, (uint64_t)c->offset), (uint64_t)-1);
    p = put32(p, (uint32_t)options.max_bytes);
    p = put16(put32(p, 0), 0);                  /* nothing forgotten; no rack */
    finish_request(c, p);
}

static void build_request(Connection *c) {
    if (options.mode == PRODUCE) {
        build_produce(c);
    } else if (options.mode == FETCH) {
        build_fetch(c);
    } else {
        finish_request(c, put_header(c, KEY_API_VERSIONS, API_VERSIONS_VERSION));
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

static int dial(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (void *)&address, sizeof address) != 0) {
        die("connect");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void open_connection(Connection *c, int index, int poller) {
    c->fd = dial(options.port);
    c->partition = index % options.partitions;
    c->input_room = RESPONSE_ROOM + 2 * (size_t)options.max_bytes;
    c->input = allocate(1, c->input_room);
    c->started = allocate((size_t)options.window + 1, sizeof(double));
    c->request = allocate(1, batch_size + 4096);
    build_request(c);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

/* Sends what the socket takes; true once the request is out. */
static int push(Connection *c) {
    while (c->sending) {
        ssize_t sent = write(c->fd, c->request + c->sent, c->request_size - c->sent);
        if (sent < 0) {
            if (errno == EAGAIN) {
                return 0;
            }
            die("write");
        }
        c->sent += (size_t)sent;
        c->sending = c->sent < c->request_size;
    }
    return 1;
}

static void begin_request(Connection *c, double started) {
    if (options.mode == FETCH) {
        build_fetch(c);
    }
    c->sent = 0;
    c->sending = 1;
    if (options.mode == PRODUCE && options.acks == 0) {
        totals.requests++;
        totals.records += options.records;
        totals.bytes += (int64_t)batch_size;
        return;
    }
    c->started[(c->first + c->in_flight) % (options.window + 1)] = started;
    c->in_flight++;
    totals.outstanding++;
}

/* Closed loop: every connection fills its window. */
static void send_all(double t, int stopping) {
    for (int i = 0; i < options.connections; i++) {
        Connection *c = &connections[i];
        while (push(c) && !stopping && c->in_flight < options.window) {
            begin_request(c, t);
        }
    }
}

/* Open loop: what is due goes out, on the connections in turn. */
static void send_due(double t, int stopping, double *due) {
    static int turn;
    for (int i = 0; i < options.connections; i++) {
        push(&connections[i]);
    }
    for (int tried = 0; tried < options.connections && !stopping && *due <= t; tried++) {
        Connection *c = &connections[turn];
        turn = (turn + 1) % options.connections;
        if (!c->sending && c->in_flight < options.window) {
            begin_request(c, *due);
            *due += 1 / options.rate;
            push(c);
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void count_error(int code) {
    if (code != 0) {
        totals.errors++;
        totals.last_error = code;
    }
}

/* Topics [ name, partitions [ index i32 | error i16 | ... ] ] */
static void take_produce(const uint8_t *p) {
    int name_size = get16(p + 4);
    int error = (int16_t)get16(p + 4 + 2 + name_size + 4 + 4);
    count_error(error);
    if (error == 0) {
        totals.bytes += (int64_t)batch_size;
        totals.records += options.records;
    }
}

/* Counts whole batches and moves the offset behind them; at the high watermark it starts over, so
 * that no fetch waits for records that nobody writes. */
static void take_batches(Connection *c, const uint8_t *p, size_t size, int64_t high_watermark) {
    const uint8_t *end = p + size;
    int64_t next = 0;
    totals.bytes += (int64_t)size;
    while (end - p >= BATCH_HEADER) {
        int64_t whole = BATCH_PREFIX + (int64_t)get32(p + BATCH_LENGTH);
        if (end - p < whole) {
            break;
        }
        next = (int64_t)get64(p) + (int32_t)get32(p + BATCH_LAST_DELTA) + 1;
        totals.records += (int32_t)get32(p + BATCH_COUNT);
        p += whole;
    }
    c->offset = next < high_watermark ? next : 0;
}

/* throttle i32 | error i16 | session i32 | topics [ name, partitions [ index i32 | error i16 |
 * high watermark, last stable, log start i64 | aborted [] | preferred replica i32 | records ] ] */
static void take_fetch(Connection *c, const uint8_t *p) {
    count_error((int16_t)get16(p + 4));
    int topics = (int32_t)get32(p + 10);
    if (topics != 1) {
        c->offset = 0;
        return;
    }
    p += 14;
    p += 2 + get16(p) + 4 + 4;
    count_error((int16_t)get16(p));
    int64_t high_watermark = (int64_t)get64(p + 2);
    p += 2 + 3 * 8;
    int aborted = (int32_t)get32(p);
    p += 4 + (aborted > 0 ? aborted * 16 : 0) + 4;
    int size = (int32_t)get32(p);
    take_batches(c, p + 4, size > 0 ? (size_t)size : 0, high_watermark);
}

static void take_answer(Connection *c, const uint8_t *body, double t) {
    latency_add(t - c->started[c->first]);
    c->first = (c->first + 1) % (options.window + 1);
    c->in_flight--;
    totals.outstanding--;
    totals.requests++;
    if (options.mode == PRODUCE) {
        take_produce(body);
    } else if (options.mode == FETCH) {
        take_fetch(c, body);
    } else {
        count_error((int16_t)get16(body));
    }
}

static void take_input(Connection *c) {
    size_t at = 0;
    double t = now();
    while (c->input_size - at >= 4) {
        size_t size = 4 + (size_t)get32(c->input + at);
        if (c->input_size - at < size) {
            break;
        }
        take_answer(c, c->input + at + 8, t);
        at += size;
    }
    if (at > 0) {
        memmove(c->input, c->input + at, c->input_size - at);
        c->input_size -= at;
    }
}

static void receive(Connection *c) {
    for (;;) {
        if (c->input_size == c->input_room) {
            c->input_room *= 2;
            c->input = realloc(c->input, c->input_room);
            if (c->input == NULL) {
                die("realloc");
            }
        }
        ssize_t got = read(c->fd, c->input + c->input_size, c->input_room - c->input_size);
        if (got < 0 && errno == EAGAIN) {
            return;
        }
        if (got <= 0) {
            die(got == 0 ? "the broker closed a connection" : "read");
        }
        c->input_size += (size_t)got;
        take_input(c);
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

/* A timer that the poller watches; -1 where nobody sleeps on it. */
static int open_timer(int poller) {
    if (!options.sleeps) {
        return -1;
    }
    /* What is measured is how long the broker takes, not how long this waits for a processor. */
    thread_hurries();
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
    return timer;
}

static void set_timer(int timer, double when) {
    time_t second = (time_t)when;
    struct itimerspec at = {.it_value = {second, (long)((when - (double)second) * 1e9)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void run(int poller, double begin) {
    struct epoll_event events[EVENTS_MAX];
    double due = begin, end = begin + options.seconds;
    int timer = open_timer(poller);
    for (;;) {
        double t = now();
        int stopping = t >= end;
        if (stopping && (totals.outstanding == 0 || t > end + DRAIN_SECONDS)) {
            return;
        }
        if (options.rate > 0) {
            send_due(t, stopping, &due);
        } else {
            send_all(t, stopping);
        }
        int spins = (options.rate > 0 && timer < 0) || (options.rate == 0 && !totals.outstanding);
        if (timer >= 0) {
            set_timer(timer, due);
        }
        int wait_ms = spins ? 0 : IDLE_WAIT_MS;
        int count = epoll_wait(poller, events, EVENTS_MAX, wait_ms);
        for (int i = 0; i < count; i++) {
            int readable = events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR);
            if (readable && events[i].data.ptr != NULL) {
                receive(events[i].data.ptr);
            }
        }
    }
}

static void report(double seconds, double broker_cpu, double own_cpu) {
    double bytes = (double)totals.bytes, requests = (double)totals.requests;
    printf("{\"requests_s\": %.0f, \"records_s\": %.0f, \"mb_s\": %.1f, ", requests / seconds,
           (double)totals.records / seconds, bytes / seconds / 1e6);
    printf("\"us_request\": %.3f, \"cpu_s_gb\": %.4f, ",
           requests > 0 ? broker_cpu * 1e6 / requests : 0,
           bytes > 0 ? broker_cpu * 1e9 / bytes : 0);
    printf("\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f, ",
           latency_ms(.5), latency_ms(.99), latency_ms(.999), latency_ms(1));
    printf("\"broker_cpu_s\": %.2f, \"own_cpu_s\": %.2f, \"seconds\": %.2f, \"rss_mb\": %.1f, ",
           broker_cpu, own_cpu, seconds, resident_mb(options.pid));
    printf("\"errors\": %lld, \"last_error\": %d, \"lost\": %d}\n", (long long)totals.errors,
           totals.last_error, totals.outstanding);
}

static int integer(char **arguments, int count, int index) {
    if (index >= count) {
        fprintf(stderr, "too few arguments: see the top of load.c\n");
        exit(2);
    }
    return atoi(arguments[index]);
}

static void parse(int count, char **arguments) {
    int partitioned = count > 1 && strcmp(arguments[1], "ping") != 0, next = 5;
    options = (Options){.partitions = 1, .window = 1, .topic = ""};
    options.port = integer(arguments, count, 2);
    options.pid = integer(arguments, count, 3);
    (void)integer(arguments, count, 5);
    options.seconds = atof(arguments[4]);
    if (partitioned) {
        options.topic = arguments[next++];
        options.partitions = integer(arguments, count, next++);
    }
    options.connections = integer(arguments, count, next++);
    if (strcmp(arguments[1], "produce") == 0) {
        options.mode = PRODUCE;
        options.window = integer(arguments, count, next++);
        options.records = integer(arguments, count, next++);
        options.record_bytes = integer(arguments, count, next++);
        options.acks = integer(arguments, count, next++);
        options.rate = integer(arguments, count, next++);
        options.sleeps = count > next && options.rate > 0;
    } else if (strcmp(arguments[1], "fetch") == 0) {
        options.mode = FETCH;
        options.max_bytes = integer(arguments, count, next++);
        options.committed = count > next;
    } else {
        options.mode = PING;
        options.window = integer(arguments, count, next++);
    }
}

int main(int count, char **arguments) {
    parse(count, arguments);
    if (options.mode == PRODUCE) {
        batch = build_batch(options.records, options.record_bytes, &batch_size);
    }
    int poller = epoll_create1(0);
    connections = allocate((size_t)options.connections, sizeof(Connection));
    for (int i = 0; i < options.connections; i++) {
        open_connection(&connections[i], i, poller);
    }
    double begin = now(), broker = cpu_seconds(options.pid);
    clock_t own = clock();
    run(poller, begin);
    report(now() - begin, cpu_seconds(options.pid) - broker,
           (double)(clock() - own) / CLOCKS_PER_SEC);
    return totals.errors > 0 || totals.outstanding > 0;
}
