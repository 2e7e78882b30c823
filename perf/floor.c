/* The floor: the least that a broker could do and still be one.
 *
 *   floor DIRECTORY page-cache   pwrite to files that grow, acknowledge; fetch by sendfile
 *   floor DIRECTORY sync         4 files of 512 MiB written before and used round and round, one
 *                                fdatasync of each touched file a loop turn, then the answers
 *   floor DIRECTORY sync64       the same with 64 files of 16 MiB
 *
 * It prints the port that the kernel picked, and serves until it is killed. One epoll thread,
 * frame, CRC-32C, write, answer: no log structure, no check beyond the checksum, a file for each
 * partition number up to 63 whatever the topic. The batches of one run must all be of one size.
 * With `sync` blocks were written before, so that a sync has no size and no extent to commit; the
 * oldest bytes are written over, and there is nothing to fetch.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "crc32c.h"
#include "wire.h"

enum { FILES = 64, EVENTS_MAX = 256, INPUT_ROOM = 4 << 20, OUTPUT_ROOM = 64 << 10 };
enum { OUTPUT_FULL = OUTPUT_ROOM - 4096, CHUNK = 1 << 20, LISTEN_BACKLOG = 1024 };
enum { CORRUPT_MESSAGE = 2, KAFKA_STORAGE_ERROR = 56 };

typedef struct {
    int fd;
    off_t end;    /* where the next batch goes */
    int64_t next; /* its offset */
    int dirty;
} File;

typedef struct {
    int fd;
    uint8_t *input;
    size_t input_size;
    uint8_t output[OUTPUT_ROOM];
    size_t output_size, sent;
    int file; /* what follows the output by sendfile, `left` bytes from `position` on */
    off_t position;
    size_t left;
} Connection;

static File files[FILES];
static off_t file_limit; /* 0: files grow */
static int synced;
static int64_t batch_records; /* of the batches of this run */
static int64_t batch_bytes;

/* ---- requests -------------------------------------------------------------------------------- */

static void finish_response(Connection *c, const uint8_t *end, size_t file_bytes) {
    uint8_t *response = c->output + c->output_size;
    put32(response, (uint32_t)((size_t)(end - response) - 4 + file_bytes));
    c->output_size += (size_t)(end - response);
}

static int append(File *file, uint8_t *batch, size_t size) {
    if (crc32c(batch + BATCH_ATTRIBUTES, size - BATCH_ATTRIBUTES) != get32(batch + BATCH_CRC)) {
        return CORRUPT_MESSAGE;
    }
    batch_records = get32(batch + BATCH_COUNT);
    batch_bytes = (int64_t)size;
    put64(batch, (uint64_t)file->next);
    if (file_limit > 0 && file->end + (off_t)size > file_limit) {
        file->end = 0;
    }
    if (pwrite(file->fd, batch, size, file->end) != (ssize_t)size) {
        return KAFKA_STORAGE_ERROR;
    }
    file->end += (off_t)size;
    file->next += batch_records;
    file->dirty = 1;
    return 0;
}

/* Produce v7 of one batch to one partition. */
static void produce(Connection *c, uint8_t *p, uint32_t correlation_id) {
    int acks = (int16_t)get16(p + 2);
    p += 2 + 2 + 4 + 4;
    uint16_t name_size = get16(p);
    const uint8_t *name = p + 2;
    p += 2 + name_size + 4;
    uint32_t partition = get32(p) % FILES, size = get32(p + 4);
    int64_t base = files[partition].next;
    int error = append(&files[partition], p + 8, size);
    if (acks == 0) {
        return;
    }
    uint8_t *out = put32(c->output + c->output_size + 4, correlation_id);
    out = put_string(put32(out, 1), name, name_size);
    out = put32(put32(out, 1), partition);
    out = put64(put16(out, (uint16_t)error), (uint64_t)base);
    out = put64(put64(out, (uint64_t)-1), 0); /* append time, log start offset */
    finish_response(c, put32(out, 0), 0);
}

/* Fetch v11 of one partition: where an offset is follows from the one size of all batches. */
static void fetch(Connection *c, const uint8_t *p, uint32_t correlation_id) {
    p += 16 + 1 + 8 + 4;
    uint16_t name_size = get16(p);
    const uint8_t *name = p + 2;
    p += 2 + name_size + 4;
    uint32_t partition = get32(p) % FILES, max_bytes = get32(p + 24);
    const File *file = &files[partition];
    int64_t offset = (int64_t)get64(p + 8);
    off_t position = batch_records > 0 ? offset / batch_records * batch_bytes : 0;
    size_t left = file->end > position ? (size_t)(file->end - position) : 0;
    if (left > max_bytes) {
        left = (size_t)(max_bytes / batch_bytes * batch_bytes);
    }
    uint8_t *out = put32(c->output + c->output_size + 4, correlation_id);
    out = put32(put16(put32(out, 0), 0), 0); /* throttle time, error, session */
    out = put_string(put32(out, 1), name, name_size);
    out = put16(put32(put32(out, 1), partition), 0);
    out = put64(put64(out, (uint64_t)file->next), (uint64_t)file->next);
    out = put32(put64(out, 0), 0); /* log start offset, aborted transactions */
    out = put32(put32(out, (uint32_t)-1), (uint32_t)left);
    finish_response(c, out, left);
    c->file = file->fd;
    c->position = position;
    c->left = left;
}

