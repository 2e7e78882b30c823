"""`kbroker topic browse`: records of a topic that fit, one by one in a table."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import logging
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connect import reach, settings_for
from kbroker.cli.filters import filter_of
from kbroker.cli.options import bootstrap_option, output_option
from kbroker.cli.progress import Progress
from kbroker.cli.render import Column, cut, print_json, print_rows
from kbroker.cli.scan import scan
from kbroker.cli.sending import count_of
from kbroker.cli.span import Partition, partitions_of
from kbroker.cli.stopping import Stop, StoppedError
from kbroker.cli.when import TIME_FORMS, parse_time_ms

if TYPE_CHECKING:
    from kbroker.client import Record
    from kbroker.client.cluster import Cluster

_COLUMNS = [
    Column("partition", "PARTITION", number=True),
    Column("offset", "OFFSET", number=True),
    Column("time", "TIME"),
    Column("timestamp_type", "OF", wide=True),
    Column("key", "KEY"),
    Column("key_size", "KEY BYTES", wide=True, number=True),
    Column("headers", "HEADERS", wide=True),
    Column("value_size", "BYTES", number=True),
    Column("value", "VALUE"),
]
_OTHERS_WIDTH = 56  # of a table's columns but key and value
_WIDTH_MIN = 20
_SCAN_DEFAULT = 100_000
_TIME_TYPES = ("create", "logappend")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The options, by their parameters' names."""

    topic: str
    bootstrap: str | None
    output: str
    key: str | None
    headers: tuple[str, ...]
    partitions: tuple[int, ...]
    from_offset: int | None
    to_offset: int | None
    since: str | None
    until: str | None
    contains: tuple[str, ...]
    regex: str | None
    limit: int
    most: int
    newest_first: bool
    read_committed: bool


@click.command()
@click.argument("topic", metavar="TOPIC")
@bootstrap_option
@output_option
@click.option("--key", "-k", metavar="KEY", help="Only with exactly this key.")
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Only with this header.",
)
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True)
@click.option("--from-offset", type=click.IntRange(0), metavar="N", help="From this offset on.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Up to this offset.")
@click.option("--since", metavar="TIME", help=f"Not before TIME: {TIME_FORMS}.")
@click.option("--until", metavar="TIME", help="Before TIME.")
@click.option("--contains", multiple=True, metavar="TEXT", help="TEXT is in the value or the key.")
@click.option("--regex", metavar="REGEX", help="The value has a match of a regular expression.")
@click.option(
    "--limit", "-n", type=click.IntRange(0), default=20, show_default=True,
    help="Stop after so many that fit; 0: never.",
)  # fmt: skip
@click.option(
    "--scan", "most", type=click.IntRange(0), default=_SCAN_DEFAULT, show_default=True,
    help="Stop after looking at so many; 0: never.",
)  # fmt: skip
@click.option("--tail", "newest_first", is_flag=True, help="The newest first.")
@click.option("--read-committed", is_flag=True, help="Without open and aborted transactions.")
def browse(**given: Any) -> None:
    """Look for records of a topic: by key, header, offset, time or text, oldest first.

    Says how many records were looked at and how many fit; nothing is committed.
    """
    wanted = _Wanted(**given)
    since_ms = None if wanted.since is None else parse_time_ms(wanted.since, "--since")
    until_ms = None if wanted.until is None else parse_time_ms(wanted.until, "--until")
    fits = filter_of(
        key=wanted.key,
        headers=wanted.headers,
        contains=wanted.contains,
        regex=wanted.regex,
        since_ms=since_ms,
        until_ms=until_ms,
    )
    logging.basicConfig(level=logging.WARNING, format="kbroker: %(message)s")
    defaults: dict[str, Any] = {
        "allow.auto.create.topics": False,
        "auto.offset.reset": "earliest",
    }
    if wanted.read_committed:
        defaults["isolation.level"] = "read_committed"
    from kbroker.client.config_consumer import consumer_config

    settings, config = settings_for(wanted.bootstrap, "consumer", defaults, consumer_config)
    with Stop() as stop, reach(config) as cluster:
        bounds = _bounds(cluster, wanted, since_ms, until_ms)
        found, scanned = _look(settings, bounds, wanted, fits, stop)
    _show(wanted, found)
    if wanted.output != "json" or sys.stderr.isatty():
        _tell(wanted, len(found), scanned, sum(high - low for low, high in bounds.values()))


