"""The small text files of a log directory and its partition folders, as Kafka 4.3 has them.

In the log directory, each one replaced whole (see `kbroker.files`):

    recovery-point-offset-checkpoint    offset up to which a partition's log is known flushed
    log-start-offset-checkpoint         log start offsets that DeleteRecords or retention moved
    replication-offset-checkpoint       high watermarks
    cleaner-offset-checkpoint           first offset that compaction has not seen
        version 0, count, then "topic partition offset"
    .kafka_cleanshutdown                {"version":0,"brokerEpoch":N}; there after a clean stop,
                                        removed at start, so that a crash is known by its absence

In a partition's folder:

    leader-epoch-checkpoint             version 0, count, then "epoch start-offset"
    partition.metadata                  "version: 0", then "topic_id: TEXT" without a line's end

A crash leaves each of them old or new, never half. Missing files are no error: Kafka rebuilds
what they say, and so do `kbroker.storage` and the logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from kbroker.errors import CorruptFileError
from kbroker.files import (
    read_checkpoint,
    read_file,
    remove_file,
    write_atomically,
    write_checkpoint,
)
from kbroker.uuids import parse_uuid, uuid_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_LEADER_EPOCHS_VERSION = 0
_NO_BROKER_EPOCH = -1


def read_leader_epochs(folder: Path) -> list[tuple[int, int]]:
    """(epoch, start offset) pairs of a partition, oldest first; none where there is no file."""
    path = folder / LEADER_EPOCHS
    epochs = []
    for line in read_checkpoint(path, _LEADER_EPOCHS_VERSION) or ():
        try:
            epoch, start_offset = line.split()
            epochs.append((int(epoch), int(start_offset)))
        except ValueError:
            raise CorruptFileError(path, f"not 'epoch start-offset': {line!r}") from None
    return epochs


def write_leader_epochs(folder: Path, epochs: Iterable[tuple[int, int]]) -> None:
    """Replace a partition's leader epochs."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in epochs]
    write_checkpoint(folder / LEADER_EPOCHS, _LEADER_EPOCHS_VERSION, lines)


def read_topic_id(folder: Path) -> bytes | None:
    """Return the topic id in a partition's folder; None where partition.metadata is missing, or
    empty as a crash leaves it. Raises CorruptFileError or DiskError."""
    path = folder / PARTITION_METADATA
    data = read_file(path)
    if data is None or not data.strip(b"\0"):
        return None
    found = {}
    for line in data.decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        found[name.strip()] = value.strip()
    if found.get("version") != "0":
        raise CorruptFileError(path, "not a partition.metadata of version 0")
    try:
        return parse_uuid(found.get("topic_id", ""))
    except ValueError as error:
        raise CorruptFileError(path, f"topic_id: {error}") from None


def write_topic_id(folder: Path, topic_id: bytes) -> None:
    """Write partition.metadata; Kafka refuses a folder whose topic id is another."""
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    write_atomically(folder / PARTITION_METADATA, text.encode())


def write_clean_shutdown(directory: Path, broker_epoch: int) -> None:
    """Say that everything is flushed; the last thing before the process ends."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(directory / CLEAN_SHUTDOWN, text.encode())


def take_clean_shutdown(directory: Path) -> int | None:
    """The broker epoch of the last clean stop, and the mark is gone; None after a crash.

    -1 where a mark is there that tells no epoch (Kafka before 3.8 wrote an empty file).
    """
    data = read_file(directory / CLEAN_SHUTDOWN)
    if data is None:
        return None
    remove_file(directory / CLEAN_SHUTDOWN)
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return _NO_BROKER_EPOCH
    return epoch if isinstance(epoch, int) else _NO_BROKER_EPOCH
