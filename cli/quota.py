"""`kbroker quota`: list, set, delete."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kbroker.cli.nearest import did_you_mean
from kbroker.cli.options import bootstrap_option, key_values, open_cluster, output_option
from kbroker.cli.render import Column, print_rows, say

if TYPE_CHECKING:
    from kbroker.client.admin_users import QuotaEntity

_COLUMNS = [
    Column("user", "USER"),
    Column("client_id", "CLIENT ID"),
    Column("ip", "ADDRESS"),
    Column("quota", "QUOTA"),
    Column("value", "VALUE", number=True),
]
_KINDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
_DEFAULT: Final = "(default)"
# Kafka's names by what they may be called here.
_SHORT: Final = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "request": "request_percentage",
    "mutations": "controller_mutation_rate",
    "connections": "connection_creation_rate",
}
_NAMES: Final = tuple(_SHORT.values())
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _entity_options(command: _Command) -> _Command:
    """Options that say whose quotas; names go to `of`."""
    for kind, what in (("ip", "address"), ("client-id", "client id"), ("user", "user")):
        command = click.option(
            f"--{kind}-default", is_flag=True, help=f"Each {what} that has none of its own."
        )(command)
        command = click.option(f"--{kind}", metavar="NAME", help=f"This {what}.")(command)
    return command


def _named(options: Mapping[str, Any]) -> dict[str, str | None]:
    """By kind the name that was given, None for the default."""
    named: dict[str, str | None] = {}
    for kind, key in _KINDS.items():
        name, default = options[key], options[f"{key}_default"]
        if name is not None and default:
            raise click.UsageError(f"--{kind} and --{kind}-default exclude each other")
        if name is not None or default:
            named[kind] = name
    return named


def _entity(options: Mapping[str, Any]) -> QuotaEntity:
    named = _named(options)
    if not named:
        raise click.UsageError("say whose: --user, --client-id, both, or --ip")
    return frozenset(named.items())


def _quota(name: str) -> str:
    """Kafka's name of a quota."""
    found = _SHORT.get(name, name)
    if found not in _NAMES:
        raise click.UsageError(f"no such quota {name!r}{did_you_mean(name, [*_SHORT, *_NAMES])}")
    return found


@click.command()
@bootstrap_option
@output_option
@_entity_options
def list_all(bootstrap: str | None, output: str, **options: Any) -> None:
    """List quotas: all, or those of entities with these parts."""
    named = _named(options)
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_users import describe_quotas

        found = describe_quotas(cluster, named)
    rows = [
        {
            **{key: _shown(names, kind) for kind, key in _KINDS.items()},
            "quota": quota,
            "value": _plain(value),
        }
        for names, quotas in ((dict(entity), quotas) for entity, quotas in found.items())
        for quota, value in quotas.items()
    ]
    rows.sort(key=lambda row: [str(row[key] or "") for key in (*_KINDS.values(), "quota")])
    print_rows(_COLUMNS, rows, output)


def _plain(value: float) -> float:
    """A whole number without a fraction or an exponent."""
    return int(value) if value.is_integer() else value


def _shown(names: Mapping[str, str | None], kind: str) -> str | None:
    return (names[kind] or _DEFAULT) if kind in names else None


@click.command()
@click.argument("pairs", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@bootstrap_option
@_entity_options
@click.option("--dry-run", is_flag=True, help="Only let the broker check.")
def set_values(
    pairs: tuple[str, ...], bootstrap: str | None, dry_run: bool, **options: Any
) -> None:
    """Set quotas of a user, a client id, both, or an address.

    \b
    produce      bytes a second that clients may send (producer_byte_rate)
    fetch        bytes a second that they may fetch (consumer_byte_rate)
    request      percent of one thread's time (request_percentage)
    mutations    partitions a second created or deleted (controller_mutation_rate)
    connections  new connections a second, of an address (connection_creation_rate)
    """
    values: dict[str, float | None] = {}
    for name, text in key_values(pairs, "QUOTA=VALUE").items():
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise click.UsageError(f"{name}: {text!r} is no number")
        values[_quota(name)] = value
    _alter(bootstrap, _entity(options), values, dry_run)


@click.command()
@click.argument("names", metavar="[QUOTA...]", nargs=-1)
@bootstrap_option
@_entity_options
@click.option("--if-exists", is_flag=True, help="No error where it does not exist.")
@click.option("--dry-run", is_flag=True, help="Only let the broker check.")
def delete(
    names: tuple[str, ...], bootstrap: str | None, if_exists: bool, dry_run: bool, **options: Any
) -> int:
    """Delete quotas of a user, a client id, both, or an address: those named, or all."""
    wanted = _entity(options)
    named = dict.fromkeys(_quota(name) for name in names)
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_users import describe_quotas

        there = describe_quotas(cluster, dict(wanted), strict=True).get(wanted, {})
    found = [quota for quota in named or there if quota in there]
    if found:
        _alter(bootstrap, wanted, dict.fromkeys(found), dry_run)
    missing = [quota for quota in named if quota not in there]
    if not named and not there:
        missing = ["quota"]
    for quota in missing:
        no = f"there is no {quota} of {_whose(wanted)}"
        say(no if if_exists else f"kbroker: {no}", err=not if_exists)
    return 1 if missing and not if_exists else 0


def _alter(
    bootstrap: str | None,
    entity: QuotaEntity,
    values: Mapping[str, float | None],
    dry_run: bool,
) -> None:
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_users import alter_quotas

        alter_quotas(cluster, {entity: values}, validate_only=dry_run).checked()
    could = "could be" if dry_run else "is"
    for quota, value in values.items():
        say(f"{quota} of {_whose(entity)} {could} {'deleted' if value is None else _plain(value)}")


def _whose(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {name or _DEFAULT}" for kind, name in sorted(entity, key=str))
