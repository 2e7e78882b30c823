"""After a crash: what the journal has and the segments may not have, put into the logs.

`replay` comes after the logs were opened and their torn tails cut (each log then ends with a
whole batch), and before anything is appended. Entries below a log's end are there already;
those that continue it are appended. Then the logs are flushed and `remove` takes the journal
away: a crash in between only means that the same is done again.

A hole (a segment ends before the next one begins) is where the name of the next one reached the
disk and the last bytes of this one did not. Where the journal has the entry that follows, it has
all entries since: the log is cut there and they are appended. Compaction leaves such holes as well,
below the cleaner's checkpoint; those stay. So does all below the recovery point: it is on disk, and
a journal that the partition has left for another directory and come back to may not have all since.

A gap (an entry beyond the log's end) can come from nothing but a lost or damaged segment: it is
counted and that partition's later entries are left alone.
"""
from typing import NamedTuple

from libc.stdint cimport int32_t, int64_t

from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_parse
from kbroker.ext.clock cimport realtime_ms
from kbroker.ext.journal_walk cimport JournalReader, JournalWalk, walk_next
from kbroker.ext.log cimport Log
from kbroker.ext.log_errors cimport check
from kbroker.ext.log_append cimport log_append_as_is
from kbroker.ext.log_state cimport LOG_OFFSET_OUT_OF_RANGE


class Replayed(NamedTuple):
    """What a replay did. Bytes are of batches."""

    files: int
    groups: int
    batches: int
    applied: int
    applied_bytes: int
    gaps: int


cdef bint follows_a_hole(Log log, int64_t offset, int64_t cleaned) noexcept:
    """Whether a segment ends there, of those that were walked or are empty, and the next one begins
    later; below `cleaned` it is compaction that took away what was between."""
    cdef int32_t i
    for i in range(log.core.count - 1):
        if log.core.segments[i + 1].base_offset <= cleaned:
            continue
        if log.core.segments[i].next_offset == offset < log.core.segments[i + 1].base_offset:
            return log.core.segments[i].size == 0 or log.core.segments[i].base_offset < offset
    return False


cdef int apply_entry(JournalWalk* walk, Log log, int64_t cleaned) except? -99:
    """1: appended. 0: it was there. -1: a gap. Raises DiskError: full, or failed."""
    cdef BatchInfo info
    cdef int code
    if walk.base_offset < log.core.leo:
        if walk.base_offset < max(log.core.log_start, log.core.recovery_point):
            return 0
        if not follows_a_hole(log, walk.base_offset, cleaned):
            return 0
        log.truncate_to(walk.base_offset)
    if batch_parse(walk.batch, walk.batch + walk.batch_bytes, &info) != BATCH_OK:
        return -1
    code = log_append_as_is(log.core, walk.batch, &info, realtime_ms())
    if code == LOG_OFFSET_OUT_OF_RANGE:
        return -1
    check(log.core, code)
    return 1


def replay(directory, logs, cleaned=None):
    """Append to each log what only the journal has. `logs`: (topic id, partition) to Log;
    `cleaned`: to the first offset that compaction has not seen.

    Entries of topics that are not in `logs` were deleted and are passed over.
    """
    cdef JournalReader walk = JournalReader(directory)
    cdef int done
    batches = applied = applied_bytes = gaps = 0
    gapped = set()
    while walk_next(&walk.walk):
        batches += 1
        key = (walk.topic_id(), walk.walk.partition)
        log = logs.get(key)
        if log is None or key in gapped:
            continue
        done = apply_entry(&walk.walk, log, cleaned.get(key, 0) if cleaned else 0)
        if done > 0:
            applied += 1
            applied_bytes += walk.walk.batch_bytes
        elif done < 0:
            gaps += 1
            gapped.add(key)
    return Replayed(walk.walk.files_count, walk.walk.groups, batches, applied, applied_bytes, gaps)
