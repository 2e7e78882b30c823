"""Access control lists: told, made, deleted. Numbers are those of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kbroker.client.admin import error_of
from kbroker.client.cluster import Cluster
from kbroker.client.errors import KafkaError, check
from kbroker.client.operations import AclOperation
from kbroker.client.results import Results, ask_each
from kbroker.protocol import ApiKey

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResource",
    "PatternType",
    "create_acls",
    "delete_acls",
    "describe_acls",
]


class AclResource(IntEnum):
    """What an ACL is about; ANY only in filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a resource is meant; ANY and MATCH only in filters (KIP-290)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """Whether it may be done; ANY only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class Acl:
    """One rule. principal: `User:name`, or `User:*`; host: an address, or `*`."""

    resource: AclResource
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"

    def __str__(self) -> str:
        """What is usual, a literal name and every host, goes without saying."""
        pattern = "" if self.pattern == PatternType.LITERAL else f"{self.pattern.name} "
        host = "" if self.host == "*" else f" from {self.host}"
        return (
            f"ACL {self.permission.name} {self.principal} {self.operation.name}"
            f" {self.resource.name} {pattern}{self.name!r}{host}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant; what is left out matches all."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern: PatternType = PatternType.ANY
    host: str | None = None

    def values(self) -> dict[str, Any]:
        """The filter as requests carry it."""
        return {
            "resource_type_filter": int(self.resource),
            "resource_name_filter": self.name,
            "pattern_type_filter": int(self.pattern),
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": int(self.operation),
            "permission_type": int(self.permission),
        }


def describe_acls(cluster: Cluster, which: AclFilter | None = None) -> list[Acl]:
    """The rules that a filter matches, or all."""
    values = (which or AclFilter()).values()

    def ask() -> list[Acl]:
        body = cluster.any_connection().call(ApiKey.DESCRIBE_ACLS, values)
        check(body.error_code, "ACLs", body.error_message)
        return [_acl(resource, rule) for resource in body.resources for rule in resource.acls]

    return cluster.retry(ask)


def _acl(resource: Any, rule: Any) -> Acl:
    return Acl(
        AclResource(int(resource.resource_type)),
        resource.resource_name,
        rule.principal,
        AclOperation(int(rule.operation)),
        AclPermission(int(rule.permission_type)),
        PatternType(int(resource.pattern_type)),
        rule.host,
    )


def create_acls(cluster: Cluster, acls: Iterable[Acl]) -> Results[Acl, None]:
    """Makes rules; one that is there already is no error."""

    def ask(left: list[Acl]) -> Iterable[tuple[Acl, KafkaError | None]]:
        creations = [
            {
                "resource_type": int(acl.resource),
                "resource_name": acl.name,
                "resource_pattern_type": int(acl.pattern),
                "principal": acl.principal,
                "host": acl.host,
                "operation": int(acl.operation),
                "permission_type": int(acl.permission),
            }
            for acl in left
        ]
        body = cluster.controller().call(ApiKey.CREATE_ACLS, {"creations": creations})
        for acl, answer in zip(left, body.results, strict=True):
            yield acl, error_of(answer.error_code, str(acl), answer.error_message)

    return ask_each(cluster, acls, ask)


def delete_acls(
    cluster: Cluster, filters: Iterable[AclFilter]
) -> Results[AclFilter, list[Acl]]:
    """Deletes the rules that filters match, and tells which these were."""

    def ask(left: list[AclFilter]) -> Iterable[tuple[AclFilter, list[Acl] | KafkaError]]:
        values = {"filters": [which.values() for which in left]}
        body = cluster.controller().call(ApiKey.DELETE_ACLS, values)
        for which, answer in zip(left, body.filter_results, strict=True):
            failed = error_of(answer.error_code, str(which), answer.error_message)
            for rule in answer.matching_acls:
                failed = failed or error_of(
                    rule.error_code, str(_acl(rule, rule)), rule.error_message
                )
            yield which, failed or [_acl(rule, rule) for rule in answer.matching_acls]

    return ask_each(cluster, filters, ask)