def _bounds(
    cluster: Cluster, wanted: _Wanted, since_ms: int | None, until_ms: int | None
) -> dict[Partition, tuple[int, int]]:
    """Where each partition is looked at: what times and offsets leave of it. It begins at the
    first record at or after --since, and ends before the first one at or after --until."""
    from kbroker.client.offsets import EARLIEST, LATEST, list_offsets

    parts = partitions_of(cluster, [wanted.topic], wanted.partitions)

    def ask(at: int) -> dict[Partition, int]:
        told = list_offsets(cluster, dict.fromkeys(parts, at), read_committed=wanted.read_committed)
        return {where: found.offset for where, found in told.items()}

    end = ask(LATEST)

    def at_time(time_ms: int) -> dict[Partition, int]:
        return {where: at if at >= 0 else end[where] for where, at in ask(time_ms).items()}

    low = ask(EARLIEST) if since_ms is None else at_time(since_ms)
    high = end if until_ms is None else at_time(until_ms)
    found = {}
    for where in parts:
        first = max(low[where], wanted.from_offset or 0)
        end_at = high[where]
        if wanted.to_offset is not None:
            end_at = min(end_at, wanted.to_offset + 1)
        if first < end_at:
            found[where] = (first, end_at)
    return found


def _look(
    settings: dict[str, Any],
    bounds: dict[Partition, tuple[int, int]],
    wanted: _Wanted,
    fits: Callable[[Record], bool],
    stop: Stop,
) -> tuple[list[Record], int]:
    """Records that fit, and how many were looked at."""
    from kbroker.client import Consumer

    found: list[Record] = []
    scanned = 0
    if not bounds:
        return found, scanned
    progress = Progress(shown=True)
    with Consumer(settings) as consumer:
        records = scan(consumer, bounds, newest_first=wanted.newest_first, stop=stop)
        try:
            for record in itertools.islice(records, wanted.most or None):
                scanned += 1
                if fits(record):
                    found.append(record)
                    if len(found) == wanted.limit:
                        break
                if not scanned % 1000:
                    progress.tick(scanned, None, f", {len(found)} fit")
        except StoppedError:
            pass
        progress.clear()
    return found, scanned


# ---- what is printed


def _show(wanted: _Wanted, found: list[Record]) -> None:
    if wanted.output == "json":
        print_json([_plain(record) for record in found])
        return
    width = None
    if wanted.output == "table" and sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns - _OTHERS_WIDTH, 2 * _WIDTH_MIN)
    print_rows(_COLUMNS, [_row(record, width) for record in found], wanted.output)


def _plain(record: Record) -> dict[str, Any]:
    """For programs: the names of consume -J where it has them."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": _TIME_TYPES[record.timestamp_type],
        "ts": record.timestamp,
        "headers": [[name, _text(value)] for name, value in record.headers],
        "key": _text(record.key),
        "payload": _text(record.value),
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _row(record: Record, width: int | None) -> dict[str, Any]:
    key = pretty(record.key)
    value = pretty(record.value)
    if width is not None:
        key = cut(key, max(_WIDTH_MIN, width // 4))
        value = cut(value, max(_WIDTH_MIN, width - len(key)))
    return {
        "partition": record.partition,
        "offset": record.offset,
        "time": _time(record.timestamp),
        "timestamp_type": _TIME_TYPES[record.timestamp_type],
        "key": key,
        "key_size": None if record.key is None else len(record.key),
        "headers": [f"{name}={pretty(value)}" for name, value in record.headers] or None,
        "value_size": None if record.value is None else len(record.value),
        "value": value,
    }


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    try:
        at = datetime.datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):  # beyond the calendar
        return str(timestamp_ms)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def pretty(data: bytes | None) -> str:
    """Bytes for people: JSON without its spaces, text, and \\xHH where it is neither."""
    if data is None:
        return "NULL"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data)
    if text[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _tell(wanted: _Wanted, found: int, scanned: int, there: int) -> None:
    told = f"{count_of(scanned)} looked at, {found} fit"
    if wanted.limit and found == wanted.limit:
        told += f"; -n {wanted.limit} reached"
    elif wanted.most and scanned == wanted.most and scanned < there:
        told += f"; --scan {wanted.most} reached, of about {there}"
    click.echo(told, err=True)
