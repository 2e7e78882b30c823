"""`kbroker log verify` and `kbroker log repair`: what is wrong with segment files, and its cure."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbroker.cli.directories import log_directories
from kbroker.cli.log import files_of, segments_of
from kbroker.cli.options import directories_option
from kbroker.cli.render import human_bytes, json_text

if TYPE_CHECKING:
    from kbroker.care.faults import Checked, Fault
    from kbroker.care.repair import Cure, Plan
    from kbroker.metadata.image import Image


@click.command()
@click.argument("paths", metavar="[PATH...]", nargs=-1)
@directories_option
@click.option("--deep", is_flag=True, help="Decode every record, compressed ones too.")
@click.option("--quiet", "-q", is_flag=True, help="Show only what is wrong.")
@click.option("--json", "-J", "as_json", is_flag=True, help="One JSON object a line, a fault each.")
def verify(
    paths: tuple[str, ...], data_dir: tuple[Path, ...], deep: bool, quiet: bool, as_json: bool
) -> int:
    """Check segment files and what belongs to them. Exit status 1: something is wrong.

    Without PATH, all data directories of the broker: checkpoints, metadata log and, after a crash,
    the write-ahead log too. Each fault is reported with its file, position and what is lost.
    Nothing is changed. The last batch of a file that a broker is writing may show as cut. A missing
    index is no fault: a broker rebuilds it.
    """
    from kbroker.care.faults import check_directory, check_partition
    from kbroker.care.segments import partition_folders

    found = segments = 0
    places = [] if paths else log_directories(data_dir)
    files = files_of(paths, data_dir) if paths else segments_of(places)
    for folder, files_of_one in partition_folders(files).items():
        compacted = _was_compacted(folder)
        for checked in check_partition(files_of_one, deep=deep):
            segments += 1
            found += len(checked.faults)
            for fault in checked.faults:
                click.echo(_json(fault) if as_json else str(fault))
            if not quiet and not as_json:
                for note in () if compacted else checked.notes:
                    click.echo(f"{checked.path}: note: {note}")
                if not checked.faults:
                    click.echo(f"{checked.path}: {_summary(checked)}")
    for fault in itertools.chain.from_iterable(map(check_directory, places)):
        found += 1
        click.echo(_json(fault) if as_json else str(fault))
    if not quiet and not as_json:
        click.echo(f"{segments} segments, {f'{found} faults' if found else 'all good'}")
    return 1 if found else 0


@click.command()
@click.argument("paths", metavar="[PATH...]", nargs=-1)
@directories_option
@click.option("--truncate", is_flag=True, help="End a log before its first damage: what is behind"
              " it is lost.")  # fmt: skip
@click.option("--drop", is_flag=True, help="Leave out damaged bytes alone: a gap in the offsets,"
              " what is behind stays.")  # fmt: skip
@click.option("--rebuild", is_flag=True, help="Make indexes, producer snapshots and leader epochs"
              " that are wrong again from the batches.")  # fmt: skip
@click.option("--skip-wal-damage", is_flag=True, help="Let the next start go on without what it"
              " cannot read of the write-ahead log: acknowledged records may be lost.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def repair(
    paths: tuple[str, ...],
    data_dir: tuple[Path, ...],
    truncate: bool,
    drop: bool,
    rebuild: bool,
    skip_wal_damage: bool,
    dry_run: bool,
) -> int:
    """Mend segment files: only what is asked for, and told before it is done.

    Without PATH, every partition of the data directory that needs it. Without --truncate, --drop or
    --rebuild it shows what there is to be mended. Refused while a broker holds the directory. A
    torn tail after a crash needs no repair: the next start cuts it off, and brings back what its
    journal has. Of `__transaction_state` a start is to meet the damage before it is dropped: it
    settles which transactions may have been further. `kbroker backup create` before is a way
    back. What root writes belongs to the user of the data directory.

    --skip-wal-damage is for a start that was refused because of the write-ahead log. It holds for
    one start, which keeps damaged files as NAME.damaged.
    """
    from kbroker.care.repair import Cure

    if truncate and drop:
        raise click.UsageError("give either --truncate or --drop")
    if skip_wal_damage and (truncate or drop or rebuild or paths):
        raise click.UsageError("--skip-wal-damage takes no other option and no path")
    cure = Cure.CUT if truncate else Cure.DROP if drop else None
    if skip_wal_damage:
        return _skip_wal_damage(log_directories(data_dir), dry_run=dry_run)
    files = list(files_of(paths, data_dir) if paths else segments_of(log_directories(data_dir)))
    asked = cure is not None or rebuild
    with contextlib.ExitStack() as locks:
        for holder in sorted({path.absolute().parent.parent for path in files}):
            locks.enter_context(_held(holder))
        status = 0
        for checked in _broken(files):
            if asked:
                status |= _mend(checked, cure, rebuild=rebuild, dry_run=dry_run)
            else:
                status = 1
                _tell(checked)
    return status


def _skip_wal_damage(directories: Sequence[Path], *, dry_run: bool) -> int:
    from kbroker.ext import journal_reader

    with contextlib.ExitStack() as locks:
        for directory in directories:
            locks.enter_context(_held(directory))
        with_wal = [one for one in directories if journal_reader.files(str(one))]
        if not with_wal:
            places = ", ".join(map(str, directories))
            raise click.ClickException(f"no write-ahead log in {places}: nothing to skip")
        for directory in with_wal:
            _skip_damage_of(directory, dry_run=dry_run)
    return 0


def _skip_damage_of(directory: Path, *, dry_run: bool) -> None:
    from kbroker.ext import journal_reader

    try:
        journal_reader.keys(str(directory))
    except journal_reader.WalError as error:
        for path, text in error.reasons:
            click.echo(f"{path}: {text}")
        if error.following:
            click.echo(f"{sum(error.following.values())} batches come behind the damage")
    if not dry_run:
        journal_reader.skip_damage(str(directory))
    click.echo(f"{directory}: the next start skips what it cannot read of the write-ahead log")


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """The lock of a data directory; a folder that is none has none. A backup is refused: it may
    share files with others, and would be none any more."""
    from kbroker.care.manifest import MANIFEST
    from kbroker.files import LOCK_FILE, DirectoryLock
    from kbroker.metadata.meta_properties import META_PROPERTIES

    if (directory.parent / MANIFEST).exists():
        raise click.ClickException(f"{directory.parent} is a backup: restore it, and repair that")
    if any((directory / name).exists() for name in (META_PROPERTIES, LOCK_FILE)):
        with DirectoryLock(directory):
            yield
    else:
        yield


def _broken(files: Sequence[Path]) -> Iterator[list[Checked]]:
    """The partitions with faults; all segments of each, whichever were named."""
    from kbroker.care.faults import check_partition
    from kbroker.care.segments import partition_folders, segment_files

    for folder in partition_folders(files):
        checked = list(check_partition(segment_files(folder)))
        if any(one.faults for one in checked):
            yield checked


def _tell(checked: list[Checked]) -> None:
    from kbroker.care.repair import cures

    for one in checked:
        for fault in one.faults:
            click.echo(f"{fault} [{cures(fault)}]")


def _mend(checked: list[Checked], cure: Cure | None, *, rebuild: bool, dry_run: bool) -> int:
    from kbroker.care.copying import give_tree
    from kbroker.care.repair import plan, repair
    from kbroker.errors import KbrokerError

    folder = checked[0].path.parent
    try:
        made = plan(checked, cure, rebuild=rebuild)
    except KbrokerError as error:
        click.echo(f"kbroker: {error}", err=True)
        return 1
    for step in made.steps:
        click.echo(step)
    if not made:
        click.echo(f"{folder}: nothing that was asked for")
        return 1
    if dry_run:
        return 0
    try:
        end = repair(made, *_topic_of(made))
    finally:
        give_tree(folder, folder.absolute().parent.stat())
    click.echo(f"{folder}: mended, the log goes on at offset {end}")
    return 0


def _topic_of(made: Plan) -> tuple[dict[str, str], bytes | None]:
    """What the metadata knows of a partition's topic: settings and id."""
    name = made.folder.name.rpartition("-")[0]
    image = _image(made.folder.parent)
    topic = image.topics.get(name) if image is not None else None
    if image is None or topic is None:
        return {}, None
    return dict(image.configs(("topic", name))), topic.id


