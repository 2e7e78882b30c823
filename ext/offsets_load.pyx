"""Loading a partition of `__consumer_offsets`, for a thread of the broker that may take its time;
with `commits=False` one of `__transaction_state`, whose records are all given out as they are.

The log is read and folded without the GIL (see offsets_fold.pxd, offsets_rows.pyx). What cannot be
read is left out and told in `problems`, never raised: a damaged batch costs itself and, where not
even its length can be trusted, what lies up to the next place that the log's index knows. Only a
log that is offline or closed ends a load, and with `strict` a read that the disk refuses, which may
work the next time.
"""
import os

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc

from kbroker.ext.atomics cimport atomic_load_i32
from kbroker.ext.batch cimport (
    BATCH_OK, BATCH_SHORT, RECORDS_OFFSET, BatchInfo, batch_crc_ok, batch_parse,
)
from kbroker.ext.log cimport Log
from kbroker.ext.log_errors cimport check
from kbroker.ext.log_read cimport ReadSlice, log_read
from kbroker.ext.log_state cimport (
    LOG_CLOSED, LOG_CORRUPT, LOG_NO_MEMORY, LOG_OFFSET_OUT_OF_RANGE, LOG_OK, LOG_STORAGE_ERROR,
    READ_TO_LEO, Log as LogStruct,
)
from kbroker.ext.offsets_fold cimport (
    FOLD_NO_CODEC, FOLD_OK, Fold, fold_open, fold_problem, fold_records,
)
from kbroker.ext.offsets_rows cimport OffsetsFold
from kbroker.ext.segment cimport segment_unref
from kbroker.ext.walk cimport read_fully

from kbroker.errors import DiskError

cdef enum:
    LOAD_END = 2                    # beside the FOLD_ codes
    LOAD_READ = 3                   # a piece of the log was read
    LOAD_LOG = -3                   # the log's error is in `log_code`
    STEP_BYTES = 5 << 20            # offsets.load.buffer.size
    PLAIN_BYTES_MAX = 100 << 20     # of one batch, decompressed

ctypedef struct Load:
    LogStruct* log
    Fold* fold
    uint8_t* buffer
    size_t room
    size_t at                       # the next batch in the buffer
    size_t filled
    int64_t position                # offset behind the last sound batch
    int64_t end
    int64_t leo                     # of the log, when the buffer was read
    int64_t bytes
    int32_t step_bytes
    int log_code
    bint strict                     # what the disk refuses to read is no damage
    bint refused
    bint open                       # fold_records goes on in the batch before `at`


# ---- without the GIL

cdef int refused_code(Load* load) noexcept nogil:
    """Of a read that the disk refused."""
    if atomic_load_i32(&load.log.offline):
        return LOG_STORAGE_ERROR
    load.refused = load.strict
    return LOG_STORAGE_ERROR if load.strict else LOG_CORRUPT


cdef int read_at(Load* load, int64_t offset, int32_t most) noexcept nogil:
    """Batches from `offset` on into the buffer; LOG_OK and nothing filled at the end."""
    cdef ReadSlice piece
    cdef void* larger
    cdef int64_t got
    cdef int code = log_read(load.log, offset, most, READ_TO_LEO, True, &piece)
    load.at = load.filled = 0
    load.leo = piece.at.leo
    if code == LOG_STORAGE_ERROR:
        return refused_code(load)
    if code == LOG_OFFSET_OUT_OF_RANGE and offset < piece.at.log_start:
        load.position = piece.at.log_start      # cut off at its beginning meanwhile
        return LOG_OK if load.position >= load.end else read_at(load, load.position, most)
    if code != LOG_OK or piece.segment == NULL:
        return code
    if <size_t> piece.length > load.room:
        larger = realloc(load.buffer, <size_t> piece.length)
        if larger == NULL:
            segment_unref(piece.segment)
            return LOG_NO_MEMORY
        load.buffer = <uint8_t*> larger
        load.room = <size_t> piece.length
    got = read_fully(piece.fd, load.buffer, piece.length, piece.position)
    segment_unref(piece.segment)
    if got <= 0:
        return LOG_CORRUPT if got == 0 else refused_code(load)
    load.filled = <size_t> got
    return LOG_OK


cdef bint is_next(Load* load, const BatchInfo* info) noexcept nogil:
    """Could this be the batch at `position`, as far as offsets go? What they are is not covered by
    its checksum."""
    cdef int64_t last = info.base_offset + info.last_offset_delta
    return info.last_offset_delta >= 0 and load.position <= last < load.leo


cdef bint is_sound(Load* load, int64_t offset) noexcept nogil:
    """Does reading from `offset` lead to a whole batch, or to the end?"""
    cdef BatchInfo info
    load.position = offset
    if offset >= load.end:
        return True
    if read_at(load, offset, RECORDS_OFFSET) != LOG_OK:
        return False
    if load.filled == 0:
        return True
    return (batch_parse(load.buffer, load.buffer + load.filled, &info) == BATCH_OK
            and is_next(load, &info) and batch_crc_ok(load.buffer, &info))


