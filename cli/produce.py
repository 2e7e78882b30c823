"""`kbroker produce`: records from standard input, a line each, or whole files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from kbroker.cli.format import unescape
from kbroker.cli.options import bootstrap_option, open_cluster

if TYPE_CHECKING:
    from kbroker.client.produce import Delivered

_CHUNK_BYTES = 1 << 16

Record = tuple[bytes | None, bytes | None]


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.argument(
    "files", metavar="[FILE...]", nargs=-1, type=click.Path(exists=True, path_type=Path)
)
@bootstrap_option
@click.option("--key", "-k", metavar="KEY", help="Key of every record.")
@click.option("--key-delimiter", "-K", metavar="DELIM", help="A line is KEY DELIM VALUE.")
@click.option("--delimiter", "-D", default="\\n", metavar="DELIM", help="Between records.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE")
@click.option("--partition", "-p", type=click.IntRange(0), help="Default: by key, else in turn.")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(["all", "-1", "1", "0"]), default="all")
@click.option("--null", "-Z", "null", is_flag=True, help="Empty keys and values become null.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing when it is done.")
@click.option("--no-create", is_flag=True, help="Do not let the broker create the topic.")
def produce(
    topic: str,
    files: tuple[Path, ...],
    bootstrap: str | None,
    key: str | None,
    key_delimiter: str | None,
    delimiter: str,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    acks: str,
    null: bool,
    quiet: bool,
    no_create: bool,
) -> None:
    """Send records: a line of standard input each, or each FILE as one record.

    An idempotent producer with acks=all: nothing is written twice, and what is told as sent is on
    disk. The broker creates a topic that does not exist, if it is set to.
    """
    if key is not None and key_delimiter is not None:
        raise click.UsageError("give one of --key and --key-delimiter")
    split = None if key_delimiter is None else unescape(key_delimiter, "--key-delimiter")
    between = unescape(delimiter, "--delimiter")
    if not between or split == b"":
        raise click.UsageError("a delimiter has at least one byte")
    named = [_header(text) for text in headers]
    level = {"all": -1, "-1": -1, "1": 1, "0": 0}[acks]
    source = _whole_files(files) if files else _lines(sys.stdin.buffer, between)
    delivered: list[Delivered] = []
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.produce import Producer

        producer = Producer(
            cluster,
            acks=level,
            codec=compression,
            idempotent=level == -1,
            create_topics=not no_create,
        )
        if partition is None:
            cluster.topic(topic, create=not no_create)  # before anything is read
        interactive = not files and sys.stdin.isatty()
        for data in source:
            at_key, value = _record(data, key, split, null)
            producer.send(topic, value, key=at_key, headers=named, partition=partition)
            if interactive:
                delivered += producer.flush()
        delivered += producer.flush()
    if not quiet:
        click.echo(_summary(topic, delivered, level), err=True)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint="--header")
    return name, value.encode() if equals else None


def _record(data: bytes, key: str | None, split: bytes | None, null: bool) -> Record:
    found: bytes | None = None if key is None else key.encode("utf-8", "surrogateescape")
    value: bytes | None = data
    if split is not None:
        before, there, after = data.partition(split)
        found, value = (before, after) if there else (None, data)
    if null:
        found, value = found or None, value or None
    return found, value


def _whole_files(files: tuple[Path, ...]) -> Iterator[bytes]:
    return (path.read_bytes() for path in files)


def _lines(stream: BinaryIO, between: bytes) -> Iterator[bytes]:
    """The parts of a stream; what follows the last delimiter counts unless it is empty."""
    if between == b"\n":
        yield from (line.removesuffix(b"\n") for line in stream)
        return
    held = b""
    while chunk := stream.read(_CHUNK_BYTES):
        *whole, held = (held + chunk).split(between)
        yield from whole
    if held.removesuffix(b"\n"):
        yield held.removesuffix(b"\n")


def _summary(topic: str, delivered: list[Delivered], acks: int) -> str:
    total = sum(batch.records for batch in delivered)
    partitions = sorted({batch.partition for batch in delivered})
    if not total:
        return f"nothing sent to {topic}"
    records = "1 record" if total == 1 else f"{total} records"
    to = f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"
    told = "sent, not acknowledged," if acks == 0 else "acknowledged"
    return f"{records} {told} to {topic} {to}"
