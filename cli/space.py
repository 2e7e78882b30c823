"""Where the space of a data directory is: a walk over its files, the broker running or not.

Symbolic links of partitions and files, which a start refuses, count as what they lead to."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbroker import runfile
from kbroker.cli.options import asked
from kbroker.cli.render import human_bytes

__all__ = ["PartitionSpace", "Space", "disk_line", "limits_of", "measure", "told"]

BYTES_MAX = "kbroker.disk.bytes.max"
FREE_MIN = "kbroker.disk.free.bytes.min"

_METADATA = "__cluster_metadata-0"
_JOURNAL = ".kbroker-journal."
_SET_ASIDE = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)\Z")
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)\Z")
_INDEXES = (".index", ".timeindex", ".txnindex")
_ANSWER_TIMEOUT_S = 5.0


@dataclass
class PartitionSpace:
    """Bytes of one partition's files, and what the disk gave them (blocks ahead count there)."""

    topic: str
    partition: int
    directory: str = ""
    segments: int = 0
    log_bytes: int = 0
    index_bytes: int = 0
    other_bytes: int = 0
    deleted_bytes: int = 0  # waiting for file.delete.delay.ms
    disk_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return self.log_bytes + self.index_bytes + self.other_bytes + self.deleted_bytes


@dataclass
class Space:
    """A data directory, in bytes of files unless told otherwise."""

    partitions: list[PartitionSpace] = field(default_factory=list)
    journal_bytes: int = 0
    metadata_bytes: int = 0
    deleted_bytes: int = 0  # folders of deleted topics
    aside_bytes: int = 0  # folders that no topic owns
    other_bytes: int = 0
    file_system_bytes: int = 0
    free_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Of everything in it."""
        rest = self.deleted_bytes + self.aside_bytes + self.other_bytes
        partitions = sum(one.bytes for one in self.partitions)
        return partitions + self.journal_bytes + self.metadata_bytes + rest


def measure(places: Iterable[Path]) -> Space:
    """Walk the log directories of a broker that are there. Files that go meanwhile are skipped."""
    space = Space()
    disks = set()
    for one in filter(Path.is_dir, places):
        _add(space, one)
        disk = os.statvfs(one)
        if one.stat().st_dev not in disks:
            space.file_system_bytes += disk.f_blocks * disk.f_frsize
            space.free_bytes += disk.f_bavail * disk.f_frsize
        disks.add(one.stat().st_dev)
    space.partitions.sort(key=lambda one: (one.topic, one.partition))
    return space


def _add(space: Space, place: Path) -> None:
    for entry in os.scandir(place):
        if not entry.is_dir(follow_symlinks=bool(_PARTITION.match(entry.name))):
            size = _size(entry)
            if entry.name.startswith(_JOURNAL):
                space.journal_bytes += size
            else:
                space.other_bytes += size
        elif entry.name == _METADATA:
            space.metadata_bytes += sum(map(_size, _files(entry.path)))
        elif (aside := _SET_ASIDE.match(entry.name)) is not None:
            size = sum(map(_size, _files(entry.path)))
            if aside[1] == "delete":
                space.deleted_bytes += size
            else:
                space.aside_bytes += size
        elif (found := _PARTITION.match(entry.name)) is not None:
            one = _partition(entry.path, found["topic"], int(found["partition"]))
            one.directory = str(place)
            space.partitions.append(one)
        else:
            with contextlib.suppress(PermissionError):  # the file system's lost+found
                space.other_bytes += sum(map(_size, _files(entry.path)))


def _partition(folder: str, topic: str, number: int) -> PartitionSpace:
    one = PartitionSpace(topic, number)
    for entry in _files(folder):
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue
        one.disk_bytes += status.st_blocks * 512
        if entry.name.endswith(".deleted"):
            one.deleted_bytes += status.st_size
        elif entry.name.endswith(".log"):
            one.segments += 1
            one.log_bytes += status.st_size
        elif entry.name.endswith(_INDEXES):
            one.index_bytes += status.st_size
        else:
            one.other_bytes += status.st_size
    return one


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        yield from os.scandir(folder)
    except FileNotFoundError:
        return


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def limits_of(place: Path) -> dict[str, int] | None:
    """The disk's limits as they hold in the broker of a data directory; None: none answers."""
    info = runfile.running(place)
    if info is None or not info.listeners:
        return None
    address, plain = asked(info)
    if not plain:
        return None
    from kbroker.client.admin_cluster import describe_cluster
    from kbroker.client.admin_configs import BROKER, describe_configs
    from kbroker.client.cluster import Cluster
    from kbroker.client.errors import KafkaError

    try:
        with Cluster(address, timeout_s=_ANSWER_TIMEOUT_S) as cluster:
            node = str(describe_cluster(cluster).controller_id)
            keys = (BYTES_MAX, FREE_MIN)
            entries = describe_configs(cluster, BROKER, node, keys=keys)
    except (KafkaError, ValueError):
        return None
    return {entry.name: int(entry.value or 0) for entry in entries}


def told(space: Space, limits: dict[str, int] | None) -> dict[str, Any]:
    """The whole directory for programs; limits are None where no broker answers or none is set."""
    most, least = (limits or {}).get(BYTES_MAX, -1), (limits or {}).get(FREE_MIN, 0)
    return {
        "bytes": space.bytes,
        "bytes_max": most if most >= 0 else None,
        "free_bytes": space.free_bytes,
        "free_bytes_min": least or None,
        "file_system_bytes": space.file_system_bytes,
        "journal_bytes": space.journal_bytes,
        "metadata_bytes": space.metadata_bytes,
        "deleted_bytes": space.deleted_bytes,
        "set_aside_bytes": space.aside_bytes,
        "other_bytes": space.other_bytes,
    }


def disk_line(disk: dict[str, Any]) -> str:
    """What is taken and what is left, in words."""
    most = "" if disk["bytes_max"] is None else f" of at most {human_bytes(disk['bytes_max'])}"
    least = disk["free_bytes_min"]
    kept = "" if least is None else f", of which {human_bytes(least)} are kept"
    return f"{human_bytes(disk['bytes'])}{most}, {human_bytes(disk['free_bytes'])} free{kept}"
