"""ACLs and what they decide: the rules of Apache Kafka's StandardAuthorizer.

An ACL belongs to a resource pattern: LITERAL names one resource, or with `*` all of a type;
PREFIXED all whose names begin so. Any DENY that matches wins; then any ALLOW; then, where no ACL at
all belongs to the resource, `allow.everyone.if.no.acl.found`; else no. ALLOW of READ, WRITE, DELETE
or ALTER implies DESCRIBE, of ALTER_CONFIGS DESCRIBE_CONFIGS; a DENY implies nothing. A super user
may do everything.

Not thread-safe: the control thread owns it. What it decided may be remembered by its `version`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

# Numbers of the protocol (KIP-140, KIP-290).
UNKNOWN, ANY = 0, 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
DENY, ALLOW = 2, 3

OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE",
    "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS",
    "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
RESOURCES: Final = (
    "UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER",
)  # fmt: skip
PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
"""Names by number."""

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
_ANYBODY: Final = "User:*"
_IMPLIED: Final = {
    DESCRIBE: frozenset({DESCRIBE, READ, WRITE, DELETE, ALTER, ALL}),
    DESCRIBE_CONFIGS: frozenset({DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL}),
}


class Acl(NamedTuple):
    """One rule, numbers as on the wire; `principal` is `Type:name`."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        return (
            f"{_name(PERMISSIONS, self.permission)} {self.principal} from {self.host}"
            f" {_name(OPERATIONS, self.operation)} {_name(RESOURCES, self.resource_type)}"
            f" {_name(PATTERNS, self.pattern)} {self.name}"
        )


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


class Filter(NamedTuple):
    """Which ACLs are meant. None and ANY take everything; pattern MATCH takes what would be asked
    for a resource of that name."""

    resource_type: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def takes(self, acl: Acl) -> bool:
        """Whether an ACL is meant."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self._takes_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _takes_name(self, acl: Acl) -> bool:
        if self.pattern not in (ANY, MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != MATCH:
            return False
        if acl.pattern == PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == WILDCARD

    @property
    def unknown(self) -> bool:
        """Whether a newer client means something that this broker does not know."""
        return not (
            ANY <= self.resource_type <= USER
            and ANY <= self.pattern <= PREFIXED
            and ANY <= self.operation <= TWO_PHASE_COMMIT
            and ANY <= self.permission <= ALLOW
        )


class Decision(NamedTuple):
    """Whether it may, and why: the ACL that said so, or in words."""

    allowed: bool
    rule: Acl | str


class _OfType:
    """The ACLs of one resource type by name."""

    def __init__(self) -> None:
        self.literal: dict[str, list[Acl]] = {}
        self.prefixed: dict[str, list[Acl]] = {}
        # Of prefixes, ascending: a name may have 32 KiB, and is not looked up by each beginning.
        self._lengths: list[int] = []

    def add(self, acl: Acl) -> None:
        length = len(acl.name)
        if acl.pattern == PREFIXED and length not in self._lengths:
            insort(self._lengths, length)
        self._table(acl).setdefault(acl.name, []).append(acl)

    def remove(self, acl: Acl) -> None:
        table = self._table(acl)
        table[acl.name].remove(acl)
        if table[acl.name]:
            return
        del table[acl.name]
        length = len(acl.name)
        if acl.pattern == PREFIXED and all(len(name) != length for name in table):
            self._lengths.remove(length)

    def _table(self, acl: Acl) -> dict[str, list[Acl]]:
        return self.prefixed if acl.pattern == PREFIXED else self.literal

    def of(self, name: str) -> Iterator[Acl]:
        """Those that belong to a resource."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self._lengths:
            if length > len(name):
                return
            yield from self.prefixed.get(name[:length], ())


class Authorizer:
    """See the module."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_if_none: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.allow_if_none = allow_if_none
        self.version = 0
        """Grows with every change: what was decided before it may be wrong."""
        self._acls: dict[Acl, None] = {}
        self._types: dict[int, _OfType] = {}

    def __len__(self) -> int:
        return len(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    def acls(self, wanted: Callable[[Acl], bool]) -> list[Acl]:
        """The ACLs that are meant, in the order in which they came."""
        return [acl for acl in self._acls if wanted(acl)]

    def add(self, acl: Acl) -> None:
        """Keep an ACL; nothing where it is there."""
        if acl in self._acls:
            return
        self._acls[acl] = None
        self._types.setdefault(acl.resource_type, _OfType()).add(acl)
        self.version += 1

    def remove(self, acl: Acl) -> None:
        """Forget an ACL; nothing where it is not there."""
        if acl not in self._acls:
            return
        del self._acls[acl]
        self._types[acl.resource_type].remove(acl)
        self.version += 1

    def renew(self) -> None:
        """Have everybody ask again what was decided."""
        self.version += 1

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        """Whether a principal may do something from a host (its address as text)."""
        if principal in self.super_users:
            return Decision(True, "super user")
        allowing, there = None, False
        found = self._types.get(resource_type)
        for acl in found.of(name) if found is not None else ():
            there = True
            if not _concerns(acl, principal, host) or not _covers(acl, operation):
                continue
            if acl.permission == DENY:
                return Decision(False, acl)
            allowing = acl
        if allowing is not None:
            return Decision(True, allowing)
        if there:
            return Decision(False, "no ACL of the resource allows it")
        return Decision(self.allow_if_none, "no ACL belongs to the resource")

    def decide_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether a principal may do something to at least one resource of a type, be it there or
        not (authorizeByResourceType of KIP-679)."""
        if self.decide(principal, host, operation, resource_type, "hardcode").allowed:
            return True
        found = self._types.get(resource_type)
        if found is None:
            return False

        def names(table: dict[str, list[Acl]], permission: int) -> set[str]:
            return {
                name
                for name, acls in table.items()
                for acl in acls
                if acl.permission == permission
                and acl.operation in (operation, ALL)
                and _concerns(acl, principal, host)
            }

        denied, denied_begins = names(found.literal, DENY), names(found.prefixed, DENY)
        allowed = names(found.literal, ALLOW)
        if WILDCARD in denied:
            return False
        if WILDCARD in allowed:
            return True
        candidates = [*(allowed - denied), *names(found.prefixed, ALLOW)]
        return any(
            not any(one[:length] in denied_begins for length in range(1, len(one) + 1))
            for one in candidates
        )


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, _ANYBODY) and acl.host in (host, WILDCARD)


def _covers(acl: Acl, operation: int) -> bool:
    if acl.permission == ALLOW and operation in _IMPLIED:
        return acl.operation in _IMPLIED[operation]
    return acl.operation in (operation, ALL)


def fault(acl: Acl) -> str | None:
    """Why an ACL cannot be made, None where it can."""
    kind, name, pattern, principal, _, operation, permission = acl
    if kind not in range(TOPIC, USER + 1):
        return f"There are no ACLs of resource type {kind}."
    if kind == CLUSTER and name != CLUSTER_NAME:
        return f"The cluster is called {CLUSTER_NAME}."
    if not name:
        return "The name of the resource is empty."
    if pattern not in (LITERAL, PREFIXED):
        return f"There are no ACLs of pattern type {pattern}."
    if operation not in range(ALL, TWO_PHASE_COMMIT + 1):
        return f"There are no ACLs of operation {operation}."
    if permission not in (DENY, ALLOW):
        return f"There are no ACLs of permission {permission}."
    if ":" not in principal:
        return f"{principal!r} is no principal: write TYPE:NAME."
    return None
