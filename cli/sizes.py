"""`kbroker log sizes`: where the space of a data directory is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kbroker.cli import space
from kbroker.cli.directories import log_directories
from kbroker.cli.options import directories_option, output_option
from kbroker.cli.render import Column, human_bytes, print_json, print_rows

_TOPIC = [Column("topic", "TOPIC"), Column("partitions", "PARTITIONS", number=True)]
_PARTITION = [Column("topic", "TOPIC"), Column("partition", "PARTITION", number=True)]
_BYTES = {
    "log_bytes": "RECORDS",
    "index_bytes": "INDEXES",
    "other_bytes": "OTHER",
    "deleted_bytes": "DELETED",
    "disk_bytes": "ON DISK",
}
_COLUMNS = [
    Column("segments", "SEGMENTS", number=True),
    Column("bytes", "SIZE", number=True),
    *(Column(key, title, wide=True, number=True) for key, title in _BYTES.items()),
]


@click.command()
@directories_option
@click.option("--partitions", "-p", is_flag=True, help="A line for each partition.")
@output_option
def sizes(data_dir: tuple[Path, ...], partitions: bool, output: str) -> None:
    """Show where the space of a data directory is, the broker running or not.

    SIZE is that of the files. ON DISK (-o wide) counts blocks too that are prepared ahead, and
    not those that a file leaves out. Topics that take most come first.
    """
    places = log_directories(data_dir)
    place = places[0]
    if not place.is_dir():
        raise click.ClickException(f"{place}: no data directory; name another with --data-dir")
    for one in places:
        if not one.is_dir():
            click.echo(f"kbroker: {one} is not there and not counted", err=True)
    found = space.measure(places)
    disk = space.told(found, space.limits_of(place))
    if output == "json":
        parts = [asdict(one) | {"bytes": one.bytes} for one in found.partitions]
        directories = {"data_dir": str(place.resolve()), "further_dirs": list(map(str, places[1:]))}
        print_json({**directories, **disk, "partitions": parts})
        return
    rows = _by_partition(found) if partitions else _by_topic(found)
    shown = [{**row, **{key: human_bytes(row[key]) for key in ("bytes", *_BYTES)}} for row in rows]
    print_rows([*(_PARTITION if partitions else _TOPIC), *_COLUMNS], shown, output)
    _print_rest(found, disk)


def _by_partition(found: space.Space) -> list[dict[str, Any]]:
    rows = (asdict(one) | {"bytes": one.bytes} for one in found.partitions)
    return sorted(rows, key=lambda row: (-row["bytes"], row["topic"], row["partition"]))


def _by_topic(found: space.Space) -> list[dict[str, Any]]:
    rows = []
    for topic, of_topic in itertools.groupby(found.partitions, key=lambda one: one.topic):
        parts = list(of_topic)
        sums = {key: _sum(parts, key) for key in ("segments", "bytes", *_BYTES)}
        rows.append({"topic": topic, "partitions": len(parts), **sums})
    return sorted(rows, key=lambda row: (-row["bytes"], row["topic"]))


def _sum(parts: Iterable[space.PartitionSpace], key: str) -> int:
    return sum(getattr(one, key) for one in parts)


def _print_rest(found: space.Space, disk: dict[str, Any]) -> None:
    """What is beside the partitions, and all of it."""
    lines = {
        "journal": found.journal_bytes,
        "metadata": found.metadata_bytes,
        "deleted topics": found.deleted_bytes,
        "set aside": found.aside_bytes,
        "other files": found.other_bytes,
    }
    click.echo()
    for name, size in lines.items():
        if size or name in {"journal", "metadata"}:
            click.echo(f"{name + ':':<16}{human_bytes(size)}")
    click.echo(f"{'in all:':<16}{space.disk_line(disk)}")
