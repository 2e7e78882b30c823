"""`kbroker dashboard`: what is generated from the list of metrics, for Grafana and Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

import click

_NAMES = ("broker", "topics")
_JOB = ".*kbroker.*"


@click.command()
@click.argument("name", type=click.Choice(_NAMES), required=False)
@click.option("--directory", "-d", type=click.Path(file_okay=False, path_type=Path),
              help="Write a file NAME.json for each dashboard instead.")  # fmt: skip
def export(name: str | None, directory: Path | None) -> None:
    """Print a dashboard as Grafana imports it, the broker's unless told, or write all of them.

    Dashboards that were made for the JMX exporter or kafka_exporter work as well.
    """
    from kbroker.metrics.dashboards import DASHBOARDS, grafana

    if directory is None:
        click.echo(_json(grafana(DASHBOARDS[name or _NAMES[0]])))
        return
    directory.mkdir(parents=True, exist_ok=True)
    for each in [name] if name else _NAMES:
        path = directory / f"kbroker-{each}.json"
        path.write_text(_json(grafana(DASHBOARDS[each])) + "\n")
        click.echo(str(path))


@click.command()
@click.option("--file", "-f", "path", type=click.Path(dir_okay=False, path_type=Path),
              help="Write them there instead.")  # fmt: skip
@click.option("--job", metavar="REGEX", default=_JOB, show_default=True,
              help="What job_name of the brokers matches in scrape_configs.")  # fmt: skip
def alerts(path: Path | None, job: str) -> None:
    """Print alert rules, as a file that rule_files of prometheus.yml names."""
    from kbroker.metrics.alerts import rules_file

    if path is None:
        click.echo(rules_file(job), nl=False)
    else:
        path.write_text(rules_file(job))
        click.echo(str(path))


def _json(value: object) -> str:
    return json.dumps(value, indent=2)
