"""`kbroker acl`: list, create, delete."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kbroker.cli.options import bootstrap_option, open_cluster, output_option
from kbroker.cli.render import Column, print_rows, say

if TYPE_CHECKING:
    from kbroker.client.admin_acls import Acl, AclFilter

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_COLUMNS: Final = [
    Column("resource", "RESOURCE"),
    Column("name", "NAME"),
    Column("pattern", "PATTERN"),
    Column("principal", "PRINCIPAL"),
    Column("host", "HOST"),
    Column("operation", "OPERATION"),
    Column("permission", "PERMISSION"),
]
_KINDS: Final = {
    "topics": "TOPIC",
    "groups": "GROUP",
    "transactional_ids": "TRANSACTIONAL_ID",
    "tokens": "DELEGATION_TOKEN",
    "users": "USER",
}
_CLUSTER: Final = "kafka-cluster"
_OPERATIONS: Final = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action",
    "describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens",
    "two-phase-commit",
)  # fmt: skip
# Beside "all"; what else is allowed or denied of such a resource is asked for by nobody.
_SUPPORTED: Final = {
    "TOPIC": ("read", "write", "create", "describe", "delete", "alter", "describe-configs",
              "alter-configs"),
    "GROUP": ("read", "describe", "delete", "describe-configs", "alter-configs"),
    "CLUSTER": ("create", "cluster-action", "describe-configs", "alter-configs", "alter",
                "idempotent-write", "describe"),
    "TRANSACTIONAL_ID": ("describe", "write", "two-phase-commit"),
    "DELEGATION_TOKEN": ("describe",),
    "USER": ("create-tokens", "describe-tokens"),
}  # fmt: skip


def _resources(command: Decorated) -> Decorated:
    """What ACLs are about."""
    for option in reversed(
        (
            click.option("--topic", "-t", "topics", multiple=True, metavar="TOPIC"),
            click.option("--group", "-g", "groups", multiple=True, metavar="GROUP"),
            click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID"),
            click.option("--cluster", "of_cluster", is_flag=True, help="The cluster itself."),
            click.option("--token", "tokens", multiple=True, metavar="ID",
                         help="Delegation token."),
            click.option("--user", "users", multiple=True, metavar="USER",
                         help="Whose tokens are made or described."),
            click.option("--prefix", is_flag=True, help="All whose names begin so."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def _who(command: Decorated) -> Decorated:
    command = click.option(
        "--host", "hosts", multiple=True, metavar="ADDRESS", help="From this address alone."
    )(command)
    return click.option(
        "--operation", "operations", multiple=True,
        type=click.Choice(_OPERATIONS, case_sensitive=False), metavar="OPERATION",
        help=f"One of {', '.join(_OPERATIONS)}.",
    )(command)  # fmt: skip


@click.command("list")
@click.argument("principals", metavar="[PRINCIPAL...]", nargs=-1)
@bootstrap_option
@output_option
@_resources
@click.option("--matching", is_flag=True,
              help="Those that belong to the resources, by prefix and wildcard too.")  # fmt: skip
def list_acls(
    principals: tuple[str, ...],
    bootstrap: str | None,
    output: str,
    prefix: bool,
    matching: bool,
    **named: Any,
) -> None:
    """List ACLs: all, or those of principals and resources. `alice` is `User:alice`."""
    if prefix and matching:
        raise click.UsageError("--prefix and --matching exclude each other")
    pattern = "PREFIXED" if prefix else "MATCH" if matching else "ANY"
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_acls import describe_acls

        wanted = _filters(principals, (), (), pattern, named)
        found = {acl: None for one in wanted for acl in describe_acls(cluster, one)}
    print_rows(_COLUMNS, [_row(acl) for acl in sorted(found, key=_order)], output)


@click.command()
@click.argument("principals", metavar="PRINCIPAL...", nargs=-1, required=True)
@bootstrap_option
@_resources
@_who
@click.option("--deny", is_flag=True, help="Deny, which wins over every ACL that allows.")
@click.option(
    "--producer",
    is_flag=True,
    help="What a producer needs: write to the topics, use the transactional ids.",
)
@click.option(
    "--consumer", is_flag=True, help="What a consumer needs: read the topics and the groups."
)
def create(
    principals: tuple[str, ...],
    bootstrap: str | None,
    prefix: bool,
    hosts: tuple[str, ...],
    operations: tuple[str, ...],
    deny: bool,
    producer: bool,
    consumer: bool,
    **named: Any,
) -> int:
    """Allow (or deny) PRINCIPALs something. `alice` is `User:alice`, `*` everybody.

    \b
      kbroker acl create alice --topic orders --producer
      kbroker acl create bob --topic orders --group readers --consumer
      kbroker acl create '*' --topic public- --prefix --operation read
    """
    wanted = [
        (kind, name, operation)
        for kind, name in _named(named)
        for operation in _wanted_operations(kind, operations, producer, consumer)
    ]
    if not wanted:
        raise click.UsageError("give a resource, and --operation, --producer or --consumer for it")
    failed = 0
    with open_cluster(bootstrap) as cluster:
        from kbroker.client import admin_acls as client

        acls = [
            client.Acl(
                client.AclResource[kind],
                name,
                _principal(principal),
                client.AclOperation[operation],
                client.AclPermission.DENY if deny else client.AclPermission.ALLOW,
                client.PatternType.PREFIXED if prefix else client.PatternType.LITERAL,
                _host(host),
            )
            for principal in principals
            for kind, name, operation in wanted
            for host in hosts or ("*",)
        ]
        for acl, error in client.create_acls(cluster, dict.fromkeys(acls)).told.items():
            failed |= _tell(str(acl), "created", error)
    return failed


@click.command()
@click.argument("principals", metavar="[PRINCIPAL...]", nargs=-1)
@bootstrap_option
@_resources
@_who
@click.option("--all", "every", is_flag=True, help="All ACLs there are.")
@click.option("--if-exists", is_flag=True, help="No error where there are none.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def delete(
    principals: tuple[str, ...],
    bootstrap: str | None,
    prefix: bool,
    hosts: tuple[str, ...],
    operations: tuple[str, ...],
    every: bool,
    if_exists: bool,
    dry_run: bool,
    **named: Any,
) -> int:
    """Delete ACLs of PRINCIPALs and resources; with both, those of these on these."""
    told = bool(principals or hosts or operations or prefix or any(named.values()))
    if told == every:
        raise click.UsageError("say which, or give --all")
    pattern = "PREFIXED" if prefix else "ANY" if every else "LITERAL"
    with open_cluster(bootstrap) as cluster:
        from kbroker.client import admin_acls as client

        wanted = _filters(principals, hosts, operations, pattern, named)
        if dry_run:
            found = [acl for one in wanted for acl in client.describe_acls(cluster, one)]
        else:
            deleted = client.delete_acls(cluster, wanted).checked()
            found = [acl for acls in deleted.values() for acl in acls]
    for acl in sorted(set(found), key=_order):
        _tell(str(acl), "would be deleted" if dry_run else "deleted", None)
    if found:
        return 0
    fine = every or if_exists
    click.echo(f"{'' if fine else 'kbroker: '}there are no such ACLs", err=not fine)
    return 0 if fine else 1


def _filters(
    principals: tuple[str, ...],
    hosts: tuple[str, ...],
    operations: tuple[str, ...],
    pattern: str,
    named: dict[str, Any],
) -> list[AclFilter]:
    """Every combination of what was named; what was not is not looked at."""
    from kbroker.client import admin_acls as client

    resources: list[tuple[str, str | None]] = [*_named(named)] or [("ANY", None)]
    loose = pattern if pattern == "PREFIXED" else "ANY"
    return [
        client.AclFilter(
            client.AclResource[kind],
            name,
            None if principal is None else _principal(principal),
            client.AclOperation[operation],
            pattern=client.PatternType[loose if name is None else pattern],
            host=None if host is None else _host(host),
        )
        for kind, name in resources
        for principal in principals or (None,)
        for operation in map(_name, operations or ("any",))
        for host in hosts or (None,)
    ]


def _named(named: dict[str, Any]) -> list[tuple[str, str]]:
    found = [
        (kind, _principal(name) if kind == "USER" else name)
        for option, kind in _KINDS.items()
        for name in named[option]
    ]
    return found + ([("CLUSTER", _CLUSTER)] if named["of_cluster"] else [])


def _wanted_operations(
    kind: str, operations: tuple[str, ...], producer: bool, consumer: bool
) -> list[str]:
    for operation in operations:
        if operation not in ("all", *_SUPPORTED[kind]):
            supported = ", ".join(("all", *_SUPPORTED[kind]))
            raise click.BadParameter(
                f"{operation} means nothing of a {kind}, which has {supported}",
                param_hint="--operation",
            )
    wanted = [_name(operation) for operation in operations]
    if producer:
        wanted += {
            "TOPIC": ["WRITE", "DESCRIBE", "CREATE"],
            "TRANSACTIONAL_ID": ["WRITE", "DESCRIBE"],
            "CLUSTER": ["IDEMPOTENT_WRITE"],
        }.get(kind, [])
    if consumer:
        wanted += {"TOPIC": ["READ", "DESCRIBE"], "GROUP": ["READ"]}.get(kind, [])
    return wanted


def _name(operation: str) -> str:
    return operation.upper().replace("-", "_")


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _host(text: str) -> str:
    """An IPv6 address as brokers compare it: 0:0:0:0:0:0:0:1."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    groups = address.packed.hex(":", 2).split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups)


def _row(acl: Acl) -> dict[str, str]:
    return {
        "resource": acl.resource.name,
        "name": acl.name,
        "pattern": acl.pattern.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }


def _order(acl: Acl) -> tuple[Any, ...]:
    return tuple(_row(acl).values())


def _tell(what: str, done: str, error: Exception | None) -> int:
    if error is None:
        say(f"{what} {done}")
        return 0
    say(f"kbroker: {error}", err=True)
    return 1
