"""Offsets that groups shall have: fitted to the logs, and in files as Kafka's tool writes them.

A file is CSV without a heading: `topic,partition,offset`, or `group,topic,partition,offset` where
it is about several groups. kafka-consumer-groups writes it with --export and reads it with
--from-file.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from kbroker.printable import escaped

__all__ = ["Plan", "clamp", "read_plan", "write_plan"]

Partition = tuple[str, int]
Plan = dict[str, dict[Partition, int]]

_DIGITS_MAX = 19  # of an int64


def clamp(
    wanted: Mapping[Partition, int], bounds: Mapping[Partition, tuple[int, int]]
) -> tuple[dict[Partition, int], list[str]]:
    """Offsets within (first, next) of their logs, and a line about each that was not."""
    offsets, moved = {}, []
    for key, offset in wanted.items():
        low, high = bounds[key]
        offsets[key] = min(max(offset, low), high)
        if offset != offsets[key]:
            where = "beyond the end" if offset > high else "before the first record"
            moved.append(f"{key[0]}-{key[1]}: {offset} is {where}, {offsets[key]} taken")
    return offsets, moved


def write_plan(path: Path, plan: Plan, *, with_group: bool) -> None:
    """Writes a file of offsets; `-` is standard output, where a terminal gets names escaped."""
    out = io.StringIO()
    name = escaped if str(path) == "-" and sys.stdout.isatty() else str
    lines = csv.writer(out, lineterminator="\n")
    for group, offsets in plan.items():
        for (topic, index), offset in sorted(offsets.items()):
            lines.writerow([*([name(group)] if with_group else []), name(topic), index, offset])
    if str(path) == "-":
        # without color, click would take what looks like color out of names
        click.echo(out.getvalue(), nl=False, color=True)
    else:
        path.write_text(out.getvalue())


def read_plan(path: Path, groups: Sequence[str]) -> Plan:
    """The offsets of a file for these groups, or for those it names where none are given.

    Raises click.ClickException for what is no such file, or has no offsets.
    """
    plan: Plan = {}
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        if len(line) not in (3, 4):
            raise click.ClickException(
                f"{where}: write topic,partition,offset or group,topic,partition,offset"
            )
        if len(line) == 3 and len(groups) != 1:
            raise click.ClickException(f"{where} names no group: give exactly one GROUP")
        group = line[0] if len(line) == 4 else groups[0]
        topic, index, offset = line[-3:]
        plan.setdefault(group, {})[topic, _number(index, where)] = _number(offset, where)
    for group in groups:
        if group not in plan:
            raise click.ClickException(f"{path} has no offsets for group {group!r}")
    if not plan:
        raise click.ClickException(f"{path} has no offsets")
    return {group: plan[group] for group in groups or plan}


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, in their parts, with their numbers."""
    data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    try:
        for number, line in enumerate(csv.reader(io.StringIO(data.decode(), newline="")), 1):
            if line:
                yield number, line
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path} is not UTF-8: {error.reason}") from None
    except csv.Error as error:
        raise click.ClickException(f"{path} is not CSV: {error}") from None


def _number(text: str, where: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise click.ClickException(f"{where}: {text!r} is not a number")
    if len(digits.lstrip("0")) > _DIGITS_MAX:
        raise click.ClickException(f"{where}: {text!r} is larger than any offset")
    return int(digits)
