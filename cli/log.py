"""`kbroker log`: dump and verify the segment files of a data directory, off line."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbroker.cli.options import data_dir_option
from kbroker.cli.places import default_data_dir
from kbroker.cli.render import human_bytes

if TYPE_CHECKING:
    from kbroker.cli.segments import IndexEntry, TimeEntry
    from kbroker.ext.records import Batch

Entry = TypeVar("Entry")

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@data_dir_option
@click.option("--records", "-r", is_flag=True, help="Records too, with keys and values.")
@click.option("--json", "-J", "as_json", is_flag=True, help="One JSON object a line.")
def dump(paths: tuple[str, ...], data_dir: Path | None, records: bool, as_json: bool) -> int:
    """Print the batches or records of segment files.

    PATH: a .log, .index or .timeindex file, a partition's folder, or TOPIC-PARTITION in the data
    directory.
    """
    damaged = False
    for path in _files(paths, data_dir):
        if not as_json:
            click.echo(f"{path}:")
        for line in _lines(path, records):
            damaged |= "damage" in line
            click.echo(_json(line) if as_json else _text(line))
    return 1 if damaged else 0


@click.command()
@click.argument("paths", metavar="[PATH...]", nargs=-1)
@data_dir_option
@click.option("--deep", is_flag=True, help="Decode every record, compressed ones too.")
@click.option("--quiet", "-q", is_flag=True, help="Show only what is wrong.")
def verify(paths: tuple[str, ...], data_dir: Path | None, deep: bool, quiet: bool) -> int:
    """Check segment files and their indexes. Exit status 1: something is wrong.

    Without PATH, the whole data directory. The last batch of a file that a broker is writing may
    show as cut. An index that is missing is no fault: a broker makes it anew.
    """
    from kbroker.cli.segments import segment_files

    places = _places(paths, data_dir) if paths else [data_dir or default_data_dir()]
    found = segments = 0
    for place in places:
        files = [path for path in segment_files(place) if path.suffix == ".log"]
        if not files:
            raise click.ClickException(f"{place}: no segment files (*.log) here")
        for path in files:
            segments += 1
            summary, troubles = _verify_segment(path, deep)
            found += len(troubles)
            for trouble in troubles:
                click.echo(f"{path}: {trouble}")
            if not quiet and not troubles:
                click.echo(f"{path}: {summary}")
    if not quiet:
        verdict = f"{found} faults" if found else "all good"
        click.echo(f"{segments} segments, {verdict}")
    return 1 if found else 0


def _places(paths: tuple[str, ...], data_dir: Path | None) -> list[Path]:
    """Paths as given, else below the data directory."""
    places = []
    for text in paths:
        below = (data_dir or default_data_dir()) / text
        place = Path(text) if Path(text).exists() else below
        if not place.exists():
            raise click.ClickException(f"{text}: no such file or folder, nor in {below.parent}")
        places.append(place)
    return places


def _files(paths: tuple[str, ...], data_dir: Path | None) -> Iterator[Path]:
    from kbroker.cli.segments import segment_files

    for place in _places(paths, data_dir):
        files = segment_files(place)
        if not files:
            raise click.ClickException(f"{place}: no segment files (*.log) here")
        yield from files


def _lines(path: Path, with_records: bool) -> Iterator[dict[str, Any]]:
    from kbroker.cli.segments import (
        SegmentDamage,
        iterate,
        map_file,
        read_index,
        read_time_index,
    )

    if path.suffix == ".index":
        yield from ({"offset": e.offset, "position": e.position} for e in read_index(path))
        return
    if path.suffix == ".timeindex":
        found = read_time_index(path)
        yield from ({"timestamp": e.timestamp_ms, "offset": e.offset} for e in found)
        return
    with map_file(path) as data:
        for batch in iterate(data):
            if isinstance(batch, SegmentDamage):
                yield {"position": batch.position, "damage": batch.text}
                continue
            yield _header(batch)
            if with_records:
                yield from _records(data, batch)


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


def _records(data: memoryview, batch: Batch) -> Iterator[dict[str, Any]]:
    from kbroker.ext.records import BatchError, records

    try:
        found = records(data, batch.position)
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
            "headers": {name: _shown(value) for name, value in record.headers},
        }


def _shown(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _text(line: dict[str, Any]) -> str:
    """A line for people: what is at its usual value is left out."""
    usual = {
        "codec": "none",
        "timestamp_type": "create",
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "control": False,
        "headers": {},
    }
    indent = "    " if "value" in line or "version" in line else "  "
    shown = (f"{key} {_cell(value)}" for key, value in line.items() if usual.get(key, ()) != value)
    return indent + "  ".join(shown)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    return repr(value) if isinstance(value, str) and not value.isprintable() else str(value)


def _json(line: dict[str, Any]) -> str:
    import json

    return json.dumps(line, ensure_ascii=False)


def _verify_segment(path: Path, deep: bool) -> tuple[str, list[str]]:
    """What a segment holds in one line, and what is wrong with it or its indexes."""
    from kbroker.cli.segments import (
        SegmentDamage,
        base_offset_of,
        iterate,
        map_file,
        read_index,
        read_time_index,
    )

    # The indexes before the log: a broker that is writing writes them after it.
    index = _read(path.with_suffix(".index"), read_index)
    time_index = _read(path.with_suffix(".timeindex"), read_time_index)
    troubles: list[str] = []
    seen: list[Batch] = []
    following = base_offset_of(path)
    with map_file(path) as data:
        for batch in iterate(data):
            if isinstance(batch, SegmentDamage):
                troubles.append(f"position {batch.position}: {batch.text}")
                continue
            if batch.base_offset < following:
                troubles.append(
                    f"position {batch.position}: offset {batch.base_offset}"
                    f" where {following} or more is due"
                )
            following = batch.base_offset + batch.last_offset_delta + 1
            seen.append(batch)
            if deep:
                troubles += [
                    f"position {batch.position}: {line['damage']}"
                    for line in _records(data, batch)
                    if "damage" in line
                ]
        size = len(data)
    troubles += _index_faults(index or [], seen)
    troubles += _time_index_faults(time_index or [], seen)
    count = sum(batch.count for batch in seen)
    missing = [name for name, at in ((".index", index), (".timeindex", time_index)) if at is None]
    without = f", without {' and '.join(missing)}" if missing else ""
    return f"{len(seen)} batches, {count} records, {human_bytes(size)}{without}", troubles


def _read(path: Path, reader: Callable[[Path], list[Entry]]) -> list[Entry] | None:
    return reader(path) if path.exists() else None


def _index_faults(index: list[IndexEntry], seen: list[Batch]) -> Iterator[str]:
    """Each entry names the position of a batch that holds its offset."""
    by_position = {batch.position: batch for batch in seen}
    last = -1
    for entry in index:
        batch = by_position.get(entry.position)
        if entry.offset <= last:
            yield f"index: offset {entry.offset} does not come after {last}"
        elif batch is None:
            yield f"index: offset {entry.offset}: no batch begins at {entry.position}"
        elif not 0 <= entry.offset - batch.base_offset <= batch.last_offset_delta:
            yield f"index: offset {entry.offset} is not in the batch at {entry.position}"
        last = entry.offset


def _time_index_faults(index: list[TimeEntry], seen: list[Batch]) -> Iterator[str]:
    """Timestamps and offsets ascend; each is the largest timestamp of the batch it names."""
    starts = [batch.base_offset for batch in seen]
    last_ms, last_offset = -1, -1
    for entry in index:
        at = bisect.bisect_right(starts, entry.offset) - 1
        if entry.timestamp_ms < last_ms or entry.offset < last_offset:
            yield f"time index: {entry.timestamp_ms} at offset {entry.offset} goes back"
        elif at < 0 or seen[at].max_timestamp != entry.timestamp_ms:
            yield f"time index: {entry.timestamp_ms} is not what offset {entry.offset} ends at"
        last_ms, last_offset = entry.timestamp_ms, entry.offset
