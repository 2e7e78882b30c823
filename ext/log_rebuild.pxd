"""What a log knows beside its batches, built again from them: indexes, leader epochs, producers.

The log is not shared yet, or its lock is held. Functions that return int give a LogError.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log
from kbroker.ext.segment cimport Segment
from kbroker.ext.snapshots cimport Snapshots

ctypedef struct Rebuilt:
    int64_t bytes_walked                # with their CRC
    int64_t bytes_cut
    int32_t indexes_rebuilt
    int32_t segments_dropped

ctypedef struct Start:                  # where the walk of a segment begins
    int64_t position
    int64_t offset

# Bytes below recovery_point are on disk: where the index leads to a batch below it, the walk can
# begin there. What the indexes hold of later batches is dropped.
cdef int rebuild_start(Log* log, Segment* s, int64_t recovery_point, Start* out) noexcept nogil
# Walk the segment's batches with their CRC, cut it at the first that is not whole or not in
# order, write its indexes anew, fold its batches into epochs and producers (which must stand at
# start.offset). *torn: something was cut.
cdef int rebuild_segment(Log* log, Segment* s, const Start* start, Rebuilt* report,
                         bint* torn) noexcept nogil
# The end of the active segment after a clean shutdown: next offset, timestamps. *torn: there is
# something that is no batch.
cdef int rebuild_end(Log* log, Segment* s, bint* torn) noexcept nogil
# The next offset of a segment that may have been active in a crash, whose indexes may end in zeros.
cdef int find_end(Log* log, Segment* s) noexcept nogil
# Producers as they stood at `end`: the newest snapshot at or below it, and the batches between.
# Snapshots beyond are removed. Markers below `stable` are stable. `always`: walk from log start
# when there is no snapshot.
cdef int rebuild_producers(Log* log, Snapshots* snapshots, int64_t end, int64_t stable,
                           int64_t now_ms, bint always) noexcept nogil
# Leader epochs from every batch header (the checkpoint was lost).
cdef int rebuild_epochs(Log* log) noexcept nogil
