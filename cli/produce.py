"""`kbroker produce`: records from standard input or files, in the forms that kcat and rpk know."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.connect import reach, settings_for
from kbroker.cli.format import unescape
from kbroker.cli.format_in import FormatReader
from kbroker.cli.options import bootstrap_option
from kbroker.cli.output import Output
from kbroker.cli.progress import Progress
from kbroker.cli.records_in import (
    BadInput,
    Chunk,
    Headers,
    by_lines,
    parse_json,
    parsed,
    read,
    split,
    whole_files,
)
from kbroker.cli.sending import Sending
from kbroker.cli.stopping import Stop, StoppedError
from kbroker.cli.talking import start_log, talk_options

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.config_producer import ProducerConfig

_FORMAT_HELP = (
    "How records are written: %k %s and the other letters of consume -f, with text between them, or"
    " sizes (%K %S %R %Q) before them."
)


_Entry = Chunk | int | BadInput
"""Records, the size of one that is too large, or what is wrong with a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The options, by their parameters' names."""

    topic: str | None
    paths: tuple[str, ...]
    named: str | None
    bootstrap: str | None
    key: str | None
    key_delimiter: str | None
    delimiter: str
    headers: tuple[str, ...]
    partition: int | None
    compression: str | None
    acks: str | None
    null: bool
    by_line: bool
    count: int | None
    form: str | None
    as_json: bool
    keep_partitions: bool
    tee: bool
    rate: int | None
    quiet: bool
    no_create: bool
    go_on: bool
    limit_s: float | None
    verbose: int
    debug: tuple[str, ...]

    @property
    def name(self) -> str:
        """The topic."""
        name = self.topic if self.named is None else self.named
        if name is None:
            raise click.UsageError("give a TOPIC")
        return name

    @property
    def files(self) -> list[Path]:
        """What is read instead of standard input; with -t the first argument is a file as well."""
        first = () if self.named is None or self.topic is None else (self.topic,)
        found = [Path(word) for word in (*first, *self.paths)]
        for path in found:
            if not path.exists():
                raise click.BadParameter(f"{path} does not exist", param_hint="FILE")
        return found


@click.command()
@click.argument("topic", metavar="TOPIC", required=False)
@click.argument("paths", metavar="[FILE...]", nargs=-1)
@bootstrap_option
@click.option(
    "--topic", "-t", "named", metavar="TOPIC", help="The topic; then all arguments are files."
)
@click.option("--key", "-k", metavar="KEY", help="Key of every record that has none of its own.")
@click.option("--key-delimiter", "-K", metavar="DELIM", help="A line is KEY DELIM VALUE.")
@click.option("--delimiter", "-D", default="\\n", metavar="DELIM", help="Between records.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE")
@click.option(
    "--partition", "-p", type=click.IntRange(-1), help="Default: by key, else in turn. -1: random."
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Default: none.",
)
@click.option("--acks", type=click.Choice(["all", "-1", "1", "0"]), help="Default: all.")
@click.option("--null", "-Z", "null", is_flag=True, help="Empty keys and values become null.")
@click.option("--lines", "-l", "by_line", is_flag=True, help="FILEs hold records as stdin does.")
@click.option("--count", "-c", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--format", "-f", "form", metavar="FORMAT", help=_FORMAT_HELP)
@click.option("--json", "-J", "as_json", is_flag=True, help="Lines are what consume -J prints.")
@click.option(
    "--keep-partitions", is_flag=True, help="Records go to the partitions that -J or %p name."
)
@click.option("--tee", "-T", is_flag=True, help="Print what is sent, too.")
@click.option("--rate", type=click.IntRange(1), metavar="N", help="At most N records a second.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing when it is done.")
@click.option("--no-create", is_flag=True, help="Do not let the broker create the topic.")
@click.option(
    "--go-on", "-E", "go_on", is_flag=True, help="Leave out, tell and count lines that are no JSON."
)
@talk_options
def produce(**given: Any) -> int:
    """Send records: a line of standard input each, or each FILE as one record.

    An idempotent producer with acks=all: nothing is written twice, and what is told as sent is on
    disk. The broker creates a topic that does not exist, if it is set to. Ctrl-C ends the input;
    what was read until then is sent. With -X transactional.id=ID all of it is one transaction,
    which Ctrl-C and a record that fails abort.
    """
    wanted = _Wanted(**given)
    start_log(wanted.verbose, wanted.debug)
    from kbroker.client.config_producer import producer_config

    defaults = _defaults(wanted)
    settings, config = settings_for(wanted.bootstrap, "producer", defaults, producer_config)
    with Stop() as stop:
        source = _source(wanted, config, stop)  # before anything is asked: it may be told wrong
        with reach(config, wanted.limit_s) as cluster:
            partitions = _look(cluster, wanted)
        return _produce(wanted, settings, _numbered(source, partitions, wanted), stop)


def _defaults(wanted: _Wanted) -> dict[str, Any]:
    settings: dict[str, Any] = {"batch.size": 131_072}
    if wanted.compression is not None:
        settings["compression.type"] = wanted.compression
    if wanted.acks is not None:
        settings["acks"] = wanted.acks
    if wanted.partition == -1:
        settings["partitioner.class"] = "random"
    return settings


def _look(cluster: Cluster, wanted: _Wanted) -> int:
    """How many partitions the topic has; tells of what is not there before anything is read."""
    from kbroker.client.offsets import leader_of

    info = cluster.topic(wanted.name, create=not wanted.no_create)
    if wanted.partition is not None and wanted.partition >= 0:
        leader_of(cluster, wanted.name, wanted.partition)
    return len(info.partitions)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint="--header")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


