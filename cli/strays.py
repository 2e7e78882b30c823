"""`kbroker log strays` and `kbroker log stray-delete`: folders that belong to no partition."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from kbroker.cli.directories import log_directories
from kbroker.cli.options import directories_option, output_option
from kbroker.cli.render import Column, human_bytes, print_rows, say

__all__ = ["stray_delete", "strays"]

_COLUMNS = [
    Column("folder", "FOLDER"),
    Column("size", "SIZE", number=True),
    Column("segments", "SEGMENTS", number=True),
    Column("changed", "LAST CHANGE"),
    Column("topic_id", "TOPIC ID", wide=True),
    Column("directory", "DIRECTORY", wide=True),
]
_JSON_COLUMNS = [
    Column(key, "")
    for key in ("folder", "partition", "topic_id", "segments", "bytes", "changed", "directory")
]


@click.command()
@directories_option
@output_option
def strays(data_dir: tuple[Path, ...], output: str) -> None:
    """List the folders of a data directory that belong to no partition.

    A start found them without a topic in the metadata and keeps their records. That happens after a
    log directory comes back that was offline while its topics were deleted, or with an older copy
    of the metadata. The broker may run. `kbroker log dump` shows their records.
    """
    from kbroker.care.strays import describe_stray
    from kbroker.uuids import uuid_text

    rows = []
    for path in _found(data_dir):
        stray = describe_stray(path)
        changed = datetime.datetime.fromtimestamp(stray.changed_s, datetime.UTC)
        rows.append({
            "folder": path.name,
            "partition": stray.partition,
            "topic_id": uuid_text(stray.topic_id) if stray.topic_id else None,
            "segments": stray.segments,
            "bytes": stray.bytes,
            "size": human_bytes(stray.bytes),
            "changed": changed.isoformat(timespec="seconds"),
            "directory": str(path.parent),
        })  # fmt: skip
    print_rows(_JSON_COLUMNS if output == "json" else _COLUMNS, rows, output)


@click.command()
@click.argument("names", metavar="[FOLDER...]", nargs=-1)
@directories_option
@click.option("--all", "-a", "every", is_flag=True, help="All stray folders.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
def stray_delete(
    names: tuple[str, ...], data_dir: tuple[Path, ...], every: bool, dry_run: bool, yes: bool
) -> None:
    """Delete folders that belong to no partition, with all their records.

    FOLDER: a name that `kbroker log strays` lists. The broker may run. Nothing brings the records
    back. Where a folder's topic was not deleted, its metadata may be missing: look for that first.
    """
    from kbroker.care.strays import delete_stray, describe_stray

    if bool(names) == every:
        raise click.UsageError("give either FOLDER or --all")
    found = _found(data_dir)
    doomed = found if every else _named(names, found)
    sizes = [describe_stray(path).bytes for path in doomed]
    if doomed and not (dry_run or yes):
        _confirm(len(doomed), sum(sizes))
    for path, size in zip(doomed, sizes, strict=True):
        if not dry_run:
            delete_stray(path)
        say(f"{path} ({human_bytes(size)}) {'would be ' if dry_run else ''}deleted")
    if not doomed:
        say("no stray folders")


def _found(data_dir: tuple[Path, ...]) -> list[Path]:
    from kbroker.care.strays import find_strays

    places = log_directories(data_dir)
    if not places[0].is_dir():
        raise click.ClickException(f"{places[0]}: no data directory; name another with --data-dir")
    return find_strays(places)


def _named(names: Iterable[str], found: Iterable[Path]) -> list[Path]:
    """Find the folders of these names; several directories cannot have the same one."""
    by_name = {path.name: path for path in found}
    for name in names:
        if name not in by_name:
            raise click.ClickException(
                f"no stray folder {name!r}: `kbroker log strays` lists those that are there"
            )
    return [by_name[name] for name in dict.fromkeys(names)]


def _confirm(count: int, size: int) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("give --yes to delete without asking, or --dry-run")
    click.confirm(f"Delete {count} folders with {human_bytes(size)} for good?", abort=True)
