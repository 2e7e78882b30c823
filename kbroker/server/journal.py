"""The journals over a broker's life, one in each log directory: replayed after a crash, opened.

With durability fsync every append goes to its directory's journal as well, which takes the sync;
segments are flushed later. Its files are in the directory under names that Apache Kafka ignores.
After a crash they hold what segments may lack. After a clean stop there are none; some that are
found beside the mark of a clean stop are left from before somebody else ran on the directory.

What goes wrong with the first directory's refuses the start. Any other directory is left as it is
then, with its journal, and is offline.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any, Final

from kbroker.config import BrokerConfig
from kbroker.errors import CorruptFileError, DiskError, OperatorError
from kbroker.ext import journal_recovery, journal_walk
from kbroker.ext.data_plane import DataPlane
from kbroker.ext.log import Log
from kbroker.ext.log_flush import sync_file_system
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


def recover(logs: LogManager, topic_ids: dict[str, bytes]) -> None:
    """Bring what only the journals have into the logs, make the logs durable, remove the journals.

    A partition that was found in another directory than the metadata have it gets what each journal
    has of it, so none goes before all are synced.
    """
    _check_found_online(logs)
    for do in (_bring, _sync, _remove):
        for directory in logs.online:
            try:
                do(directory, logs, topic_ids)
            except (OperatorError, DiskError, OSError) as error:
                if directory is logs.main or _found_in(directory, logs):
                    raise
                logs.deny(directory, str(error))


def _found_in(directory: LogDirectory, logs: LogManager) -> bool:
    """Whether it has, or had, a partition that was found elsewhere: the journals of both count."""
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


def _bring(directory: LogDirectory, logs: LogManager, topic_ids: dict[str, bytes]) -> None:
    if not journal_walk.files(str(directory)):
        return
    if directory.started_clean:
        _LOG.warning("removing a journal that a later clean stop has made void")
        return
    _check_all_open(directory, logs, topic_ids)
    own = dict(logs.of(directory))
    _replay(directory, own | {key: log for key in logs.found if (log := logs.get(*key))}, logs,
            topic_ids)  # fmt: skip


def _sync(directory: LogDirectory, logs: LogManager, topic_ids: dict[str, bytes]) -> None:
    """One sync of the file system serves all logs: what recovery cut or put back may so far be in
    the page cache only, and nobody may read what a power cut could take back. It takes the time of
    whatever else the file system has to write: a new directory does without."""
    held = logs.of(directory) or journal_walk.files(str(directory))
    if (held and not directory.started_clean) or _found_in(directory, logs):
        sync_file_system(str(directory))


def _remove(directory: LogDirectory, logs: LogManager, topic_ids: dict[str, bytes]) -> None:
    if journal_walk.files(str(directory)):
        journal_walk.remove(str(directory))


def _check_all_open(
    directory: LogDirectory, logs: LogManager, topic_ids: dict[str, bytes]
) -> None:
    """What the journal has of a log that could not be opened would be gone with the journal. Raises
    OperatorError."""
    entries: set[tuple[bytes, int]] | None = None
    for key, why in logs.offline.items():
        mine = logs.homes.get(key) is directory
        if not mine and (key in logs.found or (directory.path / f"{key[0]}-{key[1]}").is_dir()):
            entries = journal_walk.keys(str(directory)) if entries is None else entries
            mine = (topic_ids[key[0]], key[1]) in entries
        if mine:
            raise OperatorError(
                f"{key[0]}-{key[1]} cannot be opened, and the journal of the last run may have "
                f"records of it that are nowhere else: {why}. See to that and start again, or move "
                "its folder away, and lose them"
            )


def _replay(
    directory: LogDirectory, mine: dict[Key, Any], logs: LogManager, topic_ids: dict[str, bytes]
) -> None:
    found = {(topic_ids[topic], partition): log for (topic, partition), log in mine.items()}
    cleaned: dict[tuple[bytes, int], int] = {}
    for one in logs.online if logs.found else [directory]:
        for (topic, partition), offset in _cleaned(one.path).items():
            if topic in topic_ids:
                key = (topic_ids[topic], partition)
                cleaned[key] = max(offset, cleaned.get(key, 0))
    try:
        done = journal_recovery.replay(str(directory), found, cleaned)
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
    if done.gaps:
        _LOG.error(
            "journal: %d partitions lack what came before; their later batches are left out",
            done.gaps,
        )


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