# ---- input


def _source(wanted: _Wanted, config: ProducerConfig, stop: Stop) -> Iterator[_Entry]:
    if wanted.as_json and wanted.form is not None:
        raise click.UsageError("give one of --json and --format")
    if wanted.keep_partitions and not wanted.as_json and wanted.form is None:
        raise click.UsageError("--keep-partitions goes with --json or --format")
    between = unescape(wanted.delimiter, "--delimiter")
    at_key = None if wanted.key_delimiter is None else unescape(wanted.key_delimiter, "-K")
    if not between or at_key == b"":
        raise click.UsageError("a delimiter has at least one byte")
    key = None if wanted.key is None else wanted.key.encode("utf-8", "surrogateescape")
    files, most = wanted.files, config.max_request_size
    if wanted.by_line and not files:
        raise click.UsageError("--lines: give a FILE")
    if files and not (wanted.by_line or wanted.as_json or wanted.form is not None):
        return by_lines(whole_files(files), key, at_key, wanted.null)
    streams = [path.open("rb") for path in files] if files else [sys.stdin.buffer]
    pieces = [read(stream, stop) for stream in streams]
    if wanted.form is not None:
        reader = FormatReader(wanted.form, between, most)
        return chain.from_iterable(map(reader.chunks, pieces))
    if wanted.as_json:
        lines = chain.from_iterable(split(one, b"\n", 8 * most) for one in pieces)
        return parsed(lines, parse_json, go_on=wanted.go_on)
    groups = chain.from_iterable(split(one, between, most) for one in pieces)
    return by_lines(groups, key, at_key, wanted.null)


def _numbered(
    source: Iterator[_Entry], partitions: int, wanted: _Wanted
) -> Iterator[_Entry]:
    """At most --count records; partitions of the input looked at, or dropped; --key where a record
    of JSON or of a format has none."""
    left = wanted.count
    before = 0
    for entry in source:
        if isinstance(entry, Chunk):
            chunk = entry if left is None else entry.part(0, left)
            if not wanted.keep_partitions:
                chunk.partitions = None
            if wanted.key is not None and (wanted.as_json or wanted.form is not None):
                key = wanted.key.encode("utf-8", "surrogateescape")
                chunk.keys = [key if own is None else own for own in chunk.keys or ()]
            for at, place in enumerate(chunk.partitions or ()):
                if place is not None and not 0 <= place < partitions:
                    yield chunk.part(0, at)
                    raise BadInput(
                        f"record {before + at + 1}: partition {place}, and the topic has"
                        f" {partitions}"
                    )
            yield chunk
        else:
            yield entry
        size = len(entry) if isinstance(entry, Chunk) else 1
        before += size
        if left is not None:
            left -= size
            if left <= 0:
                return


# ---- output


def _produce(
    wanted: _Wanted, settings: dict[str, Any], source: Iterator[_Entry], stop: Stop
) -> int:
    from kbroker.client import KafkaError, Producer

    named: Headers = [_header(text) for text in wanted.headers]
    interactive = not wanted.files and sys.stdin.isatty()
    tee = (Output(stop), unescape(wanted.delimiter, "-D")) if wanted.tee else None
    partition = None if wanted.partition == -1 else wanted.partition
    trouble: BaseException | None = None
    with Producer(settings) as producer:
        whole = producer.config.transactional_id
        if whole:
            producer.init_transactions(wanted.limit_s)
            producer.begin()
        progress = Progress(shown=not (wanted.quiet or wanted.tee or interactive))
        sending = Sending(
            producer, wanted.name, stop, progress,
            partition=partition, headers=named, rate=wanted.rate, tee=tee,
            places=wanted.verbose > 0,
        )  # fmt: skip
        try:
            for entry in source:
                if isinstance(entry, Chunk):
                    sending.send(entry)
                else:
                    sending.refuse(None if isinstance(entry, int) else entry.message)
                if interactive:
                    sending.finish()
                if stop.asked:
                    break
        except StoppedError:
            pass
        except (click.ClickException, OSError, KafkaError) as error:
            trouble = error
        sending.finish()
        answered = producer.config.acks != 0
        aborted = bool(whole and (trouble is not None or stop.asked or sending.failed))
        if aborted:
            producer.abort(wanted.limit_s)
            click.echo(f"kbroker: the transaction of {whole} was aborted", err=True)
        elif whole:
            producer.commit(wanted.limit_s)
    _tell(wanted, sending, stop, trouble, answered=answered, aborted=aborted)
    return 0 if not stop.asked else 128 + stop.asked


def _tell(
    wanted: _Wanted, sending: Sending, stop: Stop, trouble: BaseException | None, *,
    answered: bool, aborted: bool,
) -> None:  # fmt: skip
    failures = sending.failures()
    if not (wanted.quiet or aborted) and (sending.acked or not (failures or trouble)):
        stopped = "stopped; what was read is sent: " if stop.asked else ""
        click.echo(stopped + sending.summary(answered=answered), err=True)
    if failures and trouble is not None:
        click.echo(f"kbroker: {failures}", err=True)
    if trouble is not None:
        raise trouble
    if failures:
        raise click.ClickException(failures)
