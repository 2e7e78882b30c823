"""`kbroker log dump`: what is in the files of a data directory, off line."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.directories import log_directories
from kbroker.cli.options import directories_option
from kbroker.cli.render import json_text

if TYPE_CHECKING:
    from kbroker.care.segments import Damage, SegmentFile
    from kbroker.ext.records import Batch

__all__ = ["dump", "files_of", "places_of", "segments_of"]

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@directories_option
@click.option("--records", "-r", is_flag=True, help="Records too, with keys and values.")
@click.option("--json", "-J", "as_json", is_flag=True, help="One JSON object a line.")
def dump(paths: tuple[str, ...], data_dir: tuple[Path, ...], records: bool, as_json: bool) -> int:
    """Print the batches or records of segment files, or what stands in the files beside them.

    PATH: a .log, .index, .timeindex, .txnindex or .snapshot file, a checkpoint or another text file
    of a data directory, a partition's folder, or TOPIC-PARTITION in the data directory.
    """
    from kbroker.care.side_files import kind_of

    damaged = False
    files = list(files_of(paths, data_dir))
    if strange := [str(path) for path in files if kind_of(path) is None]:
        raise click.ClickException(f"no file of a data directory by its name: {strange[0]}")
    for path in files:
        if not as_json:
            click.echo(f"{path}:")
        for line in _lines(path, records):
            damaged |= "damage" in line
            click.echo(json_text(line) if as_json else _text(line))
    return 1 if damaged else 0


def places_of(paths: Sequence[str], data_dir: Sequence[Path]) -> list[Path]:
    """Return paths as given, else below one of the data directories."""
    places = []
    for text in paths:
        below = [] if Path(text).exists() else [one / text for one in log_directories(data_dir)]
        place = next(filter(Path.exists, below), Path(text))
        if not place.exists():
            where = ", ".join(str(one.parent) for one in below)
            raise click.ClickException(f"{text}: no such file or folder, nor in {where}")
        places.append(place)
    return places


def files_of(paths: Sequence[str], data_dir: Sequence[Path]) -> Iterator[Path]:
    """Segment files of those paths; ClickException for a place that has none and is no partition
    without records."""
    from kbroker.care.segments import is_unwritten, segment_files

    for place in places_of(paths, data_dir):
        files = segment_files(place)
        if not files and not is_unwritten(place):
            raise click.ClickException(f"{place}: no segment files (*.log) here")
        yield from files


def segments_of(directories: Sequence[Path]) -> Iterator[Path]:
    """Segment files of a broker's log directories that are there. ClickException for a first one
    that is no data directory."""
    from kbroker.care.segments import is_unwritten, segment_files

    for place in directories:
        if place != directories[0] and not place.is_dir():
            continue
        files = segment_files(place)
        if not files and place == directories[0] and not is_unwritten(place):
            raise click.ClickException(f"{place}: no segment files (*.log) here")
        yield from files


def _lines(path: Path, with_records: bool) -> Iterator[dict[str, Any]]:
    from kbroker.care.segments import Damage, SegmentFile, read_index, read_time_index
    from kbroker.care.side_files import kind_of

    kind = kind_of(path)
    if kind in ("text", ".txnindex", ".snapshot"):
        yield from _beside(path, kind)
        return
    if kind == ".index":
        yield from ({"offset": e.offset, "position": e.position} for e in read_index(path))
        return
    if kind == ".timeindex":
        found = read_time_index(path)
        yield from ({"timestamp": e.timestamp_ms, "offset": e.offset} for e in found)
        return
    with SegmentFile(path) as file:
        for batch in file.batches():
            if isinstance(batch, Damage):
                yield _damage(batch)
                continue
            yield _header(batch)
            if with_records:
                yield from _records(file, batch)


def _beside(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    from kbroker.care.segments import Damage
    from kbroker.care.side_files import read_lines, read_producers, read_txn_index

    if kind == "text":
        yield from ({"line": line} for line in read_lines(path))
        return
    for row in (read_txn_index if kind == ".txnindex" else read_producers)(path):
        yield _damage(row) if isinstance(row, Damage) else dict(row)


def _damage(found: Damage) -> dict[str, Any]:
    return {"position": found.position, "damage": found.text, "end": found.end}


def _header(batch: Batch) -> dict[str, Any]:
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.base_offset + batch.last_offset_delta,
        "position": batch.position,
        "bytes": batch.length,
        "records": batch.count,
        "codec": _CODECS[batch.compression],
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": "logappend" if batch.log_append_time else "create",
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "transactional": batch.transactional,
        "control": batch.control,
        "crc": f"{batch.crc:08x}",
    }


def _records(file: SegmentFile, batch: Batch) -> Iterator[dict[str, Any]]:
    from kbroker.ext.records import BatchError, records

    try:
        found = records(file.read(batch.position, batch.length))
    except BatchError as error:
        yield {"position": batch.position, "damage": str(error)}
        return
    for record in found:
        if batch.control:
            version, kind = struct.unpack(">hh", (record.key or b"")[:4].ljust(4, b"\0"))
            name = {0: "abort", 1: "commit"}.get(kind, str(kind))
            yield {"offset": record.offset, "control": name, "version": version}
            continue
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _shown(record.key),
            "value": _shown(record.value),
            "headers": [[name, _shown(value)] for name, value in record.headers],
        }


def _shown(data: bytes | None) -> str | None:
    """Bytes that are no UTF-8 as `kbroker consume -J` has them: \\udcXX."""
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _text(line: dict[str, Any]) -> str:
    """A line for people: what is at its usual value is left out."""
    if "line" in line:
        return f"  {_cell(line['line'])}"
    usual = {
        "codec": "none",
        "timestamp_type": "create",
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "control": False,
        "headers": [],
    }
    indent = "    " if "value" in line or "version" in line else "  "
    shown = (f"{key} {_cell(value)}" for key, value in line.items() if usual.get(key, ()) != value)
    return indent + "  ".join(shown)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    return repr(value) if isinstance(value, str) and not value.isprintable() else str(value)
