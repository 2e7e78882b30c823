"""Answers: straight into the connection's output, or through a parked operation.

In a handler, when the answer is known:

    cdef uint8_t* body = reply_begin(&request.reply, bytes_max)   # after the response header
    ... write, perhaps reply_region(&request.reply, n, ...) after n bytes of body ...
    reply_end(&request.reply, n)        # or reply_abandon, and return H_CLOSE
    return H_DONE

`request.reply` writes into the connection's output when no earlier request of the connection is
unanswered, else into an Op, made at the latest when the reply begins: the handler does not care.

When the answer must wait:

    cdef Op* op = op_park(request)        # its place in the order of answers; NULL: out of memory
    op.on_event, op.on_timeout, op.on_cancel, op.u[...] = ...
    op_hold(op)                           # one for each other thread that will keep it
    op_deadline(op, milliseconds)         # optional
    return H_PENDING

and later, on the network thread (on_event, on_timeout): reply_begin(&op.reply, ...), reply_end,
op_ready(op). Another thread calls op_post(op), then op_release(op) when it keeps it no longer.
After op_ready or on_cancel the Op gets no more callbacks. `on_event` may be called when nothing
happened; it looks at its own condition. Nothing here may be called while holding a log lock, except
op_post, op_hold and op_release.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.connection cimport Connection, NetThread, Op, RegionRelease, Reply, Request

cdef enum:
    REPLY_HEADER_BYTES = 9  # length, correlation id, tagged fields

# ---- writing an answer; NULL when memory is out (then return H_CLOSE) --------------------------
cdef uint8_t* reply_begin(Reply* reply, uint32_t bytes_max) noexcept nogil
# length bytes of fd from position follow the first `written` bytes of body; calls in ascending
# order. release(ref) is called once in any case, also when the connection dies. 0 or -1.
cdef int reply_region(Reply* reply, uint32_t written, int32_t fd, int64_t position,
                      int64_t length, void* ref, RegionRelease release) noexcept nogil
cdef void reply_end(Reply* reply, uint32_t written) noexcept nogil
# Instead of reply_end, where the answer cannot be completed: nothing of it is sent. Then H_CLOSE,
# or op_close of an Op.
cdef void reply_abandon(Reply* reply) noexcept nogil
# An answer without a header, of an Op, in one step: where its bytes go.
cdef uint8_t* reply_bare(Reply* reply, uint32_t length) noexcept nogil

# ---- operations, network thread ----------------------------------------------------------------
cdef Op* op_park(Request* request) noexcept nogil
cdef void op_ready(Op* op) noexcept nogil
cdef void op_deadline(Op* op, int64_t milliseconds) noexcept nogil      # < 0 disarms
# Answer nothing and close the connection at the end of the turn; reason is a static string.
cdef void op_close(Op* op, const char* reason) noexcept nogil

# ---- operations, any thread --------------------------------------------------------------------
cdef void op_hold(Op* op) noexcept nogil
cdef void op_post(Op* op) noexcept nogil
cdef void op_release(Op* op) noexcept nogil

# ---- between response, the loop and the queues -------------------------------------------------
cdef Op* op_new(NetThread* thread) noexcept nogil
cdef void op_drop(Op* op) noexcept nogil                # op_release on its own thread
cdef void flush_later(Connection* connection) noexcept nogil
cdef void ready_later(Connection* connection) noexcept nogil
cdef void connection_unblock(Connection* connection, uint32_t block) noexcept nogil
cdef void connection_cancel_ops(Connection* connection) noexcept nogil
cdef void thread_free_caches(NetThread* thread) noexcept nogil
