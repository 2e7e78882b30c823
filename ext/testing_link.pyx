"""What only tests see of a link: the answers in any bytes that a broker sends."""
import os
import socket

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memset

from kbroker.ext.client_link cimport (
    LINK_BROKEN, LINK_OK, Call, Kept, Link, Loop, kept_free, link_fail, link_flush, link_keep,
    link_new, link_put_header, link_receive, link_submit,
)
from kbroker.ext.client_thread cimport loop_finish, loop_free, loop_new
from kbroker.ext.sockets cimport iovec_t
from kbroker.ext.wire cimport Writer, writer_init

cdef enum:
    CALLS_MAX = 8
    HEAD_BYTES = 64

cdef struct Awaiting:
    Call call                       # first: `done` gets it
    iovec_t piece
    uint8_t head[HEAD_BYTES]
    Loop* loop
    int times                       # that it was done
    int order                       # of being done
    int code
    Kept answer

cdef int done_so_far


cdef void note(Call* call, int code, const uint8_t* p, size_t n) noexcept nogil:
    global done_so_far
    cdef Awaiting* mine = <Awaiting*> call
    mine.times += 1
    mine.order = done_so_far
    mine.code = code
    done_so_far += 1
    if code == LINK_OK and not link_keep(mine.loop, &mine.answer):
        mine.code = LINK_BROKEN


cdef int submit(Awaiting* each, Loop* loop, bint flexible) except -1:
    cdef Writer w
    memset(each, 0, sizeof(Awaiting))
    each.loop = loop
    each.call.api_key = 3
    each.call.flexible = flexible
    each.call.answered = True
    each.call.done = note
    each.call.pieces = &each.piece
    each.call.piece_count = 1
    writer_init(&w, each.head, HEAD_BYTES)
    link_put_header(loop, &w, &each.call)
    each.piece.iov_base = each.head
    each.piece.iov_len = <size_t> (w.p - each.head)
    if link_submit(loop, 0, &each.call) != LINK_OK:
        raise AssertionError("a new link takes no call")
    return 0


def answers(data: bytes, cuts: list[int], calls: int, flexible: bool) -> list:
    """What `calls` calls with the correlation ids from 1 on get of a broker that sends these bytes
    and closes: (code, body), each done once and in order. cuts: where the bytes are cut, so that
    the link gets them in pieces."""
    cdef Awaiting awaiting[CALLS_MAX]
    cdef Loop* loop = loop_new()
    cdef Link* link
    cdef int i
    global done_so_far
    if loop == NULL:
        raise MemoryError
    done_so_far = 0
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    link = link_new(loop, 0, os.dup(theirs.fileno()), NULL)
    theirs.setblocking(False)
    theirs.close()
    loop.links[0] = link
    link.active = link.writable = True
    for i in range(calls):
        submit(&awaiting[i], loop, flexible)
    link_flush(link)
    at = 0
    for end in [*sorted(cuts), len(data)]:
        while at < end and not link.down:
            at += ours.send(data[at:end])
            link.readable = True
            link_receive(link)
    ours.close()
    link.peer_closed = link.readable = True
    link_receive(link)
    link_fail(link, LINK_BROKEN)
    loop_finish(loop)
    found = []
    for i in range(calls):
        assert awaiting[i].times == 1, f"call {i} was done {awaiting[i].times} times"
        assert awaiting[i].order == i, f"call {i} was done as number {awaiting[i].order}"
        if awaiting[i].code == LINK_OK:
            body = (<const char*> awaiting[i].answer.p)[:awaiting[i].answer.n]
            found.append((awaiting[i].code, body))
            kept_free(&awaiting[i].answer)
        else:
            found.append((awaiting[i].code, b""))
    loop_free(loop)
    return found
