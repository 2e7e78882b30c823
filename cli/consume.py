"""`kbroker consume`: print records of a topic, by partition and offset."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kbroker.cli.format import DEFAULT_FORMAT, compile_format, json_line, unescape
from kbroker.cli.options import bootstrap_option, open_cluster
from kbroker.cli.when import parse_time_ms

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.fetch import Reader
    from kbroker.client.records import FetchedRecord

Partition = tuple[str, int]

_OFFSET_HELP = (
    "Where to begin: beginning, end, an offset N, -N (the last N), s@TIME (the first at or after"
    " TIME), and with a second -o e@TIME where to end. TIME: ms since 1970 or ISO 8601."
)


@dataclass(frozen=True, slots=True)
class _Span:
    """Where to begin (one of the three) and where to end."""

    begin: int | None = None  # an offset, or with a minus the last so many
    begin_at: str = "beginning"
    begin_ms: int | None = None
    end_ms: int | None = None


@click.command()
@click.argument("topic", metavar="TOPIC")
@bootstrap_option
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True)
@click.option("--offset", "-o", "offsets", multiple=True, metavar="OFFSET", help=_OFFSET_HELP)
@click.option("--count", "-c", type=click.IntRange(1), help="Exit after so many records.")
@click.option("--exit-eof", "-e", is_flag=True, help="Exit at the end of all partitions.")
@click.option(
    "--format",
    "-f",
    "form",
    metavar="FORMAT",
    help="As kcat's: %s value, %k key, %h headers, %T timestamp, %t topic, %p partition, %o offset,"
    " %S %K sizes, \\n \\t escapes. Default: '%s\\n'.",
)
@click.option("--json", "-J", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--key-delimiter", "-K", metavar="DELIM", help="Print the key and this before it.")
@click.option("--null", "-Z", "null", is_flag=True, help="Show null keys and values as NULL.")
@click.option("--unbuffered", "-u", is_flag=True, help="Flush after each record.")
@click.option("--read-committed", is_flag=True, help="Only up to the last stable offset.")
def consume(
    topic: str,
    bootstrap: str | None,
    partitions: tuple[int, ...],
    offsets: tuple[str, ...],
    count: int | None,
    exit_eof: bool,
    form: str | None,
    as_json: bool,
    key_delimiter: str | None,
    null: bool,
    unbuffered: bool,
    read_committed: bool,
) -> None:
    """Print records of a topic: from the beginning, and on as they come unless -e is given."""
    if sum((form is not None, as_json, key_delimiter is not None)) > 1:
        raise click.UsageError("give only one of --format, --json and --key-delimiter")
    span = parse_offsets(offsets)
    show = _printer(form, as_json, key_delimiter, b"NULL" if null else b"")
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.fetch import Reader

        begin, end = _bounds(cluster, topic, partitions, span, read_committed)
        stop_at = end if exit_eof or span.end_ms is not None else {}
        reader = Reader(cluster, begin, read_committed=read_committed)
        _print(reader, show, stop_at, count, unbuffered)


def parse_offsets(offsets: tuple[str, ...]) -> _Span:
    """What the -o options say."""
    begin: int | None = None
    begin_at, begin_ms, end_ms = "beginning", None, None
    for text in offsets:
        if text in ("beginning", "end"):
            begin_at = text
        elif text.startswith("s@"):
            begin_ms = parse_time_ms(text[2:], "--offset")
        elif text.startswith("e@"):
            end_ms = parse_time_ms(text[2:], "--offset")
        elif text.removeprefix("-").isdecimal() and text.isascii():
            begin = int(text)
            begin_at = "tail" if text.startswith("-") else "offset"
        else:
            raise click.BadParameter(
                f"{text!r}: write beginning, end, N, -N, s@TIME or e@TIME", param_hint="--offset"
            )
    return _Span(begin, begin_at, begin_ms, end_ms)


def _printer(
    form: str | None, as_json: bool, key_delimiter: str | None, null: bytes
) -> Callable[[FetchedRecord], bytes]:
    if as_json:
        return lambda record: json_line(record).encode() + b"\n"
    if key_delimiter is not None:
        between = unescape(key_delimiter, "--key-delimiter")
        key, value = compile_format("%k", null=null), compile_format("%s\\n", null=null)
        return lambda record: key(record) + between + value(record)
    return compile_format(form if form is not None else DEFAULT_FORMAT, null=null)


def _bounds(
    cluster: Cluster,
    topic: str,
    partitions: tuple[int, ...],
    span: _Span,
    read_committed: bool,
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Where to begin in each partition, and where its end is now (or at e@TIME)."""
    from kbroker.client.offsets import EARLIEST, LATEST, leader_of, list_offsets

    indexes = partitions or tuple(part.index for part in cluster.topic(topic).partitions)
    every = [(topic, index) for index in indexes]
    for key in every:
        leader_of(cluster, *key)  # tells of a partition that is none
    ends = list_offsets(cluster, dict.fromkeys(every, LATEST), read_committed=read_committed)
    first = list_offsets(cluster, dict.fromkeys(every, EARLIEST))
    end = {key: ends[key].offset for key in every}
    if span.begin_ms is not None:
        found = list_offsets(cluster, dict.fromkeys(every, span.begin_ms))
        begin = {key: found[key].offset if found[key].offset >= 0 else end[key] for key in every}
    elif span.begin_at == "end":
        begin = dict(end)
    elif span.begin_at == "tail":
        assert span.begin is not None
        begin = {key: max(first[key].offset, end[key] + span.begin) for key in every}
    elif span.begin_at == "offset":
        assert span.begin is not None
        begin = dict.fromkeys(every, span.begin)
        _refuse_outside(begin, {key: first[key].offset for key in every}, end)
    else:
        begin = {key: first[key].offset for key in every}
    if span.end_ms is not None:
        found = list_offsets(cluster, dict.fromkeys(every, span.end_ms))
        end = {key: found[key].offset if found[key].offset >= 0 else end[key] for key in every}
    return begin, end


def _refuse_outside(
    begin: dict[Partition, int], first: dict[Partition, int], end: dict[Partition, int]
) -> None:
    for (topic, index), offset in begin.items():
        low, high = first[topic, index], end[topic, index]
        if not low <= offset <= high:
            raise click.ClickException(
                f"offset {offset} is not in {topic}-{index}, which begins at {low}"
                f" and goes on at {high}"
            )


def _print(
    reader: Reader,
    show: Callable[[FetchedRecord], bytes],
    stop_at: dict[Partition, int],
    count: int | None,
    unbuffered: bool,
) -> None:
    """Prints until `stop_at` is reached everywhere (if told), `count` records, or Ctrl-C."""
    out = sys.stdout.buffer
    printed = 0
    while True:
        for key, end in stop_at.items():
            if reader.positions.get(key, end) >= end:
                reader.positions.pop(key, None)
        if stop_at and not reader.positions:
            break
        began = time.monotonic()
        for record in reader.poll():
            if record.offset >= stop_at.get((record.topic, record.partition), record.offset + 1):
                continue
            out.write(show(record))
            printed += 1
            if unbuffered:
                out.flush()
            if printed == count:
                out.flush()
                return
        if time.monotonic() - began > 0.01:
            out.flush()
    out.flush()
