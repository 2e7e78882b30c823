"""`kbroker consume`: print records, of whole topics or as a member of a group."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connect import reach, settings_for
from kbroker.cli.format import DEFAULT_FORMAT, compile_format, json_line, unescape
from kbroker.cli.options import bootstrap_option
from kbroker.cli.output import Output
from kbroker.cli.reading import ByColumns, ByRecords, Reading, Shape
from kbroker.cli.span import Span, find_bounds, parse_offsets, partitions_of
from kbroker.cli.stopping import Stop
from kbroker.cli.talking import start_log, talk_options
from kbroker.cli.unpack import unpackers
from kbroker.cli.when import TIME_FORMS

if TYPE_CHECKING:
    from kbroker.client import Consumer
    from kbroker.client.cluster import Cluster

_OFFSET_HELP = (
    "Where to begin: beginning, end, stored (what group.id has committed), an offset N, -N (the"
    " last N), +N (behind the first N), s@TIME (the first at or after TIME), and with a second -o"
    f" e@TIME where to end. TIME: {TIME_FORMS}."
)
_FORMAT_HELP = (
    "As kcat's: %s value, %k key, %h headers, %T timestamp, %t topic, %p partition, %o offset,"
    " %S %K sizes, %R %Q sizes as binary int32, \\n \\t \\xHH escapes. Goes before -D and -K."
)
_UNPACK_HELP = (
    "Keys and values as numbers and text: < > little- and big-endian, b h i q B H I Q 8 to 64 bits"
    " signed and unsigned, c a character, s the rest, $ the end."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The options, by their parameters' names."""

    names: tuple[str, ...]
    topics: tuple[str, ...]
    group: str | None
    bootstrap: str | None
    partitions: tuple[int, ...]
    offsets: tuple[str, ...]
    count: int | None
    exit_eof: bool
    form: str | None
    as_json: bool
    delimiter: str
    key_delimiter: str | None
    with_offset: bool
    null: bool
    unpack: tuple[str, ...]
    quiet: bool
    unbuffered: bool
    isolation: str | None
    read_committed: bool
    go_on: bool
    limit_s: float | None
    verbose: int
    debug: tuple[str, ...]

    @property
    def all_topics(self) -> tuple[str, ...]:
        """Names, and patterns that begin with ^."""
        return tuple(dict.fromkeys((*self.topics, *self.names)))

    @property
    def talks(self) -> bool:
        """Whether somebody is there to be told what goes on beside the records."""
        return not self.quiet and (self.verbose > 0 or sys.stderr.isatty())


