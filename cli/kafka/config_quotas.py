"""kafka-configs for users, clients and addresses: their quotas, and users' SCRAM credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.cli.kafka.tool import say

if TYPE_CHECKING:
    from kbroker.client.admin_users import QuotaEntity
    from kbroker.client.cluster import Cluster

__all__ = ["alter", "describe"]

# Kinds of entities by the names of the tool and of the protocol, and as they are shown.
_KINDS = {
    "users": ("user", "user-principal"),
    "clients": ("client-id", "client-id"),
    "ips": ("ip", "ip"),
}
_CLIENT_QUOTAS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
)  # fmt: skip
_IP_QUOTAS = ("connection_creation_rate",)
_MECHANISMS = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}  # with their fewest iterations
_ITERATIONS = 4096


def describe(cluster: Cluster, types: list[str], names: list[str]) -> None:
    """Shows quotas, and of users their credentials."""
    if len(names) > len(types):
        raise ValueError("More entity names specified than entity types")
    from kbroker.cli.kafka.java import double_text

    for entity, quotas in sorted(_quotas(cluster, types, names).items(), key=_shown):
        values = ", ".join(f"{key}={double_text(value)}" for key, value in sorted(quotas.items()))
        say(f"Quota configs for {_shown((entity, {}))} are {values}")
    if types[0] == "ips" or "clients" in types or "" in names:
        return
    from kbroker.client.admin_users import describe_scram_users
    from kbroker.errors import ErrorCode

    for user, told in sorted(describe_scram_users(cluster, names or None).told.items()):
        if isinstance(told, Exception):
            if told.code != ErrorCode.RESOURCE_NOT_FOUND:
                say("Error retrieving SCRAM credential configs for user-principal"
                    f" '{user}': {told}")  # fmt: skip
            continue
        shown = ", ".join(f"{one.mechanism}=iterations={one.iterations}" for one in told)
        say(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def _shown(item: tuple[QuotaEntity, object]) -> str:
    names = dict(item[0])
    return ", ".join(
        f"the default {shown}" if names[kind] is None else f"{shown} '{names[kind]}'"
        for kind, shown in _KINDS.values()
        if kind in names
    )


def _quotas(
    cluster: Cluster, types: list[str], names: list[str]
) -> dict[QuotaEntity, dict[str, float]]:
    """Quotas of entities of exactly these kinds; kinds without a name: of all of that kind."""
    from kbroker.client.admin_users import describe_quotas

    told: list[str | None] = [name or None for name in names]
    wanted = [*told, *["*"] * (len(types) - len(told))]
    components = {_KINDS[kind][0]: name for kind, name in zip(types, wanted, strict=True)}
    return describe_quotas(cluster, components, strict=True)


def alter(
    cluster: Cluster, types: list[str], names: list[str], added: dict[str, str], deleted: list[str]
) -> None:
    """Sets and deletes quotas, or credentials of one user."""
    if types[0] == "ips":
        wrong = [key for key in (*added, *deleted) if key not in _IP_QUOTAS]
        if wrong:
            raise ValueError(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server."
                f" Unexpected config names: {','.join(wrong)}"
            )
        _alter_quotas(cluster, types, names, added, deleted)
        return
    _check_kinds(types, names, added, deleted)
    if any(key in _CLIENT_QUOTAS for key in (*added, *deleted)):
        _alter_quotas(cluster, types, names, added, deleted)
    else:
        _alter_scram(cluster, names[0], added, deleted)


def _check_kinds(
    types: list[str], names: list[str], added: Iterable[str], deleted: Iterable[str]
) -> None:
    """Quotas for all; credentials for users alone, and not with quotas."""
    only_quotas = types[0] == "clients" or len(types) == 2
    known = _CLIENT_QUOTAS if only_quotas else (*_CLIENT_QUOTAS, *_MECHANISMS)
    what = "quota" if only_quotas else "quota and SCRAM credential"
    kind = "clients" if only_quotas else "users"
    for done, keys in (("added", added), ("deleted", deleted)):
        wrong = [key for key in keys if key not in known]
        if wrong:
            raise ValueError(
                f"Only {what} configs can be {done} for '{kind}' using --bootstrap-server."
                f" Unexpected config names: {', '.join(wrong)}"
            )
    every = [*added, *deleted]
    if any(key in _MECHANISMS for key in every):
        if "" in names:
            raise ValueError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM"
                " Credentials using --bootstrap-server."
            )
        if any(key in _CLIENT_QUOTAS for key in every):
            raise ValueError(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users'"
                " using --bootstrap-server."
            )


def _alter_quotas(
    cluster: Cluster, types: list[str], names: list[str], added: dict[str, str], deleted: list[str]
) -> None:
    from kbroker.client.admin_users import alter_quotas

    known = next(iter(_quotas(cluster, types, names).values()), {})
    wrong = [key for key in deleted if key not in known]
    if wrong:
        raise ValueError(f"Invalid config(s): {','.join(wrong)}")
    changes: dict[str, float | None] = {key: _quota(key, value) for key, value in added.items()}
    changes |= dict.fromkeys(deleted)
    entity = frozenset(
        (_KINDS[kind][0], name or None) for kind, name in zip(types, names, strict=True)
    )
    alter_quotas(cluster, {entity: changes}).checked()


def _quota(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"Cannot parse quota configuration value for {key}: {value}") from None


def _alter_scram(cluster: Cluster, user: str, added: dict[str, str], deleted: list[str]) -> None:
    from kbroker.client.admin_users import ScramDeletion, ScramUpsertion, alter_scram_users

    changes: list[ScramUpsertion | ScramDeletion] = [
        ScramDeletion(user, mechanism) for mechanism in deleted
    ]
    for mechanism, told in added.items():
        found = re.fullmatch(r"(?:iterations=(-?[0-9]*),)?password=(.*)", told)
        if found is None:
            raise ValueError(f"Invalid credential property {mechanism}={told}")
        count, least = int(found[1] or -1), _MECHANISMS[mechanism]
        count = _ITERATIONS if count == -1 else count
        if count < least:
            raise ValueError(
                f"Iterations {count} is less than the minimum {least} required for {mechanism}"
            )
        changes.append(ScramUpsertion(user, mechanism, found[2], count))
    alter_scram_users(cluster, changes).checked()
