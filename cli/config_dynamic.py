"""`kbroker config get` and `config set`: the settings of brokers that run, and of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kbroker.cli.brokers import known_broker
from kbroker.cli.nearest import did_you_mean
from kbroker.cli.options import bootstrap_option, key_values, open_cluster, output_option
from kbroker.cli.passwords import secret_value
from kbroker.cli.render import Column, print_rows

if TYPE_CHECKING:
    from kbroker.client.admin_configs import ConfigEntry
    from kbroker.client.cluster import Cluster

_COLUMNS = [
    Column("name", "SETTING"),
    Column("value", "VALUE"),
    Column("source", "FROM"),
    Column("kind", "TYPE", wide=True),
    Column("read_only", "READ ONLY", wide=True),
    Column("broker", "BROKER", number=True, wide=True),
]
_OWN = "broker (dynamic)"  # where a value comes from that was set for this broker alone
_OF_A_LISTENER = "listener.name."  # and its name come before a setting, which is then not listed


@click.command("get")
@click.argument("names", metavar="[KEY...]", nargs=-1)
@bootstrap_option
@output_option
@click.option("--broker", type=click.IntRange(0), help="Of this broker. Default: the first.")
@click.option("--group", metavar="GROUP", help="Of this group instead.")
@click.option("--all", "-a", "everything", is_flag=True, help="Settings at their default too.")
def get_values(
    names: tuple[str, ...],
    bootstrap: str | None,
    output: str,
    broker: int | None,
    group: str | None,
    everything: bool,
) -> None:
    """Show the settings that a running broker or a group has: those named, or all that were set."""
    _refuse_both(broker, group)
    with open_cluster(bootstrap) as cluster:
        node = known_broker(cluster, broker)
        entries = _entries(cluster, node, group)
    if names:
        _refuse_unknown(names, entries, group)
        entries = [entry for entry in entries if entry.name in names]
    elif not everything:
        entries = [entry for entry in entries if not entry.is_default]
    rows = [
        {
            "name": entry.name,
            "value": "[hidden]" if entry.sensitive and entry.value is None else entry.value,
            "source": entry.source,
            "kind": entry.kind,
            "read_only": entry.read_only,
            "broker": node,
        }
        for entry in entries
    ]
    print_rows(_COLUMNS, rows, output)
    if output == "json":
        return
    for name in names:
        if all(entry.name != name for entry in entries):
            click.echo(f"{name} is not set", err=True)
    if not rows and not names:
        click.echo("Everything is at its default; --all shows it.", err=True)


@click.command("set")
@click.argument("pairs", metavar="[KEY[=VALUE]...]", nargs=-1)
@bootstrap_option
@click.option("--delete", "-d", "deleted", multiple=True, metavar="KEY", help="Back to default.")
@click.option("--broker", type=click.IntRange(0), help="For this broker. Default: for all.")
@click.option("--group", metavar="GROUP", help="For this group instead.")
@click.option(
    "--password-file",
    metavar="FILE",
    help="With KEY alone: all of it is the value; - for standard input.",
)
@click.option("--dry-run", is_flag=True, help="Only let the broker check.")
def set_values(
    pairs: tuple[str, ...],
    bootstrap: str | None,
    password_file: str | None,
    deleted: tuple[str, ...],
    broker: int | None,
    group: str | None,
    dry_run: bool,
) -> None:
    """Change settings of running brokers, or of a group, at once and for good.

    `kbroker config explain KEY` says whether a broker's can be changed so: update is per-broker
    (give --broker), cluster-wide, or read-only (set it in the file, and start anew). A password is
    asked for where its KEY stands alone: what is typed here others may see.
    """
    _refuse_both(broker, group)
    values = key_values(_whole(pairs, password_file), "KEY=VALUE")
    if not values and not deleted:
        raise click.UsageError("nothing to change; give KEY=VALUE or --delete KEY")
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_configs import BROKER, GROUP, alter_configs
        from kbroker.client.errors import BrokerError

        first = known_broker(cluster, broker)
        before = _entries(cluster, first, group)
        _refuse_unknown((*values, *deleted), before, group)
        kind, whose = BROKER, "" if broker is None else str(broker)
        if group is not None:
            kind, whose = GROUP, group
        for_all = broker is None and group is None
        try:
            alter_configs(
                cluster, kind, whose, set_values=values, delete=deleted, validate_only=dry_run
            )
        except BrokerError as error:
            if not for_all or not any(map(_is_of_one_broker, (*values, *deleted))):
                raise
            raise click.ClickException(f"{error}; give --broker {first}") from error
        now = _entries(cluster, first) if for_all and not dry_run else []
    where = f"broker {broker}" if group is None else f"group {group}"
    where = "all brokers" if for_all else where
    could = "could be" if dry_run else "is"
    for name, value in values.items():
        shown = "hidden" if _is_secret(name, before) else repr(value)
        click.echo(f"{name} {could} {shown} for {where}")
    for name in deleted:
        click.echo(f"{name} {'could have' if dry_run else 'has'} no value of {where} any more")
    for entry in now:
        if entry.name in (*values, *deleted) and entry.source == _OWN:
            click.echo(
                f"kbroker: broker {first} has a value of its own for {entry.name}, which wins:"
                f" {entry.value!r}; --broker {first} --delete {entry.name} takes it away",
                err=True,
            )


def _whole(pairs: Sequence[str], password_file: str | None) -> list[str]:
    """KEY=VALUE also of the settings whose values are secret and not told on the command line."""
    from kbroker.config.definitions import is_secret

    alone = [pair for pair in pairs if "=" not in pair and is_secret(pair)]
    if password_file is not None and len(alone) != 1:
        raise click.UsageError("--password-file goes with one KEY of a password, without =VALUE")
    return [
        f"{pair}={secret_value(pair, password_file)}" if pair in alone else pair for pair in pairs
    ]


def _is_of_one_broker(name: str) -> bool:
    from kbroker.config.definitions import FIXED_HERE, find_broker_key
    from kbroker.config.types import PER_BROKER

    key = find_broker_key(name)
    return key is not None and key.update_mode == PER_BROKER and name not in FIXED_HERE


def _is_secret(name: str, entries: Sequence[ConfigEntry]) -> bool:
    """Also where it is set for a listener, whose settings are not listed."""
    secret = [entry.name for entry in entries if entry.sensitive]
    return any(name == one or name.endswith(f".{one}") for one in secret)


def _refuse_both(broker: int | None, group: str | None) -> None:
    if broker is not None and group is not None:
        raise click.UsageError("--broker and --group exclude each other")


def _entries(cluster: Cluster, node: int, group: str | None = None) -> list[ConfigEntry]:
    from kbroker.client.admin_configs import BROKER, GROUP, describe_configs

    if group is not None:
        return describe_configs(cluster, GROUP, group)
    return describe_configs(cluster, BROKER, str(node))


def _refuse_unknown(
    names: Sequence[str], entries: Sequence[ConfigEntry], group: str | None
) -> None:
    """A broker keeps settings that it does not know, as plugins may have some: a name that was
    mistyped would never be noticed."""
    from kbroker.config.definitions import THROTTLES

    known = {entry.name for entry in entries} | (THROTTLES.keys() if group is None else set())
    for name in names:
        if name not in known and not name.startswith(_OF_A_LISTENER):
            hint = did_you_mean(name, known)
            who = "the broker has" if group is None else "groups have"
            raise click.ClickException(f"{who} no setting {name!r}{hint}")
