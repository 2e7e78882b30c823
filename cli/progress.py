"""A line on a terminal that tells how far a command is; nothing where there is no terminal."""

from __future__ import annotations

import sys
import time

import click

from kbroker.cli.render import human_bytes

__all__ = ["Progress", "rates"]

_EVERY_S = 0.25


def rates(records: int, size: int, seconds: float) -> str:
    """`245000 records/s, 23.4 MiB/s`."""
    seconds = max(seconds, 1e-6)
    return f"{records / seconds:.0f} records/s, {human_bytes(int(size / seconds))}/s"


class Progress:
    """Written to standard error, over itself."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and sys.stderr.isatty()
        self._began = time.monotonic()
        self._next = self._began + _EVERY_S
        self._wrote = False

    def tick(self, records: int, size: int | None, more: str = "") -> None:
        """Counts so far, size in bytes; drawn four times a second at most."""
        if not self._due():
            return
        told = f"{records} records"
        if size is not None:
            told += f", {human_bytes(size)}, {rates(records, size, time.monotonic() - self._began)}"
        self._draw(told + more)

    def read(self, size: int) -> None:
        """Bytes read so far."""
        if self._due():
            seconds = max(time.monotonic() - self._began, 1e-6)
            self._draw(f"{human_bytes(size)} read, {human_bytes(int(size / seconds))}/s")

    def clear(self) -> None:
        """Takes the line away."""
        if self._wrote:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._wrote = False

    def _due(self) -> bool:
        return self._shown and time.monotonic() >= self._next

    def _draw(self, line: str) -> None:
        self._next = time.monotonic() + _EVERY_S
        self._wrote = True
        click.echo(f"\r\x1b[K{line}", err=True, nl=False)
