"""Mending of partitions: first a plan that says what goes, then no more than that.

    cut      the log ends before its first damage; segments behind it go. What is behind is lost
    drop     only the bytes that are damaged go, what is behind stays: a gap in the offsets, as
             compaction leaves them. Each such segment is written anew
    rebuild  indexes, transaction indexes, producer snapshots and leader epochs made again from
             the batches

Cutting and dropping work on the .log files; all the rest is the broker's own recovery, which
opens the log afterwards. A crash in between leaves what a crash of the broker would: a segment
written anew is `.cleaned` until it is on disk, then `.swap`, and an index that is missing is made
again. The caller holds the lock of the directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from kbroker.care.faults import Checked, Fault, Kind
from kbroker.care.repair_txn import check_droppable, is_state, refuse_cut
from kbroker.care.segments import SegmentFile, base_offset_of
from kbroker.config import load_config
from kbroker.config.topic import log_config
from kbroker.errors import CorruptFileError, DiskError, OperatorError
from kbroker.ext.log import Log
from kbroker.files import remove_file, sync_directory
from kbroker.storage.checkpoints import read_topic_id
from kbroker.storage.manager import METADATA_FOLDER
from kbroker.uuids import ZERO_UUID

__all__ = ["Cure", "Plan", "cures", "plan", "repair"]

_BATCHES: Final = frozenset({Kind.TAIL, Kind.DAMAGE, Kind.ORDER})
"""Faults of the batches themselves."""
_DERIVED: Final = (".index", ".timeindex", ".txnindex")
_COPY_BYTES: Final = 1 << 20


class Cure(Enum):
    """What may be done about damaged batches."""

    CUT = "cut"
    DROP = "drop"


@dataclass(slots=True)
class Plan:
    """What is to be done to one partition's folder.

    `cut`: where the log is to end; `drop`: byte ranges to leave out, by segment; `rebuild`: files
    made again from the batches, which go first.
    """

    folder: Path
    next_offset: int
    cut: Fault | None = None
    drop: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    rebuild: list[Path] = field(default_factory=list)
    behind: list[Path] = field(default_factory=list)
    """Segments behind a cut, the last first."""
    steps: list[str] = field(default_factory=list)
    """The same in words."""

    def __bool__(self) -> bool:
        return bool(self.cut or self.drop or self.rebuild)


def cures(fault: Fault) -> str:
    """What may be asked for to be done about it, as `kbroker log repair` spells it."""
    if fault.kind not in _BATCHES:
        return "--rebuild"
    if fault.path.parent.name == METADATA_FOLDER:
        return "--truncate"
    return "--drop" if is_state(fault.path.parent) else "--truncate or --drop"


def plan(checked: Sequence[Checked], cure: Cure | None, *, rebuild: bool) -> Plan:
    """What to do about the faults of one folder, its segments in order. Raises OperatorError for
    faults that stand in the way of what was asked."""
    folder = checked[0].path.parent
    faults = [fault for one in checked for fault in one.faults]
    broken = [fault for fault in faults if fault.kind in _BATCHES]
    made = Plan(folder, checked[-1].next_offset)
    if not faults or (cure is None and not rebuild):
        return made
    if folder.name == METADATA_FOLDER and (not broken or cure is not Cure.CUT):
        raise OperatorError(
            f"{folder}: the metadata log is repaired by --truncate alone, which gives up the topics"
            " and settings behind the damage; restoring a backup brings them back"
        )
    if broken and cure is None:
        raise OperatorError(
            f"{folder}: its batches are damaged, and what is made of them cannot be made again"
            " before --truncate or --drop has dealt with that"
        )
    if broken and cure is Cure.CUT:
        if is_state(folder):
            raise refuse_cut(folder)
        _plan_cut(made, broken[0], checked)
        if folder.name == METADATA_FOLDER:
            made.steps.append(
                f"{folder.parent}: topics and settings that stand only there go; the next start"
                " sets the folders of such topics aside as -stray"
            )
    elif broken:
        if is_state(folder):
            check_droppable(checked, broken)
        _plan_drop(made, broken)
    if rebuild:
        gone = {*made.behind}
        _plan_rebuild(made, [fault for fault in faults if fault.kind not in _BATCHES], gone)
    return made


def _plan_cut(made: Plan, first: Fault, checked: Sequence[Checked]) -> None:
    made.cut, made.next_offset = first, first.offset
    behind = [one for one in checked if base_offset_of(one.path) > base_offset_of(first.path)]
    made.behind = [one.path for one in reversed(behind)]
    size = next(one.size for one in checked if one.path == first.path)
    text = (
        f"{first.path}: cut at position {first.position}, {size - first.position} bytes go;"
        f" the log ends at offset {first.offset}"
    )
    last = checked[-1].next_offset - 1
    made.steps.append(text + (f", {first.offset} to {last} go" if last >= first.offset else ""))
    made.steps += [
        f"{one.path}: removed with its indexes, {one.records} records go" for one in behind
    ]


def _plan_drop(made: Plan, broken: list[Fault]) -> None:
    for fault in broken:
        made.drop.setdefault(fault.path, []).append((fault.position, fault.end))
        made.steps.append(
            f"{fault.path}: bytes {fault.position} to {fault.end - 1} left out, the rest written"
            f" anew; {fault.lost}"
        )


def _plan_rebuild(made: Plan, faults: list[Fault], gone: set[Path]) -> None:
    for path in dict.fromkeys(fault.path for fault in faults):
        if path.with_suffix(".log") not in gone:
            made.rebuild.append(path)
            made.steps.append(f"{path}: made again from the batches")


def repair(made: Plan, overrides: Mapping[str, str], topic_id: bytes | None = None) -> int:
    """Carry a plan out; gives the offset at which the log goes on.

    overrides: the settings of the topic. Raises DiskError.
    """
    try:
        if made.cut is not None:
            _cut(made.cut, made.behind)
        for path, ranges in made.drop.items():
            _write_without(path, ranges)
        walk_all = False
        for path in made.rebuild:
            # An index that is missing is made again by every open, the others by a whole walk.
            walk_all |= path.suffix not in (".index", ".timeindex")
            remove_file(path)
    except OSError as error:
        raise DiskError(error.filename or made.folder, error) from error
    if made.folder.name == METADATA_FOLDER:  # it has no indexes, and its own recovery
        return made.next_offset
    return _reopen(made, overrides, topic_id, walk_all)


def _cut(first: Fault, behind: Sequence[Path]) -> None:
    for path in behind:
        # The .log first: index files without it are removed by the next open.
        for suffix in (".log", *_DERIVED):
            path.with_suffix(suffix).unlink(missing_ok=True)
    sync_directory(first.path.parent)
    status = first.path.stat()
    if status.st_nlink > 1:  # a backup shares the file
        _write_without(first.path, [(first.position, status.st_size)])
        return
    descriptor = os.open(first.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, first.position)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_without(path: Path, ranges: list[tuple[int, int]]) -> None:
    """A segment without some of its bytes, in the place of the old one."""
    fresh, swap = (path.with_name(path.name + end) for end in (".cleaned", ".swap"))
    try:
        with SegmentFile(path) as file, fresh.open("wb") as out:
            for start, end in _kept(ranges, file.size):
                for at in range(start, end, _COPY_BYTES):
                    out.write(file.read(at, min(_COPY_BYTES, end - at)))
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    fresh.rename(swap)
    sync_directory(path.parent)
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)
    swap.rename(path)
    sync_directory(path.parent)


def _kept(ranges: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    at = 0
    for start, end in sorted(ranges):
        if start > at:
            yield at, start
        at = max(at, end)
    if at < size:
        yield at, size


def _reopen(
    made: Plan, overrides: Mapping[str, str], topic_id: bytes | None, walk_all: bool
) -> int:
    """Recovery as at a start after a crash, from where files changed; the log is closed again."""
    topic, _, partition = made.folder.name.rpartition("-")
    changed = [made.cut.path] if made.cut is not None else list(made.drop)
    log = Log(
        str(made.folder),
        topic,
        topic_id or _topic_id(made.folder),
        int(partition),
        log_config(load_config(), overrides),
        recovery_point=0 if walk_all else min(map(base_offset_of, changed), default=0),
        clean=not changed and not walk_all,
        durable=True,
    )
    end = log.log_end_offset
    log.close(clean=True)
    return end


def _topic_id(folder: Path) -> bytes:
    try:
        return read_topic_id(folder) or ZERO_UUID
    except CorruptFileError:
        return ZERO_UUID