static void handle(Connection *c, uint8_t *request) {
    int key = get16(request);
    uint32_t correlation_id = get32(request + 4);
    uint8_t *body = request + 10 + get16(request + 8);
    if (key == KEY_PRODUCE) {
        produce(c, body, correlation_id);
    } else if (key == KEY_FETCH) {
        fetch(c, body, correlation_id);
    } else {
        uint8_t *out = put32(c->output + c->output_size + 4, correlation_id);
        finish_response(c, put32(put16(out, 0), 0), 0);
    }
}

/* ---- connections ----------------------------------------------------------------------------- */

static int blocked(const Connection *c) { return c->left > 0 || c->output_size >= OUTPUT_FULL; }

/* Handles whole requests of the input while there is room for answers; true if there was one. */
static int handle_input(Connection *c) {
    size_t at = 0;
    while (c->input_size - at >= 4 && !blocked(c)) {
        size_t size = 4 + (size_t)get32(c->input + at);
        if (c->input_size - at < size) {
            break;
        }
        handle(c, c->input + at + 4);
        at += size;
    }
    if (at > 0) {
        memmove(c->input, c->input + at, c->input_size - at);
        c->input_size -= at;
    }
    return at > 0;
}

static void flush(Connection *c) {
    while (c->sent < c->output_size) {
        int flags = MSG_NOSIGNAL | (c->left > 0 ? MSG_MORE : 0);
        ssize_t sent = send(c->fd, c->output + c->sent, c->output_size - c->sent, flags);
        if (sent < 0) {
            return;
        }
        c->sent += (size_t)sent;
    }
    c->sent = c->output_size = 0;
    while (c->left > 0) {
        ssize_t sent = sendfile(c->fd, c->file, &c->position, c->left);
        if (sent <= 0) {
            return;
        }
        c->left -= (size_t)sent;
    }
}

/* Reads and handles until the socket is empty or the output is full; false once the peer is gone.
 * Where writes are synced the answers stay until the turn's end. */
static int serve(Connection *c) {
    if (!synced) {
        flush(c);
    }
    while (!blocked(c)) {
        ssize_t got = read(c->fd, c->input + c->input_size, INPUT_ROOM - c->input_size);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            return 0;
        }
        c->input_size += got > 0 ? (size_t)got : 0;
        int handled = handle_input(c);
        if (!synced) {
            flush(c);
        }
        if (got < 0 && !handled) {
            return 1;
        }
    }
    return 1;
}

static void accept_one(int listener, int poller) {
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Connection *c = allocate(1, sizeof *c);
    c->fd = fd;
    c->input = malloc(INPUT_ROOM);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static void close_connection(Connection *c) {
    close(c->fd);
    free(c->input);
    free(c);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void sync_files(void) {
    for (int i = 0; i < FILES; i++) {
        if (files[i].dirty) {
            fdatasync(files[i].fd);
            files[i].dirty = 0;
        }
    }
}

/* Syncs what the turn wrote, then answers. Whoever waited for room in its output goes on, which may
 * write again. */
static void finish_turn(struct epoll_event *events, int count) {
    int again = 1;
    while (again) {
        again = 0;
        sync_files();
        for (int i = 0; i < count; i++) {
            Connection *c = events[i].data.ptr;
            int was_blocked = c != NULL && blocked(c);
            if (c != NULL) {
                flush(c);
            }
            if (was_blocked && !blocked(c)) {
                again = 1;
                if (!serve(c)) {
                    close_connection(c);
                    events[i].data.ptr = NULL;
                }
            }
        }
    }
}

static void loop(int listener, int poller) {
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            Connection *c = events[i].data.ptr;
            if (c == NULL) {
                accept_one(listener, poller);
            } else if (!serve(c)) {
                close_connection(c);
                events[i].data.ptr = NULL;
            }
        }
        if (synced) {
            finish_turn(events, count);
        }
    }
}

static void open_files(const char *directory) {
    for (int i = 0; i < FILES; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.log", directory, i);
        files[i].fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (files[i].fd < 0) {
            die(path);
        }
    }
}

static void write_blocks(int count, off_t limit) {
    uint8_t *zeros = allocate(1, CHUNK);
    file_limit = limit;
    for (int i = 0; i < count; i++) {
        for (off_t at = 0; at < limit; at += CHUNK) {
            if (pwrite(files[i].fd, zeros, CHUNK, at) != CHUNK) {
                die("pwrite");
            }
        }
        fsync(files[i].fd);
    }
    free(zeros);
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);  // not paced, as kbroker is not
    if (bind(listener, (void *)&address, size) != 0 || listen(listener, LISTEN_BACKLOG) != 0) {
        die("listen");
    }
    getsockname(listener, (void *)&address, &size);
    printf("127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "floor DIRECTORY page-cache|sync|sync64\n");
        return 2;
    }
    open_files(arguments[1]);
    synced = strncmp(arguments[2], "sync", 4) == 0;
    if (synced) {
        int many = strcmp(arguments[2], "sync64") == 0;
        write_blocks(many ? FILES : 4, many ? 16 << 20 : 512 << 20);
    }
    int listener = listen_on_loopback(), poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    loop(listener, poller);
}
