"""The manifest of a backup: what is in it, with lengths and checksums.

A backup is a folder:

    manifest.json   written last, so a folder without it is no backup
    data/           the data directory, as a restore brings it back

`manifest.json` is one object: `format` (1), `sha256` of the text of `backup` as this module
writes it, and `backup`:

    kbroker                 version that wrote it
    began_ms, ended_ms      ms since 1970
    source, live            the data directory, and whether a broker served it
    cluster_id, node_id     whose it is
    partitions              [topic, partition, first offset, offset behind the last] each
    files                   [path below data/, bytes, SHA-256, source] each; source is [inode, mtime
                            in ns, size] of the file it came from: what a later backup takes from
                            this one instead of reading it again
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from kbroker.errors import OperatorError
from kbroker.files import write_atomically

__all__ = [
    "DATA",
    "MANIFEST",
    "BackupFile",
    "Extent",
    "Manifest",
    "read_manifest",
    "write_manifest",
]

MANIFEST: Final = "manifest.json"
DATA: Final = "data"
_FORMAT: Final = 1


class BackupFile(NamedTuple):
    """One file, and what identified it where it came from."""

    path: str
    bytes: int
    sha256: str
    source: tuple[int, int, int] = (0, 0, 0)
    """Inode, mtime in ns, size; zeros for a file that the backup wrote itself."""


class Extent(NamedTuple):
    """The offsets of a partition: the first, and the one behind the last."""

    topic: str
    partition: int
    start: int
    end: int


class Manifest(NamedTuple):
    """See the module."""

    kbroker: str
    began_ms: int
    ended_ms: int
    source: str
    live: bool
    cluster_id: str
    node_id: int
    partitions: list[Extent]
    files: list[BackupFile]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make a folder a backup, durably. Raises DiskError."""
    body = manifest._asdict()
    text = _text(body)
    digest = hashlib.sha256(text.encode()).hexdigest()
    whole = f'{{"format":{_FORMAT},"sha256":"{digest}","backup":{text}}}\n'
    write_atomically(folder / MANIFEST, whole.encode())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup; OperatorError where there is none that can be trusted."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise OperatorError(f"{folder} is no backup, or not a whole one: no {MANIFEST}") from None
    except ValueError as error:
        raise OperatorError(f"{path} cannot be read: {error}") from None
    try:
        told, body = found["format"], found["backup"]
        if told != _FORMAT:
            raise OperatorError(f"{path} has format {told}; this kbroker knows {_FORMAT}")
        if hashlib.sha256(_text(body).encode()).hexdigest() != found["sha256"]:
            raise OperatorError(f"{path} is damaged: its checksum is another")
        return _manifest(body)
    except (KeyError, TypeError, ValueError) as error:
        raise OperatorError(f"{path} is no manifest of a backup: {error!r}") from None


def _text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))


def _manifest(body: dict[str, Any]) -> Manifest:
    files = []
    for path, size, digest, source in body["files"]:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"a path out of the backup: {path!r}")
        files.append(BackupFile(path, size, digest, tuple(source)))
    extents = [Extent(*one) for one in body["partitions"]]
    return Manifest(**{**body, "files": files, "partitions": extents})
