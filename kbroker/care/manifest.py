"""The manifest of a backup: what is in it, with lengths and checksums.

A backup is a folder:

    manifest.json   written last, so a folder without it is no backup
    data/           the log directory with the metadata log, as a restore brings it back
    data.2/ ...     the further log directories; no partition's folder has such a name

`manifest.json` is one object: `format` (2), `sha256` of the text of `backup` as this module
writes it, and `backup`:

    kbroker                 version that wrote it
    began_ms, ended_ms      ms since 1970
    live                    whether a broker served the directories
    cluster_id, node_id     whose they are
    directories             [folder in the backup, log directory, directory.id or ""] each; the one
                            with the metadata log first
    partitions              [topic, partition, first offset, offset behind the last] each
    incomplete              [topic, partition, reason] of each partition of the node that is not in
                            the backup, or maybe not all of it
    files                   [path, bytes, SHA-256, source] each; source is [inode, mtime in ns,
                            size] of the file it came from: what a later backup takes from this one
                            instead of reading it again

Format 1 is of one log directory, named by `source`. Its paths are below data/, and it has neither
`directories` nor `incomplete`.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from kbroker.errors import OperatorError
from kbroker.files import write_atomically

__all__ = [
    "DATA",
    "MANIFEST",
    "BackupDirectory",
    "BackupFile",
    "Extent",
    "Incomplete",
    "Manifest",
    "folder_name",
    "read_manifest",
    "write_manifest",
]

MANIFEST: Final = "manifest.json"
DATA: Final = "data"
_FORMAT: Final = 2
_ONE_DIRECTORY: Final = 1
_FOLDER: Final = re.compile(r"data(\.[0-9]+)?\Z")


class BackupDirectory(NamedTuple):
    """A log directory: its folder in the backup, where it was, its directory.id as text."""

    folder: str
    source: str
    directory_id: str


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


class Incomplete(NamedTuple):
    """A partition that the backup lacks, or lacks a part of, and why."""

    topic: str
    partition: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} is not whole in the backup: {self.reason}"


class Manifest(NamedTuple):
    """See the module."""

    kbroker: str
    began_ms: int
    ended_ms: int
    live: bool
    cluster_id: str
    node_id: int
    directories: list[BackupDirectory]
    partitions: list[Extent]
    incomplete: list[Incomplete]
    files: list[BackupFile]

    @property
    def source(self) -> str:
        """The log directory with the metadata log."""
        return self.directories[0].source

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for file in self.files)


def folder_name(number: int) -> str:
    """The folder of a log directory in a backup; number 0 is the one with the metadata log."""
    return DATA if number == 0 else f"{DATA}.{number + 1}"


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
        version, body = found["format"], found["backup"]
        if version not in (_ONE_DIRECTORY, _FORMAT):
            raise OperatorError(f"{path} has format {version}; this kbroker knows 1 to {_FORMAT}")
        if hashlib.sha256(_text(body).encode()).hexdigest() != found["sha256"]:
            raise OperatorError(f"{path} is damaged: its checksum is another")
        return _manifest(_of_one_directory(body) if version == _ONE_DIRECTORY else body)
    except (KeyError, TypeError, ValueError) as error:
        raise OperatorError(f"{path} is no manifest of a backup: {error!r}") from None


def _text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))


def _of_one_directory(body: dict[str, Any]) -> dict[str, Any]:
    """The content of format 1 as format 2 has it."""
    kept = {name: value for name, value in body.items() if name != "source"}
    files = [[f"{DATA}/{path}", *rest] for path, *rest in body["files"]]
    directory = [DATA, body["source"], ""]
    return {**kept, "directories": [directory], "incomplete": [], "files": files}


def _manifest(body: dict[str, Any]) -> Manifest:
    directories = [BackupDirectory(*one) for one in body["directories"]]
    folders = [one.folder for one in directories]
    if folders[:1] != [DATA] or not all(map(_FOLDER.match, folders)):
        raise ValueError(f"folders of log directories: {folders}")
    files = []
    for path, size, digest, source in body["files"]:
        folder, *below = path.split("/")
        if folder not in folders or not below or "" in below or ".." in below:
            raise ValueError(f"a path out of the backup: {path!r}")
        files.append(BackupFile(path, size, digest, tuple(source)))
    extents = [Extent(*one) for one in body["partitions"]]
    incomplete = [Incomplete(*one) for one in body["incomplete"]]
    parts = {"directories": directories, "partitions": extents, "incomplete": incomplete}
    return Manifest(**{**body, **parts, "files": files})
