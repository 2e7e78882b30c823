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

A gap (an entry beyond the log's end) can come from nothing but a lost or damaged segment, or from
damage of the journal that was skipped: that partition's later entries are left out and counted.
"""
from collections import Counter
from typing import NamedTuple

from libc.stdint cimport int32_t, int64_t

from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_parse
from kbroker.ext.clock cimport realtime_ms
from kbroker.ext.journal_reader cimport JournalReader
from kbroker.ext.journal_walk cimport JournalWalk, walk_next
from kbroker.ext.log cimport Log
from kbroker.ext.log_errors cimport check
from kbroker.ext.log_recovery cimport log_close_files
from kbroker.ext.log_append cimport log_append_as_is
from kbroker.ext.log_state cimport LOG_OFFSET_OUT_OF_RANGE, log_floor
from kbroker.ext.segment cimport Segment


cdef enum:
    OPEN_LOGS_MAX = 256


class Replayed(NamedTuple):
    """The result of a replay. Bytes are of batches.

    gaps: batches left out, by topic id and partition. skipped: a text for each damage that was
    skipped. damaged: the files that have it.
    """

    files: int
    groups: int
    batches: int
    applied: int
    applied_bytes: int
    gaps: dict
    skipped: list
    damaged: list


cdef int close_files(set logs) except -1:
    """Let go of what the logs have opened: a start may have more logs than descriptors."""
    for log in logs:
        log_close_files((<Log>log).core)
    logs.clear()
    return 0


cdef bint follows_a_hole(Log log, int64_t offset, int64_t cleaned) noexcept:
    """Return whether a segment that was walked, or is empty, ends at the offset and the next one
    begins later. Below `cleaned` it is compaction that took away what was between."""
    cdef int32_t i = log_floor(log.core, offset)
    cdef Segment* s
    if i < 0 or i + 1 >= log.core.count:
        return False
    s = log.core.segments[i]
    return s.next_offset == offset and log.core.segments[i + 1].base_offset > cleaned \
        and (s.size == 0 or s.base_offset < offset)


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


def replay(directory, logs, cleaned=None, *, skip_damage=False):
    """Append to each log what only the journal has. `logs`: (topic id, partition) to Log;
    `cleaned`: to the first offset that compaction has not seen.

    Entries of topics that are not in `logs` are of deleted topics, and are skipped. Raises WalError
    at damage, when all before it has been appended, unless `skip_damage` is set.
    """
    cdef JournalReader reader = JournalReader(directory, skip_damage=skip_damage)
    cdef JournalWalk* walk = &reader.walk
    cdef int done
    batches = applied = applied_bytes = 0
    open_logs = set()
    gaps = Counter()
    while walk_next(walk):
        batches += 1
        key = reader.key()
        log = logs.get(key)
        if log is None:
            continue
        if key in gaps:
            gaps[key] += 1
            continue
        done = apply_entry(walk, log, cleaned.get(key, 0) if cleaned else 0)
        if done > 0:
            applied += 1
            applied_bytes += walk.batch_bytes
            open_logs.add(log)
            if len(open_logs) == OPEN_LOGS_MAX:
                close_files(open_logs)
        elif done < 0:
            gaps[key] += 1
    close_files(open_logs)
    reader.finish()
    return Replayed(walk.used_count, walk.groups, batches, applied, applied_bytes, dict(gaps),
                    reader.skipped(), reader.damaged_files())