cdef void pass_over(Load* load) noexcept nogil:
    """At `position` is no batch that can be read: go to the first offset from which one can. A
    strict load ends there if the disk refuses a read on the way (`refused`): behind it may be
    batches that are sound."""
    cdef int64_t bad = load.position
    cdef int64_t good
    cdef int64_t middle
    cdef int64_t step = 1
    fold_problem(load.fold, bad, "a batch is damaged: passed over to the next sound one")
    while True:
        good = min(load.end, bad + step)
        if is_sound(load, good) or load.refused:
            break
        bad = good
        step *= 2
    while good - bad > 1 and not load.refused:
        middle = bad + (good - bad) // 2
        if is_sound(load, middle):
            good = middle
        else:
            bad = middle
    load.position = good
    load.at = load.filled = 0


cdef int at_end(Load* load) noexcept nogil:
    """A log that failed meanwhile has an end as well, but not its own."""
    load.log_code = LOG_OK
    if atomic_load_i32(&load.log.closed):
        load.log_code = LOG_CLOSED
    elif atomic_load_i32(&load.log.offline):
        load.log_code = LOG_STORAGE_ERROR
    return LOAD_END if load.log_code == LOG_OK else LOAD_LOG


cdef int read_on(Load* load) noexcept nogil:
    cdef int code
    if load.refused:
        load.log_code = LOG_STORAGE_ERROR
        return LOAD_LOG
    if load.position >= load.end:
        return at_end(load)
    code = read_at(load, load.position, load.step_bytes)
    if code == LOG_CORRUPT:
        pass_over(load)
        return LOAD_READ
    if code != LOG_OK:
        load.log_code = code
        return LOAD_LOG
    load.bytes += <int64_t> load.filled
    if load.filled > 0:
        return LOAD_READ
    if load.position < min(load.end, load.leo):
        fold_problem(load.fold, load.position, "nothing can be read from here to the log's end")
    return at_end(load)


cdef int open_batch(Load* load) noexcept nogil:
    """The next batch of the buffer."""
    cdef BatchInfo info
    cdef const uint8_t* p = load.buffer + load.at
    cdef int code = batch_parse(p, load.buffer + load.filled, &info)
    if code == BATCH_SHORT and load.at > 0:
        load.filled = 0                         # cut by the read: again from its beginning
        return FOLD_OK
    if code != BATCH_OK or not is_next(load, &info) or not batch_crc_ok(p, &info):
        pass_over(load)
        return FOLD_OK
    if info.base_offset >= load.end:
        load.position = load.end
        load.filled = 0
        return FOLD_OK
    load.at += <size_t> info.length
    load.position = info.base_offset + info.last_offset_delta + 1
    load.open = True
    return fold_open(load.fold, p, &info, PLAIN_BYTES_MAX)


cdef int load_on(Load* load) noexcept nogil:
    """One piece of the log, or as far as records can be kept."""
    cdef int code = FOLD_OK
    while code == FOLD_OK:
        if load.open:
            code = fold_records(load.fold)
            if code == FOLD_OK:
                load.open = False
        elif load.at < load.filled:
            code = open_batch(load)
        else:
            code = read_on(load)
    return code


# ---- the face

cdef class OffsetsLoad(OffsetsFold):
    """The load of one log, from its start to `end_offset` (the log's end unless told)."""

    cdef Load* load
    cdef Log log
    cdef bint failed                # a step raised: what it had begun is not finished

    def __cinit__(self, Log log not None, *, object end_offset=None,
                  int32_t step_bytes=STEP_BYTES, bint commits=True, bint strict=False):
        self.load = <Load*> calloc(1, sizeof(Load))
        if self.load == NULL:
            raise MemoryError("no memory for a load")
        self.log = log
        self.load.log = log.core
        self.load.fold = self.fold
        self.load.position = log.log_start_offset
        self.load.end = log.log_end_offset if end_offset is None else end_offset
        self.load.step_bytes = max(step_bytes, 1)
        self.load.strict = strict

    def __dealloc__(self):
        if self.load != NULL:
            free(self.load.buffer)
            free(self.load)

    @property
    def position(self):
        """The next offset to be read."""
        return self.load.position

    @property
    def end_offset(self):
        return self.load.end

    @property
    def bytes_read(self):
        return self.load.bytes

    def step(self):
        """Read on: the records met that are no commits of offsets, in order, each (offset, key,
        value or None). Afterwards `done` says whether this was the last. A load that failed cannot
        continue: records may be missing from the fold. Raises RuntimeError then."""
        cdef list found
        if self.done:
            return []
        if self.failed:
            raise RuntimeError("the load failed before; load the log again from its start")
        self.failed = True
        found = self.read_piece()
        self.failed = False
        return found

    cdef list read_piece(self):
        cdef Load* load = self.load
        cdef BatchInfo info
        cdef int code
        with nogil:
            code = load_on(load)
        if code == FOLD_NO_CODEC:
            info = load.fold.batch
            self.decompress(load.buffer + load.at - info.length, &info)
        elif code == LOAD_LOG and load.refused:
            raise DiskError(os.fsdecode(load.log.dir), "the disk refuses to read it")
        elif code == LOAD_LOG:
            check(load.log, load.log_code)
        else:
            self.check(code)
        found = self.take_others()
        self.done = code == LOAD_END
        return found
