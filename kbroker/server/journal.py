"""The write-ahead logs (WAL), one in each log directory: replayed after a crash, opened at a start.

With durability fsync every append goes to its directory's WAL as well, which takes the sync;
segments are flushed later. Its files are in the directory under names that Apache Kafka ignores.
After a crash they hold records that segments may lack. After a clean stop there are none; files
beside the mark of a clean stop are of an earlier crash, and Apache Kafka has run since.

A WAL that cannot be read to its end may hold acknowledged records that are nowhere else. In the
first directory it refuses the start. Any other directory stays as it is, with its WAL, and is
offline. `kbroker log repair --skip-wal-damage` lets the next start go on without what is damaged.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kbroker.config import BrokerConfig
from kbroker.errors import CorruptFileError, DiskError, OperatorError
from kbroker.ext import journal_reader, journal_recovery
from kbroker.ext.data_plane import DataPlane
from kbroker.ext.log import Log
from kbroker.files import read_offset_checkpoint
from kbroker.storage.checkpoints import CLEANER_OFFSETS
from kbroker.storage.disk import DiskLimits
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key
from kbroker.storage.manager import LogManager

_LOG: Final = logging.getLogger("kbroker.server")

_FILE_BYTES_MAX: Final = 64 << 20
_FILES_MIN_COUNT: Final = 4
_SIZE_BYTES_MIN: Final = 1 << 20
_NAMED_MAX: Final = 20  # partitions in a message


def recover(logs: LogManager, topic_ids: dict[str, bytes]) -> None:
    """Append to the logs what only the WALs have, make the logs durable, remove the WALs.

    A partition that was found in another directory than the metadata have it gets what each WAL has
    of it, so none goes before all are synced.
    """
    _check_found_online(logs)
    damaged: dict[LogDirectory, list[str]] = {}
    for do in (_bring, _sync, _remove):
        for directory in logs.online:
            try:
                do(directory, logs, topic_ids, damaged)
            except (OperatorError, DiskError, OSError) as error:
                if directory is logs.main or _found_in(directory, logs):
                    raise
                logs.deny(directory, str(error))


def _found_in(directory: LogDirectory, logs: LogManager) -> bool:
    """Whether it has, or had, a partition that was found elsewhere: the WALs of both count."""
    return any(
        directory in (logs.homes.get(key), left) for key, left in logs.found.items()
    )


def _check_found_online(logs: LogManager) -> None:
    """Raises OperatorError."""
    for key, left in logs.found.items():
        if left is not None and not left.online and key in logs.homes:
            raise OperatorError(
                f"{key[0]}-{key[1]} was moved by hand from {left} to {logs.homes[key]}, and the "
                f"former, whose journal may have records of it that are nowhere else, cannot be "
                f"used: {left.failure}. See to that, or move the folder back, and start again"
            )


def _bring(
    directory: LogDirectory,
    logs: LogManager,
    topic_ids: dict[str, bytes],
    damaged: dict[LogDirectory, list[str]],
) -> None:
    if not journal_reader.files(str(directory)):
        return
    own = dict(logs.of(directory))
    mine = own | {key: log for key in logs.found if (log := logs.get(*key))}
    try:
        _check_all_open(directory, logs, topic_ids)
        damaged[directory] = _replay(directory, mine, logs, topic_ids)
    except journal_reader.WalError as error:
        raise _refusal(directory, str(error), error.following, topic_ids) from None


def _sync(
    directory: LogDirectory,
    logs: LogManager,
    topic_ids: dict[str, bytes],
    damaged: dict[LogDirectory, list[str]],
) -> None:
    """Sync the file system once for all logs. Records that recovery cut or appended may so far be
    in the page cache only, and no consumer may read what a power cut could take back. It takes the
    time of whatever else the file system has to write: a new directory does without."""
    used = logs.of(directory) or journal_reader.files(str(directory))
    if (used and not directory.started_clean) or _found_in(directory, logs):
        directory.sync()


def _remove(
    directory: LogDirectory,
    logs: LogManager,
    topic_ids: dict[str, bytes],
    damaged: dict[LogDirectory, list[str]],
) -> None:
    path = str(directory)
    if journal_reader.files(path) or journal_reader.skips_damage(path):
        journal_reader.remove(path, damaged.get(directory, ()))


def _refusal(
    directory: LogDirectory,
    what: str,
    batches: Mapping[tuple[bytes, int], int],
    topic_ids: Mapping[str, bytes],
) -> OperatorError:
    """Return the error of a WAL that would be lost in part, with the partitions concerned."""
    about = f"; this is about {_listed(batches, topic_ids)}" if batches else ""
    return OperatorError(
        f"{what}{about}. Acknowledged records may be nowhere else, so nothing was removed. Bring "
        "the files back and start again. To give up what cannot be read, run `kbroker log repair "
        f"--skip-wal-damage -D {directory}` before the next start"
    )


def _listed(batches: Mapping[tuple[bytes, int], int], topic_ids: Mapping[str, bytes]) -> str:
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    parts = [
        f"{names.get(topic_id, 'a deleted topic')}-{partition}: {count}"
        for (topic_id, partition), count in sorted(batches.items())
    ]
    more = ", ..." if len(parts) > _NAMED_MAX else ""
    return (
        f"{sum(batches.values())} batches of {len(parts)} partitions "
        f"({', '.join(parts[:_NAMED_MAX])}{more})"
    )


def _check_all_open(
    directory: LogDirectory, logs: LogManager, topic_ids: dict[str, bytes]
) -> None:
    """What the journal has of a log that could not be opened would be gone with the journal. Raises
    OperatorError."""
    entries: set[tuple[bytes, int]] | None = None
    for key, why in logs.offline.items():
        mine = logs.homes.get(key) is directory
        if not mine and (key in logs.found or (directory.path / f"{key[0]}-{key[1]}").is_dir()):
            if entries is None:
                skip = journal_reader.skips_damage(str(directory))
                entries = journal_reader.keys(str(directory), skip_damage=skip)
            mine = (topic_ids[key[0]], key[1]) in entries
        if mine:
            raise OperatorError(
                f"{key[0]}-{key[1]} cannot be opened, and the journal of the last run may have "
                f"records of it that are nowhere else: {why}. See to that and start again, or move "
                "its folder away, and lose them"
            )


def _replay(
    directory: LogDirectory, mine: dict[Key, Any], logs: LogManager, topic_ids: dict[str, bytes]
) -> list[str]:
    """Return the files that are damaged, where damage is skipped."""
    found = {(topic_ids[topic], partition): log for (topic, partition), log in mine.items()}
    cleaned: dict[tuple[bytes, int], int] = {}
    for one in logs.online if logs.found else [directory]:
        for (topic, partition), offset in _cleaned(one.path).items():
            if topic in topic_ids:
                key = (topic_ids[topic], partition)
                cleaned[key] = max(offset, cleaned.get(key, 0))
    skip = journal_reader.skips_damage(str(directory))
    try:
        done = journal_recovery.replay(str(directory), found, cleaned, skip_damage=skip)
    except DiskError as error:
        raise OperatorError(
            f"{error}: what was acknowledged and only the journal of {directory} has cannot be put "
            "back; see to that and start again, nothing is lost"
        ) from None
    _LOG.info(
        "journal: %d batches in %d files, %d of them (%d bytes) put back into the logs",
        done.batches,
        done.files,
        done.applied,
        done.applied_bytes,
    )
    for text in done.skipped:
        _LOG.error("WAL replay: damage skipped, acknowledged records may be lost: %s", text)
    if not done.gaps:
        return done.damaged
    if not skip:
        what = f"the write-ahead log in {directory} does not go on where logs end"
        raise _refusal(directory, what, done.gaps, topic_ids)
    _LOG.error("WAL replay: batches that do not go on where logs end were left out: %s",
               _listed(done.gaps, topic_ids))  # fmt: skip
    return done.damaged


def _cleaned(directory: Path) -> dict[tuple[str, int], int]:
    """First offset of each log that compaction has not seen; the cleaner tells of a bad file."""
    try:
        return read_offset_checkpoint(directory / CLEANER_OFFSETS)
    except CorruptFileError:
        return {}


def _within_the_disk(config: BrokerConfig, name: str, most: int, share: int) -> int:
    """A size of the journal; where it was left to us, at most so large a share of the disk."""
    size = config.integer(name)
    if most < 0 or name in config.static:
        return size
    return min(size, max(most // share, _SIZE_BYTES_MIN))


def open_all(config: BrokerConfig, data_plane: DataPlane, logs: LogManager, limits: DiskLimits
             ) -> bool:
    """Make every directory's journal and have its logs' appends go through it; whether there are
    any: with durability page-cache there are none."""
    for directory in logs.online:
        if config.durable:
            sizes = settings(config, limits.leave(directory.path))
            try:
                data_plane.open_journal(str(directory), directory.place, **sizes)
            except OSError as error:
                if directory is logs.main:
                    raise DiskError(directory.path, error) from None
                _refuse_appends(directory, logs, error)
        for _, log in logs.of(directory):
            if isinstance(log, Log):
                data_plane.adopt(log, directory.place)
    return config.durable


def _refuse_appends(directory: LogDirectory, logs: LogManager, error: OSError) -> None:
    """Nothing may be appended where it would not be durable; the rest is DiskWatch's."""
    for _, log in logs.of(directory):
        log.take_offline(error.errno or errno.EIO)
    directory.met = directory.met or DiskError(directory.path, error)


def settings(config: BrokerConfig, disk_bytes: int) -> dict[str, int]:
    """Arguments of DataPlane.open_journal. `disk_bytes`: most that the disk's limits leave; -1
    for any."""
    bytes_max = _within_the_disk(config, "kbroker.journal.bytes.max", disk_bytes, 8)
    buffer_bytes = _within_the_disk(config, "kbroker.journal.buffer.bytes", disk_bytes, 64)
    file_bytes = max(min(bytes_max // _FILES_MIN_COUNT, _FILE_BYTES_MAX), 2 * buffer_bytes)
    return {
        "buffer_bytes": buffer_bytes,
        "file_bytes": file_bytes,
        "bytes_max": max(bytes_max, 2 * file_bytes),
        "flush_interval_ms": config.integer("kbroker.flush.interval.ms.max"),
    }
