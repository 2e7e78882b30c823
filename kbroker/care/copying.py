"""Files taken into a folder: by a clone of the file system, a hard link, or a copy, with checksum.

A clone (FICLONE: btrfs, XFS, bcachefs) shares blocks until one side writes; a hard link is the same
file and serves only for what is never written again. Whatever the way, the bytes are read once,
for the SHA-256.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kbroker.errors import CorruptFileError, DiskError

__all__ = ["CLONED", "COPIED", "LINKED", "digest_of", "give_tree", "take"]

CLONED: Final = "cloned"
LINKED: Final = "linked"
COPIED: Final = "copied"

_FICLONE: Final = 0x40049409
_PIECE_BYTES: Final = 1 << 20
_NO_LINK: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT}
)

Tick = Callable[[int], None]
"""Told how many more bytes were read."""


def take(
    source: int, path: Path, target: Path, size: int, *, link: bool, tick: Tick
) -> tuple[str, str]:
    """The first `size` bytes of an open file as a new file; how, and their SHA-256.

    path: the name of the open file. link: it is never written again, and all of it is wanted.
    Raise DiskError with the name of the file that failed; CorruptFileError for one that was cut
    meanwhile.
    """
    try:
        with open(target, "xb", buffering=0) as out:
            if _cloned(source, out.fileno(), size):
                return CLONED, _read_through(path, source, size, None, tick)
            if not (link and _linked(source, path, target)):
                return COPIED, _read_through(path, source, size, out.fileno(), tick)
        return LINKED, _read_through(path, source, size, None, tick)
    except OSError as error:
        raise DiskError(target, error) from error


def _cloned(source: int, target: int, size: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # another file system, or one that does not do it
        return False
    os.ftruncate(target, size)
    return True


def _linked(source: int, path: Path, target: Path) -> bool:
    """Puts a hard link in the place of the file that is there; not where `path` is another by
    now."""
    beside = target.with_name(target.name + ".link")
    try:
        os.link(path, beside)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    try:
        same = os.path.samestat(os.stat(beside), os.fstat(source))
        if same:
            beside.rename(target)
        return same
    finally:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()


def give_tree(folder: Path, owner: os.stat_result) -> None:
    """A folder and all in it to the user of `owner`, where root made it; nobody else can, and has
    to: what they make is theirs."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def digest_of(path: Path, tick: Tick) -> str:
    """The SHA-256 of a whole file."""
    with path.open("rb", buffering=0) as file:
        return _read_through(path, file.fileno(), os.fstat(file.fileno()).st_size, None, tick)


def _read_through(path: Path, source: int, size: int, target: int | None, tick: Tick) -> str:
    """Read the first `size` bytes of a file, write them where that is wanted; their SHA-256."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_PIECE_BYTES, max(size, 1))))
    at = 0
    while at < size:
        try:
            got = os.preadv(source, [buffer[: min(len(buffer), size - at)]], at)
        except OSError as error:
            raise DiskError(path, error) from error
        if got == 0:
            raise CorruptFileError(path, "it is shorter than it was")
        digest.update(buffer[:got])
        rest = buffer[:got] if target is not None else buffer[:0]
        while rest:
            assert target is not None
            rest = rest[os.write(target, rest) :]
        at += got
        tick(got)
    return digest.hexdigest()
