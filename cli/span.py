"""Where reading begins and ends: what -o takes, and the offsets it amounts to.

beginning, end, stored; N, -N (the last N), +N (behind the first N); s@TIME or @TIME (the first at
or after TIME), and with a second -o e@TIME where to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kbroker.cli.when import parse_time_ms

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = ["Bounds", "Partition", "Span", "find_bounds", "parse_offsets", "partitions_of"]

Partition = tuple[str, int]

_WORDS = {
    "beginning": "beginning",
    "start": "beginning",
    "earliest": "beginning",
    "end": "end",
    "latest": "end",
    "stored": "stored",
}


@dataclass(frozen=True, slots=True)
class Span:
    """begin_at: beginning, end, stored, offset, tail, skip or time; begin: its number."""

    begin_at: str = "beginning"
    begin: int = 0
    end_ms: int | None = None
    given: bool = False


def parse_offsets(offsets: tuple[str, ...]) -> Span:
    """What the -o options say. Raises click.BadParameter."""
    begin_at, begin, end_ms = "", 0, None
    for text in offsets:
        if text.startswith("e@"):
            end_ms = parse_time_ms(text[2:], "--offset")
            continue
        if begin_at:
            raise click.BadParameter(f"{text!r}: one beginning is enough", param_hint="--offset")
        if text in _WORDS:
            begin_at = _WORDS[text]
        elif text.startswith(("s@", "@")):
            begin_at, begin = "time", parse_time_ms(text.partition("@")[2], "--offset")
        elif text.lstrip("+-").isdecimal() and text.isascii() and len(text.lstrip("+-")) <= 19:
            sign = text[: len(text) - len(text.lstrip("+-"))]
            if len(sign) > 1:
                raise _wrong(text)
            begin_at = {"-": "tail", "+": "skip", "": "offset"}[sign]
            begin = int(text)
        else:
            raise _wrong(text)
    return Span(begin_at or "beginning", begin, end_ms, bool(begin_at))


def _wrong(text: str) -> click.BadParameter:
    return click.BadParameter(
        f"{text!r}: write beginning, end, stored, N, -N, +N, s@TIME or e@TIME",
        param_hint="--offset",
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of each partition: where to begin (not there: at its committed offset), what its end is now
    or at e@TIME, and who leads it."""

    begin: dict[Partition, int]
    end: dict[Partition, int]
    leaders: dict[Partition, int]


def partitions_of(
    cluster: Cluster, topics: Iterable[str], indexes: tuple[int, ...]
) -> dict[Partition, int]:
    """The partitions wanted with their leaders; no indexes: all. Raises KafkaError for what is
    not there."""
    from kbroker.client.offsets import leader_of

    found = {}
    for topic in topics:
        every = indexes or tuple(part.index for part in cluster.topic(topic).partitions)
        for index in every:
            found[topic, index] = leader_of(cluster, topic, index)
    return found


def find_bounds(
    cluster: Cluster, leaders: dict[Partition, int], span: Span, *, read_committed: bool
) -> Bounds:
    """The offsets that a span amounts to. Raises ClickException for an offset out of range."""
    from kbroker.client.offsets import EARLIEST, LATEST, list_offsets

    def ask(at: int) -> dict[Partition, int]:
        told = list_offsets(cluster, dict.fromkeys(leaders, at), read_committed=read_committed)
        return {where: found.offset for where, found in told.items()}

    def at_time(time_ms: int) -> dict[Partition, int]:
        return {where: at if at >= 0 else now[where] for where, at in ask(time_ms).items()}

    now = ask(LATEST)
    first = {} if span.begin_at in ("end", "time", "stored") else ask(EARLIEST)
    ways: dict[str, Callable[[], dict[Partition, int]]] = {
        "stored": dict,
        "end": lambda: dict(now),
        "beginning": lambda: first,
        "time": lambda: at_time(span.begin),
        "tail": lambda: {at: max(first[at], end + span.begin) for at, end in now.items()},
        "skip": lambda: {at: min(low + span.begin, now[at]) for at, low in first.items()},
        "offset": lambda: dict.fromkeys(now, span.begin),
    }
    begin = ways[span.begin_at]()
    if span.begin_at == "offset":
        _refuse_outside(span.begin, first, now)
    end = now if span.end_ms is None else at_time(span.end_ms)
    return Bounds(begin, end, leaders)


def _refuse_outside(offset: int, first: dict[Partition, int], end: dict[Partition, int]) -> None:
    for (topic, index), low in first.items():
        if not low <= offset <= end[topic, index]:
            raise click.ClickException(
                f"offset {offset} is not in {topic}-{index}, which begins at {low}"
                f" and goes on at {end[topic, index]}"
            )