def _image(place: Path) -> Image | None:
    from kbroker.errors import KbrokerError
    from kbroker.metadata.loader import load_image

    try:
        return load_image(place)
    except (KbrokerError, OSError):
        return None


def _was_compacted(folder: Path) -> bool:
    """Whether offsets may be missing in a partition: a cleaner has been there."""
    from kbroker.errors import KbrokerError
    from kbroker.files import read_offset_checkpoint
    from kbroker.storage.checkpoints import CLEANER_OFFSETS

    topic, _, partition = os.path.basename(folder.absolute()).rpartition("-")
    try:
        cleaned = read_offset_checkpoint(folder.absolute().parent / CLEANER_OFFSETS)
    except KbrokerError:
        return False
    return partition.isdigit() and (topic, int(partition)) in cleaned


def _json(fault: Fault) -> str:
    told: dict[str, object] = {"file": str(fault.path), "kind": fault.kind.value}
    told["fault"] = fault.text
    if fault.position >= 0:
        told |= {"position": fault.position, "end": fault.end, "offset": fault.offset}
    if fault.lost:
        told["lost"] = fault.lost
    return json_text(told)


def _summary(checked: Checked) -> str:
    without = f", without {' and '.join(checked.missing)}" if checked.missing else ""
    size = human_bytes(checked.size)
    return f"{checked.batches} batches, {checked.records} records, {size}{without}"
