"""`kbroker config`: show, validate, explain. No broker is asked; that is config_dynamic's."""

from __future__ import annotations

from pathlib import Path

import click

from kbroker.cli.options import broker_options, output_option
from kbroker.cli.render import Column, print_json, print_rows

_COLUMNS = [Column("name", "SETTING"), Column("value", "VALUE"), Column("source", "FROM")]
_USELESS = [Column("name", "SETTING"), Column("of", "OF A"), Column("doc", "MEANS", wide=True)]

@click.command()
@broker_options
@click.option("--all", "-a", "everything", is_flag=True, help="Settings at their default too.")
@output_option
def show(
    config_file: Path | None, settings: tuple[str, ...], everything: bool, output: str
) -> None:
    """Show the settings a broker would run with; without options, the defaults."""
    from kbroker.config import load_config, report

    config = load_config(config_file, settings)
    anything = config_file is not None or bool(settings)
    found = report.show(config, with_defaults=everything or not anything)
    print_rows(_COLUMNS, [setting._asdict() for setting in found], output)
    ignored = report.ignored_line(config)
    if ignored and output != "json":
        click.echo(ignored, err=True)


@click.command()
@click.argument(
    "config_file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Wins over FILE.")
def validate(config_file: Path, settings: tuple[str, ...]) -> None:
    """Check a server.properties file. Exit status 0: a broker would start with it."""
    from kbroker.config import load_config, report
    from kbroker.security import admission

    config = load_config(config_file, settings)
    admission.check(config)
    click.echo(f"{config_file}: {len(config.static)} settings, all valid")
    ignored = report.ignored_line(config)
    if ignored:
        click.echo(ignored)


@click.command()
@click.argument("names", metavar="[KEY...]", nargs=-1)
@click.option(
    "--without-effect", is_flag=True, help="List what Apache Kafka has and means nothing here."
)
@output_option
def explain(names: tuple[str, ...], without_effect: bool, output: str) -> None:
    """Say what a setting means, its type, range and default."""
    from kbroker.config import report

    if without_effect == bool(names):
        raise click.UsageError("give settings, or --without-effect")
    if without_effect:
        print_rows(_USELESS, [one._asdict() for one in report.without_effect()], output)
        return
    told = {name: report.explain(name) for name in names}
    if output == "json":
        print_json([{"name": name, "text": "\n".join(lines)} for name, lines in told.items()])
        return
    for at, lines in enumerate(told.values()):
        if at:
            click.echo()
        for line in lines:
            click.echo(line)
