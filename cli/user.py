"""`kbroker user`: who may log in with SCRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbroker.cli.options import bootstrap_option, open_cluster, output_option
from kbroker.cli.passwords import password_of
from kbroker.cli.render import Column, print_rows

if TYPE_CHECKING:
    from kbroker.client.admin_users import ScramCredential
    from kbroker.client.cluster import Cluster

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_COLUMNS = [
    Column("user", "USER"),
    Column("mechanism", "MECHANISM"),
    Column("iterations", "ITERATIONS", number=True),
]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _credential(command: Decorated) -> Decorated:
    """A user, where, and a password: the arguments `name`, `bootstrap` and those of `_set`."""
    command = click.option(
        "--iterations",
        type=click.IntRange(4096, 16384),
        default=8192,
        show_default=True,
        help="How dear a guess is.",
    )(command)
    command = click.option(
        "--mechanism",
        "-m",
        "mechanisms",
        type=click.Choice(_MECHANISMS, case_sensitive=False),
        multiple=True,
        help="This alone; may be given again. Default: both, or those that there are.",
    )(command)
    command = click.option(
        "--password-file",
        metavar="FILE",
        help="Its first line; - for standard input. Default: $KBROKER_PASSWORD, else it is asked"
        " for.",
    )(command)
    return click.argument("name", metavar="USER")(bootstrap_option(command))


@click.command()
@_credential
def create(name: str, bootstrap: str | None, **credential: Any) -> None:
    """Create a user, who logs in with SCRAM. One that is there is refused: `user passwd`."""
    if not name:
        raise click.ClickException("the name of the user is empty")
    with open_cluster(bootstrap) as cluster:
        if _known(cluster, name):
            raise click.ClickException(
                f"user {name} is there already; `kbroker user passwd {name}` gives another password"
            )
        _set(cluster, name, _MECHANISMS, **credential)
    click.echo(f"user {name} created")


@click.command()
@_credential
def passwd(name: str, bootstrap: str | None, **credential: Any) -> None:
    """Give a user another password, for the mechanisms that it has unless some are named."""
    with open_cluster(bootstrap) as cluster:
        known = _known(cluster, name)
        if not known:
            raise click.ClickException(f"there is no user {name}")
        _set(cluster, name, [one.mechanism for one in known], **credential)
    click.echo(f"user {name} has another password")


@click.command()
@click.argument("names", metavar="USER...", nargs=-1, required=True)
@bootstrap_option
@click.option("--if-exists", is_flag=True, help="No error where it does not exist.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def delete(names: tuple[str, ...], bootstrap: str | None, if_exists: bool, dry_run: bool) -> int:
    """Delete users. Connections that they have stay until they end."""
    failed = 0
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_users import ScramDeletion, alter_scram_users

        for name in dict.fromkeys(names):
            known = _known(cluster, name)
            for one in () if dry_run else known:
                alter_scram_users(cluster, [ScramDeletion(name, one.mechanism)]).checked()
            if known:
                click.echo(f"user {name} {'would be ' if dry_run else ''}deleted")
            elif if_exists:
                click.echo(f"user {name} does not exist")
            else:
                click.echo(f"kbroker: there is no user {name}", err=True)
                failed = 1
    return failed


@click.command("list")
@bootstrap_option
@output_option
def list_users(bootstrap: str | None, output: str) -> None:
    """List users with what they can log in with."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_users import describe_scram_users

        users = describe_scram_users(cluster).checked()
    rows = [
        {"user": name, "mechanism": one.mechanism, "iterations": one.iterations}
        for name, found in sorted(users.items())
        for one in found
    ]
    print_rows(_COLUMNS, rows, output)


def _known(cluster: Cluster, name: str) -> tuple[ScramCredential, ...]:
    from kbroker.client.admin_users import describe_scram_users
    from kbroker.client.errors import BrokerError
    from kbroker.errors import ErrorCode

    try:
        return describe_scram_users(cluster, [name])[name]
    except BrokerError as error:
        if error.code == ErrorCode.RESOURCE_NOT_FOUND:
            return ()
        raise


def _set(
    cluster: Cluster,
    name: str,
    usual: Iterable[str],
    *,
    password_file: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
) -> None:
    """One mechanism after the other: a request names a user once. usual: where none is named."""
    from kbroker.client.admin_users import ScramUpsertion, alter_scram_users

    password = password_of(name, password_file)
    for mechanism in mechanisms or usual:
        upsertion = ScramUpsertion(name, mechanism.upper(), password, iterations)
        alter_scram_users(cluster, [upsertion]).checked()