@click.command()
@click.argument("names", metavar="TOPIC...", nargs=-1)
@bootstrap_option
@click.option("--topic", "-t", "topics", multiple=True, metavar="TOPIC", help="The same.")
@click.option(
    "--group", "-G", metavar="GROUP", help="Share the topics with the other members of a group."
)
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(-1), multiple=True, help="-1: all."
)
@click.option("--offset", "-o", "offsets", multiple=True, metavar="OFFSET", help=_OFFSET_HELP)
@click.option("--count", "-c", type=click.IntRange(1), help="Exit after so many records.")
@click.option("--exit-eof", "-e", is_flag=True, help="Exit at the end of all partitions.")
@click.option("--format", "-f", "form", metavar="FORMAT", help=_FORMAT_HELP)
@click.option("--json", "-J", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--delimiter", "-D", default="\\n", metavar="DELIM", help="Behind each record.")
@click.option("--key-delimiter", "-K", metavar="DELIM", help="Print the key and this before it.")
@click.option(
    "--print-offset", "-O", "with_offset", is_flag=True, help="Print the offset, with -K."
)
@click.option("--null", "-Z", "null", is_flag=True, help="Show null keys and values as NULL.")
@click.option("--unpack", "-s", "unpack", multiple=True, metavar="[key=|value=]FORM",
              help=_UNPACK_HELP)  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Records alone, also on a terminal.")
@click.option("--unbuffered", "-u", is_flag=True, help="A write for each record.")
@click.option(
    "--isolation-level",
    "isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Whether records of open and aborted transactions are left out.",
)
@click.option("--read-committed", is_flag=True, help="Short for --isolation-level read_committed.")
@click.option(
    "--go-on", "-E", "go_on", is_flag=True, help="Tell of what cannot be read, and go on behind it."
)
@talk_options
def consume(**given: Any) -> None:
    """Print records of topics: from the beginning, and on as they come unless -e is given.

    A TOPIC that begins with ^ is a regular expression. With -G the partitions are shared among the
    group's members, and what was printed is committed; Ctrl-C leaves the group.
    """
    wanted = _Wanted(**given)
    if not wanted.all_topics:
        raise click.UsageError("give a TOPIC")
    span = parse_offsets(wanted.offsets)
    _shape(wanted, lambda topic, index: None)  # a wrong format is told before anything is asked
    start_log(wanted.verbose, wanted.debug)
    from kbroker.client.config_consumer import consumer_config

    defaults = _defaults(wanted, span)
    settings, config = settings_for(wanted.bootstrap, "consumer", defaults, consumer_config)
    if span.begin_at == "stored" and config.group_id is None:
        raise click.UsageError("-o stored needs -X group.id=GROUP")
    with Stop() as stop, reach(config, wanted.limit_s) as cluster:
        out = Output(stop, single=wanted.unbuffered)
        read = _share if wanted.group is not None else _read
        reading = Reading(out, stop, wanted.count, go_on=wanted.go_on)
        read(cluster, wanted, span, settings, reading)


def _defaults(wanted: _Wanted, span: Span) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "allow.auto.create.topics": False,
        "max.partition.fetch.bytes": 4 << 20,
    }
    if wanted.isolation or wanted.read_committed:
        level = wanted.isolation or "read_committed"
        settings["isolation.level"] = level
    if wanted.group is None:
        return settings
    settings["group.id"] = wanted.group
    if wanted.partitions:
        raise click.UsageError("a group shares out the partitions: -p does not go with -G")
    if span.end_ms is not None or (span.given and span.begin_at not in _RESETS):
        raise click.UsageError(
            "with -G, -o says where to begin without a committed offset: beginning, end or @TIME"
        )
    if _RESETS[span.begin_at]:
        settings["auto.offset.reset"] = _RESETS[span.begin_at]
    return settings


_RESETS = {"beginning": "earliest", "end": "latest", "time": "", "stored": ""}


# ---- what is printed


def _shape(wanted: _Wanted, broker_of: Callable[[str, int], int | None]) -> Shape:
    unpack = unpackers(wanted.unpack, go_on=wanted.go_on)
    if wanted.as_json:
        return ByRecords(
            lambda record: json_line(record, broker_of(record.topic, record.partition), unpack),
            unescape(wanted.delimiter, "--delimiter"),
        )
    null = b"NULL" if wanted.null else b""
    if wanted.form is not None:
        return ByColumns(compile_format(wanted.form, null=null, unpack=unpack))
    if wanted.with_offset and wanted.key_delimiter is None:
        raise click.UsageError("-O prints the offset before what -K gives")
    form = ""
    for letter, option in (("%o", wanted.with_offset), ("%k", wanted.key_delimiter is not None)):
        form += letter + _literal(wanted.key_delimiter or "", "--key-delimiter") if option else ""
    form += "%s" + _literal(wanted.delimiter, "--delimiter")
    form = form if form != "%s\\n" else DEFAULT_FORMAT
    return ByColumns(compile_format(form, null=null, unpack=unpack))


def _literal(text: str, option: str) -> str:
    unescape(text, option)  # names the option where it is wrong
    return text.replace("%", "%%")


# ---- alone


