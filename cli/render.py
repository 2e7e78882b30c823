"""Lists and descriptions as a table, a wide table or JSON.

On a terminal a table is drawn by rich, fitted to its width; into a pipe or file it is plain
columns, which stay the same whatever the terminal. Names in it are of anybody's making (a client
id, a group, a transactional id may hold what steers a terminal, or a line that looks like another
row): a cell, and a line that `say` prints, holds what cannot be printed in an escaped form. A very
long cell is cut, but for wide tables; JSON is exact, as it has escapes of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from kbroker.printable import escaped, escaped_json

__all__ = [
    "Column", "cut", "human_bytes", "human_time", "json_text", "print_json", "print_rows", "say",
]  # fmt: skip

_CELL_MOST_CHARS: Final = 500
"""Twice the longest topic name: group and transactional ids go up to 32,767."""


@dataclass(frozen=True, slots=True)
class Column:
    """key: name in JSON and in the rows; wide: shown in wide tables alone; number: set right."""

    key: str
    title: str
    wide: bool = False
    number: bool = False


def print_rows(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], output: str) -> None:
    """Prints rows in the form that -o names; JSON has every column, as a list of objects."""
    if output == "json":
        print_json([{column.key: row.get(column.key) for column in columns} for row in rows])
        return
    shown = [column for column in columns if output == "wide" or not column.wide]
    table = [[escaped(_cell(row.get(column.key))) for column in shown] for row in rows]
    if output != "wide":
        table = [[cut(text, _CELL_MOST_CHARS) for text in line] for line in table]
    if sys.stdout.isatty() and output != "wide":
        _draw(shown, table)
    else:
        _write(shown, table)


def say(line: str, *, err: bool = False) -> None:
    """Prints a line in which names of anybody's making stand."""
    click.echo(escaped(line), err=err)


def cut(text: str, width: int) -> str:
    """At most so many characters, the last a sign that there were more."""
    return text if len(text) <= width else text[: width - 1] + "…"


def print_json(value: Any) -> None:
    """Prints a value as indented JSON."""
    click.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that people can read; what cannot be printed is in its escaped form."""
    return escaped_json(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)


def _write(columns: Sequence[Column], table: list[list[str]]) -> None:
    titles = [column.title for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *table, strict=True)]
    for line in (titles, *table):
        cells = (
            text.rjust(width) if column.number else text.ljust(width)
            for column, width, text in zip(columns, widths, line, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def _draw(columns: Sequence[Column], table: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        drawn.add_column(
            column.title,
            justify="right" if column.number else "left",
            no_wrap=column.number,
            overflow="fold",
        )
    for line in table:
        drawn.add_row(*(Text(text) for text in line))
    Console().print(drawn)


def human_bytes(size: int) -> str:
    """1536 as `1.5 KiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def human_time(seconds: float) -> str:
    """A span of time: `3d 4h`, `2h 5m`, `7m 3s`, `12s`."""
    left = int(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
