"""`kbroker top`: a broker as it works, drawn again and again from its metrics."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.directories import main_directory
from kbroker.cli.options import SECONDS_MAX, Real, directories_option
from kbroker.errors import OperatorError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbroker.cli.scrape import Scrape

_ROWS = 10


@click.command()
@directories_option
@click.option("--url", metavar="http://HOST:PORT",
              help="Where its metrics are. Default: the broker of the data directory.")
@click.option("--interval", "-i", type=Real(0.2, SECONDS_MAX), default=2.0, show_default=True,
              metavar="SECONDS", help="Between two looks.")
@click.option("--count", "-n", type=click.IntRange(1), help="End after so many.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json: an object for each look, a line each.")  # fmt: skip
def top(
    data_dir: tuple[Path, ...], url: str | None, interval: float, count: int | None, output: str
) -> int:
    """Watch a broker: rates, disk, latencies, the busiest topics, the groups that lag most.

    Ctrl-C ends it. Into a pipe it prints one picture after the other. On a terminal it goes on when
    the broker is started again; elsewhere it ends when the broker does not answer.
    """
    from kbroker.cli.scrape import metrics_url, scrape
    from kbroker.cli.top_figures import figures

    def look() -> Scrape:
        return scrape(url or metrics_url(main_directory(data_dir)))

    screen = _Screen(output)
    before = look()
    looks = 0
    with screen:
        while count is None or looks < count:
            time.sleep(interval)
            try:
                now = look()
            except OperatorError as error:
                if not screen.is_live:
                    raise
                screen.tell(str(error))
                continue
            screen.show(figures(before, now))
            before = now
            looks += 1
    return 0


class _Screen:
    """Draws over itself on a terminal, and one below the other elsewhere."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._live: Any = None

    def __enter__(self) -> None:
        if self._output == "table" and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(screen=True, auto_refresh=False)
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def is_live(self) -> bool:
        """Whether pictures are drawn over each other."""
        return self._live is not None

    def tell(self, text: str) -> None:
        """A line in the place of a picture; on a terminal only."""
        from rich.text import Text

        self._live.update(Text(text), refresh=True)

    def show(self, told: dict[str, Any]) -> None:
        """One picture."""
        if self._output == "json":
            click.echo(json.dumps(told))
            sys.stdout.flush()
        elif self._live is not None:
            self._live.update(_picture(told), refresh=True)
        else:
            from rich.console import Console

            Console().print(_picture(told))


def _picture(told: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from kbroker.cli.render import human_bytes, human_time

    def size(value: float | None) -> str:
        return "-" if value is None else human_bytes(int(value))

    def span(value: float | None) -> str:
        return "-" if value is None else f"{value * 1000:.1f} ms"

    disk, journal, process = told["disk"], told["journal"], told["process"]
    came, refused_logins = told["logins"]["successful"], told["logins"]["failed"]
    logins = f"  {came:.1f} logins/s, {refused_logins:.1f} refused" if came + refused_logins else ""
    refused = "  PRODUCE IS REFUSED" if disk["refused"] else ""
    free = f"{size(disk['free'])} free of {size(disk['size'])}"
    limit = "" if disk["limit"] is None else f", limit {size(disk['limit'])}"
    lines = [
        f"kbroker {told['version']}  up {human_time(told['uptime_s'])}"
        f"  {told['connections']:.0f} connections  {size(process['memory'])} memory"
        f"  {process['cpu']:.2f} processors  {process['open_fds']:.0f} files open",
        f"traffic  {told['requests']:.0f} requests/s  {told['records']:.0f} records/s in"
        f"  {size(told['bytes_in'])}/s in  {size(told['bytes_out'])}/s out"
        f"  {told['waiting']:.0f} waiting{logins}",
        f"disk     {size(disk['used'])} used{limit}, {free}"
        f"  {journal['groups']:.0f} group commits/s of {size(journal['bytes'])},"
        f" {span(journal['seconds'])} each{refused}",
        "idle     " + "  ".join(f"{name} {idle:.0%}" for name, idle in told["idle"].items()),
    ]
    parts: list[RenderableType] = [Text(line, overflow="ellipsis", no_wrap=True) for line in lines]
    for columns, rows in (
        (("REQUEST", "A SECOND", "MEDIAN", "P99"),
         [(row["request"], f"{row['rate']:.0f}", span(row["p50"]), span(row["p99"]))
          for row in told["requests_by_api"][:_ROWS]]),
        (("TOPIC", "RECORDS/S", "SIZE", "PARTITIONS"),
         [(row["topic"], f"{row['rate']:.0f}", size(row["size"]), f"{row['partitions']:.0f}")
          for row in told["topics"][:_ROWS]]),
        (("GROUP", "TOPIC", "LAG", "READ/S", "MEMBERS"),
         [(row["group"], row["topic"], f"{row['lag']:.0f}", f"{row['rate']:.0f}",
           f"{row['members']:.0f}") for row in told["groups"][:_ROWS]]),
    ):  # fmt: skip
        if rows:
            parts.append(_table(columns, rows))
    return Group(*parts)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        words = column in ("TOPIC", "GROUP", "REQUEST")
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
