"""What stands in the files beside the segments, read off line: transaction indexes, producer
snapshots, checkpoints. Of kbroker or of Apache Kafka; nothing is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kbroker.care.faults import sound_snapshot
from kbroker.care.segments import Damage

__all__ = ["kind_of", "read_lines", "read_producers", "read_txn_index"]

Row = dict[str, int]

_TXN_ENTRY: Final = struct.Struct(">hqqqq")
_TXN_NAMES: Final = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")

_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")  # version, CRC-32C of what follows it, entries
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
_PRODUCER_NAMES: Final = (
    "producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta",
    "last_timestamp", "coordinator_epoch", "current_txn_first_offset",
)  # fmt: skip

# What a broker appends to a name: the file is on its way in or out.
_STATES: Final = (".deleted", ".cleaned", ".swap")
_BINARY: Final = frozenset({".log", ".index", ".timeindex", ".txnindex", ".snapshot"})
_TEXTS: Final = frozenset({
    "leader-epoch-checkpoint", "partition.metadata", "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown", ".kbroker-run.json", ".kbroker-log-dirs.json", "meta.properties",
    "quorum-state", ".kbroker-deleted-topics",
})  # fmt: skip


def kind_of(path: Path) -> str | None:
    """The suffix that says how a file is read, `text` for one of lines; None for one that is none
    of a data directory's. The image of the metadata log (`.checkpoint`) is one of batches."""
    if path.name in _TEXTS:
        return "text"
    name = path.name
    for state in _STATES:
        name = name.removesuffix(state)
    suffix = Path(name).suffix
    if suffix == ".checkpoint":
        return ".log"
    return suffix if suffix in _BINARY else None


def read_lines(path: Path) -> Iterator[str]:
    """Lines without their ends; what is no UTF-8 as \\udcXX."""
    yield from path.read_bytes().decode("utf-8", "surrogateescape").splitlines()


def read_txn_index(path: Path) -> Iterator[Row | Damage]:
    """The aborted transactions by their markers."""
    data = path.read_bytes()
    whole = len(data) - len(data) % _TXN_ENTRY.size
    for position in range(0, whole, _TXN_ENTRY.size):
        row = dict(zip(_TXN_NAMES, _TXN_ENTRY.unpack_from(data, position), strict=True))
        if row["version"]:
            yield Damage(position, len(data), f"version {row['version']} is not known")
            return
        yield row
    if whole < len(data):
        yield Damage(whole, len(data), "less than a whole entry")


def read_producers(path: Path) -> Iterator[Row | Damage]:
    """What the log knew of each producer at the offset that the file is named after. A
    `current_txn_first_offset` of -1: no transaction is open."""
    data = path.read_bytes()
    if not sound_snapshot(data) or len(data) < _SNAPSHOT_HEAD.size:
        yield Damage(0, len(data), "no producer snapshot, or its checksum is wrong")
        return
    count = _SNAPSHOT_HEAD.unpack_from(data)[2]
    if _SNAPSHOT_HEAD.size + count * _PRODUCER.size != len(data):
        yield Damage(0, len(data), f"{count} producers do not take {len(data)} bytes")
        return
    for at in range(_SNAPSHOT_HEAD.size, len(data), _PRODUCER.size):
        yield dict(zip(_PRODUCER_NAMES, _PRODUCER.unpack_from(data, at), strict=True))
