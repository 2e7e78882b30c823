"""What a disk may hold after its power went, made from a record of all that was written to it.

`tests/support/recorder.c` notes each call that changes a file or a name, in order. Between two of
them the power may go. What was synced is there; of what was not,

- each write may be there, be missing, or be torn at any of its sectors of 512 bytes, whatever came
  after it;
- the names (files made, renamed, removed) are there as they were at some moment since the last one
  that is known to have reached the disk: file systems keep their order. A name is known to be there
  when its folder was synced, or the whole file system; when a file was synced, its own name is, and
  with it all names before it, as on every file system with a journal.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HEAD = struct.Struct("=iQqIHH")
SECTOR = 512


@dataclass(frozen=True)
class Call:
    """One call. Kinds: C(reate), D (mkdir), W(rite), Z (a write of zeros), T(runcate), G(row),
    R(ename), L(ink), U(nlink), S(ync), A (sync of all)."""

    kind: str
    inode: int
    at: int
    size: int
    path: str
    second: str
    data: bytes


def read_calls(path: Path) -> Iterator[Call]:
    """What the recorder wrote."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        kind, inode, where, size, first, second = HEAD.unpack_from(data, at)
        at += HEAD.size
        names = data[at : at + first + second].decode()
        at += first + second
        bytes_here = size if kind == ord("W") else 0
        yield Call(chr(kind), inode, where, size, names[:first], names[first:],
                   data[at : at + bytes_here])  # fmt: skip
        at += bytes_here


@dataclass
class File:
    """Calls that made its content: the first `synced` of them are on the disk for sure."""

    calls: list[Call] = field(default_factory=list)
    synced: int = 0


Names = dict[str, int]
FOLDER = -1


@dataclass
class Disk:
    """A disk to which call after call was made; `without_sync`: one that forgets to sync."""

    root: str
    without_sync: bool = False
    files: dict[int, File] = field(default_factory=dict)
    names: list[Names] = field(default_factory=lambda: [{}])  # since those that are there for sure
    made: int = 0
    _identities: dict[int, int] = field(default_factory=dict)

    def apply(self, call: Call) -> None:
        kind = call.kind
        if kind in "CD":
            self._name(call)
        elif kind in "WZTG":
            self._file(call.inode).calls.append(call)
        elif kind in "RU":
            self._rename(call)
        elif kind == "L":
            now = self.names[-1]
            self.names.append(now | {call.second: now[call.path]})
        elif not self.without_sync:
            self._sync(call)

    def _file(self, inode: int) -> File:
        return self.files.setdefault(self._identities.setdefault(inode, self._new()), File())

    def _new(self) -> int:
        self.made += 1
        return self.made

    def _name(self, call: Call) -> None:
        identity = FOLDER
        if call.kind == "C":
            identity = self._identities[call.inode] = self._new()
            self.files[identity] = File()
        self.names.append(self.names[-1] | {call.path: identity})

    def _rename(self, call: Call) -> None:
        now = dict(self.names[-1])
        moved = {
            name: now.pop(name)
            for name in list(now)
            if name == call.path or name.startswith(call.path + "/")
        }
        if call.kind == "R":
            now |= {call.second + name[len(call.path) :]: one for name, one in moved.items()}
        self.names.append(now)

    def _sync(self, call: Call) -> None:
        if call.kind == "A":
            for one in self.files.values():
                one.synced = len(one.calls)
            del self.names[:-1]
            return
        if call.path == self.root or self.names[-1].get(call.path) == FOLDER:
            del self.names[:-1]
            return
        one = self._file(call.inode)
        one.synced = len(one.calls)
        identity = self._identities[call.inode]
        for at, names in enumerate(self.names):
            if identity in names.values():
                del self.names[:at]
                return


@dataclass(frozen=True)
class Choice:
    """Which of the things that may be lost are: `names`, how many of the changes of names since
    the last sure one are there; `writes`, the fate of a write that was not synced."""

    names: float
    writes: str  # "all", "none" or "some"
    seed: int = 0


FIXED = (Choice(1, "all"), Choice(0, "none"), Choice(1, "none"), Choice(0, "all"))


def materialize(disk: Disk, choice: Choice, folder: Path) -> None:
    """The directory as it is found when the power is back."""
    chance = random.Random(choice.seed)
    names = disk.names[round(choice.names * (len(disk.names) - 1))]
    folder.mkdir(parents=True)
    for name in sorted(names):
        path = folder / os.path.relpath(name, disk.root)
        if names[name] == FOLDER:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, disk.files[names[name]], choice.writes, chance)


def write_file(path: Path, file: File, writes: str, chance: random.Random) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for number, call in enumerate(file.calls):
            if number < file.synced or writes == "all":
                do(fd, call, call.data)
            elif writes == "some":
                fate = chance.randrange(4)
                if fate == 0:
                    do(fd, call, call.data)
                elif fate == 1 and call.kind == "W":
                    do(fd, call, torn(call.data, chance))
    finally:
        os.close(fd)


def torn(data: bytes, chance: random.Random) -> bytes:
    """Up to one of its sectors; what follows is not there."""
    return data[: SECTOR * chance.randrange(0, len(data) // SECTOR + 1)]


def do(fd: int, call: Call, data: bytes) -> None:
    size = os.fstat(fd).st_size
    if call.kind == "W":
        os.pwrite(fd, data, call.at)
    elif call.kind == "Z":
        zero(fd, call.at, call.size, size)
    elif call.kind == "T" or call.at > size:
        os.ftruncate(fd, call.at)


def zero(fd: int, at: int, count: int, size: int) -> None:
    """Zeros in place of what is there, and the file as long as that makes it."""
    if at < size:
        os.pwrite(fd, bytes(min(count, size - at)), at)
    if at + count > size:
        os.ftruncate(fd, at + count)


def wrong_states(
    root: Path,
    calls: Sequence[Call],
    wrong_with: Callable[[Path, int], list[str]],
    folder: Path,
    moments: Iterable[tuple[int, Choice]],
    *,
    without_sync: bool = False,
) -> list[str]:
    """What is wrong in these states of a disk, each line with what repeats it.

    wrong_with: judges a folder with a state after so many calls. moments: how many calls were made,
    rising, and what was lost then.
    """
    disk = Disk(str(root), without_sync)
    lost: list[str] = []
    applied = 0
    for made, choice in moments:
        while applied < made:
            disk.apply(calls[applied])
            applied += 1
        state = folder / "state"
        materialize(disk, choice, state)
        try:
            wrong = wrong_with(state, made)
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            lost.append(f"after {made} calls, {choice}: {wrong[:3]}")
        shutil.rmtree(state)
    return lost
