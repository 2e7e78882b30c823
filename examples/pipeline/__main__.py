"""`make pipeline`: runs it with progress, checks every result, ends with a table and a plot."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.pipeline import connector, expected, needs, report, results
from examples.pipeline.plan import Plan
from examples.pipeline.processes import ROOT, BrokerEndedError
from examples.pipeline.run import Kill, Run, SparkEndedError

HOME = ROOT / ".run" / "pipeline"
_NAMES = {
    "replay": "replayed: flights, weather",
    "clean": "clean: valid and dead letters",
    "enrich": "enrich: weather, tables",
    "watch": "watch: delays, upserted",
    "archive": "archive: delays, Parquet",
}

console = Console(highlight=False)


@click.command()
@click.option(
    "--format",
    "name",
    type=click.Choice(needs.FORMATS),
    default="kbroker",
    help="Spark's data source: kbroker's own, or Spark's connector (needs Maven once).",
)
@click.option(
    "--speed",
    default=6.0,
    type=click.FloatRange(min=0),
    help="Days of 2013 in a second; 0: as fast as it goes.",
)
@click.option(
    "--days", default=366, type=click.IntRange(min=1), help="Only the first days of the year."
)
@click.option(
    "--kills",
    default=0,
    type=click.IntRange(min=0),
    help="So many kill -9 on the way, of Spark and broker in turn.",
)
def main(name: str, speed: float, days: int, kills: int) -> None:
    """Flights of 2013 through Spark's Structured Streaming."""
    for text in needs.missing(name):
        raise click.ClickException(text)
    if name == "kafka":
        fetch_jars()
    began = time.monotonic()
    plan = Plan("", HOME, name, days)
    run = Run(plan, days_per_s=speed, told=lambda *_: None, kills=spread(kills))
    console.print(f'Spark reads and writes with format("{name}")')
    with Progress(TextColumn("{task.description:<30}"), BarColumn(), MofNCompleteColumn(),
                  TimeElapsedColumn(), console=console) as bars:  # fmt: skip
        tasks = {job: bars.add_task(text, total=None) for job, text in _NAMES.items()}

        def told(job: str, at: int, of: int) -> None:
            bars.update(tasks[job], completed=at, total=of)

        run.told = told
        try:
            run.go()
        except (BrokerEndedError, SparkEndedError) as error:
            raise click.ClickException(str(error)) from None
    status = show(run)
    console.print(f"done in {time.monotonic() - began:.0f} s\n")
    show_next_steps(run.plan)
    sys.exit(status)


def fetch_jars() -> None:
    """Those of Spark's connector, before anything is begun that would fail without."""
    try:
        connector.jars()
    except subprocess.CalledProcessError:
        raise click.ClickException("Maven did not fetch the connector's jars; see above") from None
    except FileNotFoundError as error:
        raise click.ClickException(f"a jar of Spark's connector is not there: {error}") from None


def spread(kills: int) -> list[Kill]:
    """Kills spread over the run."""
    return [
        Kill("broker" if number % 2 else "spark", (number + 1) / (kills + 1))
        for number in range(kills)
    ]


def show(run: Run) -> int:
    """Compares, shows; exit status 1 where something is not as pandas has it."""
    found, wanted = results.found(run.plan), expected.expected(run.plan)
    console.print(f"replayed {len(run.events):,} records in {run.replay_s:.0f} s")
    for failure in run.job_failures:
        console.print(f"a job failed and was started again: {failure}")
    wrong = results.differences(found, wanted)
    for name, title in results.TITLES.items():
        rows: Any = f"{len(found[name]):,}"
        verdict = "[red]not as pandas has them[/red]" if name in wrong else "all as pandas has them"
        console.print(f"{rows:>8} rows of {title}: {verdict}")
        for line in wrong.get(name, [])[:5]:
            console.print(f"         {line}", markup=False)
    console.print(report.table(found["months"]))
    picture = run.plan.home / "delays.png"
    report.plot(results.lake(run.plan), picture)
    console.print(f"plot: [bold]{picture.relative_to(ROOT)}[/bold]")
    return 1 if wrong else 0


def show_next_steps(plan: Plan) -> None:
    """What to type next."""
    local = ROOT / ".venv" / "bin" / "kbroker"
    command = str(local.relative_to(ROOT)) if local.exists() else "kbroker"
    home = plan.home.relative_to(ROOT)
    console.print(f"The broker goes on at [bold]{plan.bootstrap}[/bold]. Things to try:")
    for line, what in (
        (f"{command} consume flights.invalid -b {plan.bootstrap} -e -c 3 -J", "dead letters"),
        (f"{command} consume flights.enriched -b {plan.bootstrap} -e -c 3", "what was joined"),
        (f"{command} topic describe delays -b {plan.bootstrap}", "upserts, compacted"),
        (f"ls {home}/lake | head", "Parquet by day"),
        ("make pipeline FORMAT=kafka KILLS=4", "Spark's connector, with kill -9"),
        ("make stop", "end it"),
    ):
        console.print(f"  {line}  [dim]# {what}[/dim]", soft_wrap=True)


if __name__ == "__main__":
    main()
