"""The fold of `__consumer_offsets` as Python sees it (see offsets_fold.pxd).

The GIL is held to make at most OTHERS_MAX records, or as many rows as were asked for, at a time.
Strings are made once and shared by all rows that name them.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kbroker.ext.batch cimport BATCH_OK, RECORDS_OFFSET, BatchInfo, batch_parse
from kbroker.ext.byte_table cimport TableItem
from kbroker.ext.compression cimport CODEC_OK, buffer_free, buffer_put
from kbroker.ext.offsets_fold cimport (
    FOLD_MORE, FOLD_NO_CODEC, FOLD_OK, NO_TOPIC_ID, PROBLEMS_MAX, Commit, Entry, Fold, Other,
    Pending, fold_free, fold_init, fold_open, fold_open_plain, fold_problem, fold_records,
)
from kbroker.ext.offsets_record cimport UUID_BYTES
from kbroker.ext.wire cimport store_i32, store_i64

from kbroker.ext.records import DECOMPRESSED_BYTES_MAX as _LIMIT
from kbroker.ext.records import BatchError, python_decompress

cdef enum:
    OTHERS_KEPT_BYTES_MAX = 4 << 20
    PACKED_BYTES = 8 + 4 + 8 + 8 + UUID_BYTES


cdef class OffsetsFold:
    """Batches in, in the order of the log; what holds in the end out."""

    def __cinit__(self, *_, bint commits=True, **__):
        self.fold = <Fold*> calloc(1, sizeof(Fold))
        if self.fold == NULL:
            raise MemoryError("no memory for the fold of a partition")
        fold_init(self.fold, int.from_bytes(os.urandom(8), "big"))
        self.fold.keeps_all = not commits
        self.names = []

    def __dealloc__(self):
        if self.fold != NULL:
            fold_free(self.fold)
            free(self.fold)

    @property
    def records_read(self):
        return self.fold.records

    @property
    def problem_count(self):
        return self.fold.problems_count

    @property
    def problems(self):
        """(offset, what is wrong in words) of the first of them, at most 100."""
        cdef Fold* fold = self.fold
        cdef int64_t i
        return [(fold.problems[i].offset, (<bytes> fold.problems[i].reason).decode())
                for i in range(min(fold.problems_count, <int64_t> PROBLEMS_MAX))]

    def feed(self, data, size_t limit=_LIMIT):
        """Fold the whole batches at the beginning of a buffer, whose checksums are not looked
        at, each decompressed to at most `limit` bytes: the records among them that are no commits
        of offsets, in order, each (offset, key, value or None)."""
        cdef const uint8_t[::1] view = data
        cdef size_t n = view.shape[0]
        cdef size_t at = 0
        cdef BatchInfo info
        cdef int code
        cdef list found = []
        while at < n and batch_parse(&view[at], &view[0] + n, &info) == BATCH_OK:
            with nogil:
                code = fold_open(self.fold, &view[at], &info, limit)
            if code == FOLD_NO_CODEC:
                code = self.decompress(&view[at], &info)
            while code == FOLD_OK or code == FOLD_MORE:
                with nogil:
                    code = fold_records(self.fold)
                found += self.take_others()
                if code == FOLD_OK:
                    break
            self.check(code)
            at += info.length
        self.done = True
        return found

    cdef int check(self, int code) except -1:
        if code < 0:
            raise MemoryError("no memory for the offsets of a partition")
        return 0

    cdef int decompress(self, const uint8_t* p, const BatchInfo* info) except -1:
        """Of a batch that fold_open said FOLD_NO_CODEC for: by Python's libraries."""
        cdef Fold* fold = self.fold
        cdef bytes plain
        try:
            plain = python_decompress(
                info.compression, p[RECORDS_OFFSET:info.length], _LIMIT)
        except BatchError:
            fold_problem(fold, info.base_offset, "the records do not decompress")
            return FOLD_OK
        if buffer_put(&fold.plain, <const uint8_t*> plain, len(plain)) != CODEC_OK:
            raise MemoryError("no memory for the records of a batch")
        fold_open_plain(fold, info, fold.plain.p, fold.plain.n)
        return FOLD_OK

    cdef list take_others(self):
        cdef Fold* fold = self.fold
        cdef const char* p = <const char*> fold.others_bytes.p
        cdef Other* other
        cdef list found = []
        cdef int32_t i
        for i in range(fold.others_count):
            other = &fold.others[i]
            key = PyBytes_FromStringAndSize(p + other.at, other.key_bytes)
            value = None
            if other.value_bytes >= 0:
                value = PyBytes_FromStringAndSize(p + other.at + other.key_bytes,
                                                  other.value_bytes)
            found.append((other.offset, key, value))
        fold.others_count = 0
        fold.others_bytes.n = 0
        if fold.others_bytes.room > OTHERS_KEPT_BYTES_MAX:
            buffer_free(&fold.others_bytes)
        return found

    cdef str name(self, uint32_t number):
        cdef TableItem* item = &self.fold.names.items[number]
        if number >= <uint32_t> len(self.names):
            self.names.extend([None] * (self.fold.names.count - len(self.names)))
        found = self.names[number]
        if found is None:
            found = PyUnicode_DecodeUTF8(<const char*> item.p, item.n, NULL)
            self.names[number] = found
        return <str> found

    cdef bytes packed_commit(self, const Commit* commit):
        """See kbroker.group.committed."""
        cdef Py_ssize_t size = PACKED_BYTES + commit.metadata_bytes
        cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t* p = <uint8_t*> PyBytes_AS_STRING(made)
        store_i64(p, commit.offset)
        store_i32(p + 8, commit.leader_epoch)
        store_i64(p + 12, commit.commit_timestamp)
        store_i64(p + 20, commit.expire_timestamp)
        if commit.topic_id == NO_TOPIC_ID:
            memset(p + 28, 0, UUID_BYTES)
        else:
            memcpy(p + 28, self.fold.ids.items[commit.topic_id].p, UUID_BYTES)
        if commit.metadata != NULL:
            memcpy(p + PACKED_BYTES, commit.metadata, commit.metadata_bytes)
        return made

    def packed(self, int32_t most=1000):
        """When done: at most so many of the commits that hold, each once; empty after the last.
        (group, topic, partition, as the coordinator keeps it: int64 offset, int32 leader epoch,
        int64 commit timestamp, int64 expire timestamp, 16 bytes topic id or zeros, metadata)."""
        cdef Fold* fold = self.fold
        cdef list found = []
        cdef Entry* entry
        cdef uint32_t number = self.next_entry
        self.wants_done()
        while number < fold.keys.count and len(found) < most:
            entry = &fold.entries[number]
            number += 1
            if entry.live:
                found.append((self.name(entry.group), self.name(entry.topic), entry.partition,
                              self.packed_commit(&entry.commit)))
        self.next_entry = number        # not before all rows are made: memory may run out
        return found

    def pending(self):
        """When done: the commits of transactions that are open at the end, in the order of the
        log: (producer id, effective, group, topic, partition, as `packed`). Where a commit of the
        same key stands behind it in the log already, it is not effective: it will change nothing,
        but until its transaction ends the offset is not stable."""
        cdef Fold* fold = self.fold
        cdef list found = []
        cdef Pending* pending
        cdef Entry* entry
        cdef uint32_t i
        self.wants_done()
        for i in range(fold.pairs.count):
            pending = &fold.pendings[i]
            if not pending.live:
                continue
            entry = &fold.entries[pending.entry]
            effective = (not entry.live
                         or pending.commit.record_offset > entry.commit.record_offset)
            found.append((
                pending.commit.record_offset, pending.producer_id, effective,
                self.name(entry.group), self.name(entry.topic), entry.partition,
                self.packed_commit(&pending.commit),
            ))
        found.sort()                    # no two have one offset: nothing else is compared
        return [row[1:] for row in found]

    cdef int wants_done(self) except -1:
        if not self.done:
            raise RuntimeError("commits are known when the whole log was read")
        return 0
