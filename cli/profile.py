"""`kbroker profile`: create, use, list, show, edit, delete. No broker is asked."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

import click

from kbroker.cli.options import output_option
from kbroker.cli.profiles import change_profiles, profiles_file, read_profiles
from kbroker.cli.render import Column, print_json, print_rows
from kbroker.errors import OperatorError

_LIST = [
    Column("current", "USED"),
    Column("name", "NAME"),
    Column("bootstrap_servers", "BROKERS"),
    Column("security_protocol", "PROTOCOL"),
    Column("sasl_mechanism", "SASL", wide=True),
    Column("sasl_username", "USER", wide=True),
    Column("settings", "SETTINGS", number=True, wide=True),
]
_SETTINGS = [Column("name", "SETTING"), Column("value", "VALUE")]
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HIDDEN = "[hidden]"

_bootstrap = click.option(
    "--bootstrap-server", "-b", "bootstrap", metavar="HOST:PORT[,...]", help="Its brokers."
)
_sets = click.option(
    "--set",
    "-s",
    "sets",
    metavar="KEY[=VALUE]",
    multiple=True,
    help="A setting of a producer, consumer or admin; without a value it is asked for.",
)
_from_file = click.option(
    "--from-file",
    "-F",
    type=click.Path(exists=True, dir_okay=False),
    help="Take over a file of settings (Kafka's client.properties).",
)


@click.command()
@click.argument("name", metavar="NAME")
@_bootstrap
@_sets
@_from_file
@click.option("--use/--no-use", default=None, help="Use it from now on. Default: if it is alone.")
def create(
    name: str,
    bootstrap: str | None,
    sets: tuple[str, ...],
    from_file: str | None,
    use: bool | None,
) -> None:
    """Create a profile: brokers, and how they are to be spoken to.

    \b
      kbroker profile create prod -b a:9093 -s security.protocol=SASL_SSL \\
          -s sasl.mechanism=SCRAM-SHA-512 -s sasl.username=u -s sasl.password
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r}: letters, digits, '.', '_' and '-'", param_hint="NAME")
    given = _given(bootstrap, sets, from_file)
    with change_profiles() as profiles:
        if name in profiles.settings:
            raise OperatorError(
                f"there is a profile {name!r} already; `kbroker profile edit` changes it"
            )
        _check(given)
        profiles.settings[name] = given
        used = use if use is not None else len(profiles.settings) == 1
        if used:
            profiles.current = name
    told = "used from now on" if used else f"`kbroker profile use {name}` makes it the current one"
    click.echo(f"profile {name} created; {told}")


@click.command()
@click.argument("name", metavar="PROFILE", required=False)
@click.option("--none", is_flag=True, help="Use none from now on.")
def use(name: str | None, none: bool) -> None:
    """Use a profile from now on, in every command that names no broker."""
    if (name is None) != none:
        raise click.UsageError("give either PROFILE or --none")
    with change_profiles() as profiles:
        if name is not None:
            profiles.named(name)
        profiles.current = name
    click.echo("no profile is used from now on" if none else f"profile {name} is used from now on")


@click.command()
@output_option
def list_profiles(output: str) -> None:
    """List profiles."""
    profiles = read_profiles()
    rows = [
        {
            "current": name == profiles.current,
            "name": name,
            "bootstrap_servers": settings.get("bootstrap.servers"),
            "security_protocol": settings.get("security.protocol", "PLAINTEXT"),
            "sasl_mechanism": settings.get("sasl.mechanism"),
            "sasl_username": settings.get("sasl.username"),
            "settings": len(settings),
        }
        for name, settings in sorted(profiles.settings.items())
    ]
    if output != "json":
        for row in rows:
            row["current"] = "*" if row["current"] else ""
    print_rows(_LIST, rows, output)
    if not rows and output != "json":
        click.echo("No profiles; `kbroker profile create NAME -b HOST:PORT` makes one.", err=True)


@click.command()
@click.argument("name", metavar="PROFILE", required=False)
@output_option
def show(name: str | None, output: str) -> None:
    """Show a profile's settings, secrets hidden; the current one unless named."""
    from kbroker.cli.settings import is_secret
    from kbroker.urls import shown_url

    def shown_value(key: str, value: str) -> str:
        if is_secret(key):
            return _HIDDEN
        return shown_url(value) if key.endswith(".url") else value

    profiles = read_profiles()
    which = name or profiles.current
    if which is None:
        raise OperatorError("no profile is used; name one (`kbroker profile list` shows them)")
    found = sorted(profiles.named(which).items())
    shown = {key: shown_value(key, value) for key, value in found}
    if output == "json":
        current = which == profiles.current
        print_json({"name": which, "current": current, "file": profiles_file(), "settings": shown})
        return
    print_rows(_SETTINGS, [{"name": key, "value": value} for key, value in shown.items()], output)


@click.command()
@click.argument("name", metavar="PROFILE")
@_bootstrap
@_sets
@_from_file
@click.option("--delete", "-d", "deleted", multiple=True, metavar="SETTING", help="Take it out.")
def edit(
    name: str,
    bootstrap: str | None,
    sets: tuple[str, ...],
    from_file: str | None,
    deleted: tuple[str, ...],
) -> None:
    """Change settings of a profile."""
    given = _given(bootstrap, sets, from_file)
    if not given and not deleted:
        raise click.UsageError("nothing to change; give -b, --set, --from-file or --delete")
    with change_profiles() as profiles:
        settings = profiles.named(name)
        for key in deleted:
            if settings.pop(key, None) is None:
                raise OperatorError(f"profile {name} has no setting {key!r}")
        settings |= given
        _check(settings)
    click.echo(f"profile {name} changed")


@click.command()
@click.argument("names", metavar="PROFILE...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="No error where it does not exist.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def delete(names: tuple[str, ...], if_exists: bool, dry_run: bool) -> None:
    """Delete profiles."""
    lines = []
    with contextlib.nullcontext(read_profiles()) if dry_run else change_profiles() as profiles:
        for name in dict.fromkeys(names):
            if not if_exists:
                profiles.named(name)
            gone = profiles.settings.pop(name, None) is not None
            would = "would be deleted" if dry_run else "deleted"
            lines.append(f"profile {name} {would if gone else 'does not exist'}")
            if profiles.current == name:
                profiles.current = None
    for line in lines:
        click.echo(line)


def _given(bootstrap: str | None, sets: tuple[str, ...], from_file: str | None) -> dict[str, str]:
    """What the options say, in Kafka's names; what has no value is asked for."""
    found: dict[str, str] = {}
    if from_file is not None:
        from kbroker.config.properties import property_values

        found = property_values(Path(from_file))
    for pair in sets:
        key, equals, value = pair.partition("=")
        name = key.strip().replace("_", ".")
        if not equals:
            from kbroker.cli.settings import is_secret

            if not sys.stdin.isatty():
                raise OperatorError(
                    f"no value for {name}: there is no terminal to ask; give -s {name}=VALUE, or"
                    " --from-file with a file that has it"
                )
            value = click.prompt(name, hide_input=is_secret(name), err=True)
        found[name] = value.strip()
    if bootstrap is not None:
        found["bootstrap.servers"] = bootstrap
    return found


def _check(settings: dict[str, str]) -> None:
    from kbroker.cli.settings import check_settings
    from kbroker.client.address import parse_address

    check_settings(settings)
    for server in filter(None, settings.get("bootstrap.servers", "").split(",")):
        try:
            parse_address(server)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap-server") from None