def _read(
    cluster: Cluster, wanted: _Wanted, span: Span, settings: dict[str, Any], reading: Reading
) -> None:
    from kbroker.client import Consumer

    indexes = () if -1 in wanted.partitions else wanted.partitions
    leaders = partitions_of(cluster, _matching(cluster, wanted.all_topics), indexes)
    committed = settings.get("isolation.level") == "read_committed"
    bounds = find_bounds(cluster, leaders, span, read_committed=committed)
    shape = _shape(wanted, lambda topic, index: leaders.get((topic, index)))
    stops = wanted.exit_eof or span.end_ms is not None
    ends = bounds.end if stops else {}
    begin = {at: low for at, low in bounds.begin.items() if not stops or low < bounds.end[at]}
    stored = span.begin_at == "stored"
    if stops and not begin and not stored:
        return
    with closing(Consumer(settings)) as consumer:  # which commits, however it ends
        reading.stop.wake = consumer.wakeup
        consumer.assign(leaders if stored else begin)
        for where, offset in begin.items():
            consumer.seek(where, offset)
        if not stops and wanted.talks:
            _tell_end(consumer, bounds.end, reading)
        reading.run(consumer, shape, {at: ends[at] for at in consumer.assignment() if at in ends})


def _matching(cluster: Cluster, names: tuple[str, ...]) -> list[str]:
    """The topics that are named, and those that match a pattern now."""
    pattern = _pattern(tuple(name for name in names if name.startswith("^")))
    found = [name for name in names if not name.startswith("^")]
    if pattern is not None:
        found += [info.name for info in cluster.topics_matching(pattern)]
    if not found:
        raise click.ClickException(f"no topic matches {' '.join(names)}")
    return list(dict.fromkeys(found))


def _pattern(parts: tuple[str, ...]) -> re.Pattern[str] | None:
    """One pattern out of several that match the beginnings of names, as librdkafka's do."""
    if not parts:
        return None
    for part in parts:
        try:
            re.compile(part)
        except re.error as error:
            raise click.BadParameter(f"{part!r}: {error}", param_hint="TOPIC") from error
    return re.compile("|".join(f"(?:{part}).*" for part in parts))


def _tell_end(consumer: Consumer, ends: dict[tuple[str, int], int], reading: Reading) -> None:
    """Says once that what there was has been printed, so that silence is no riddle."""

    def tell() -> None:
        if all(consumer.position(at) >= ends[at] for at in consumer.assignment() if at in ends):
            click.echo("% at the end; waiting for more, Ctrl-C ends", err=True)
            reading.idle = None

    reading.idle = tell


# ---- in a group


def _share(
    cluster: Cluster, wanted: _Wanted, span: Span, settings: dict[str, Any], reading: Reading
) -> None:
    from kbroker.cli.rebalances import Listener
    from kbroker.client import Consumer

    plain = tuple(name for name in wanted.all_topics if not name.startswith("^"))
    patterns = tuple(name for name in wanted.all_topics if name.startswith("^"))
    for name in plain:
        cluster.topic(name)  # tells of a topic that is none, instead of waiting for it
    subscription: Any = list(plain)
    if patterns:
        subscription = _pattern((*patterns, *(f"{re.escape(name)}$" for name in plain)))
    shape = _shape(wanted, lambda topic, index: _leader(cluster, topic, index))
    with closing(Consumer(settings)) as consumer:  # which commits, however it ends
        reading.stop.wake = consumer.wakeup
        listener = Listener(
            consumer,
            wanted.group if wanted.talks else None,
            span.begin if span.begin_at == "time" else None,
        )
        consumer.subscribe(subscription, listener)
        reading.to_the_end = wanted.exit_eof
        reading.run(consumer, shape, {})


def _leader(cluster: Cluster, topic: str, index: int) -> int | None:
    known = cluster.metadata.partition(topic, index)
    if known is None:
        cluster.topic(topic)
        known = cluster.metadata.partition(topic, index)
    return None if known is None else known.leader
