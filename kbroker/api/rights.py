"""What the sender of a request may do: more than one thing at a time, or as bit fields.

Without an authorizer everybody may do everything, and none of this costs more than a look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kbroker.api.context import Context
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Steps
from kbroker.security import acls

NOT_ASKED: Final = -(2**31)

_KNOWN: Final = {
    acls.TOPIC: (
        acls.READ, acls.WRITE, acls.CREATE, acls.DELETE, acls.ALTER, acls.DESCRIBE,
        acls.DESCRIBE_CONFIGS, acls.ALTER_CONFIGS,
    ),
    acls.GROUP: (
        acls.READ, acls.DELETE, acls.DESCRIBE, acls.DESCRIBE_CONFIGS, acls.ALTER_CONFIGS,
    ),
    acls.CLUSTER: (
        acls.CREATE, acls.ALTER, acls.DESCRIBE, acls.CLUSTER_ACTION, acls.DESCRIBE_CONFIGS,
        acls.ALTER_CONFIGS, acls.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip


_ALL: Final = {kind: sum(1 << one for one in known) for kind, known in _KNOWN.items()}


def operations(context: Context, resource_type: int, name: str) -> int:
    """What may be done to a resource; bit n is the operation of number n (KIP-430)."""
    if context.services.authorizer is None:
        return _ALL[resource_type]
    return sum(
        1 << operation
        for operation in _KNOWN[resource_type]
        if context.may(operation, resource_type, name, tell=False)
    )


def cluster_operations(context: Context) -> int:
    """What may be done to the cluster, for who may describe it; nothing for others."""
    if not may_cluster(context, acls.DESCRIBE):
        return 0
    return operations(context, acls.CLUSTER, acls.CLUSTER_NAME)


def may_cluster(context: Context, operation: int, *, tell: bool = True) -> bool:
    """Whether who asks may do that to the cluster."""
    return context.may(operation, acls.CLUSTER, acls.CLUSTER_NAME, tell=tell)


def require_cluster(context: Context, operation: int, message: str = "") -> None:
    """Refuse the request as a whole; the default message names the right. Raises ClientError."""
    if not may_cluster(context, operation):
        raise ClientError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            message or f"This wants the right {acls.OPERATIONS[operation]} on the cluster.",
        )


def require_group(context: Context, operation: int, group_id: str) -> None:
    """Refuse the request as a whole. Raises ClientError."""
    if not context.may(operation, acls.GROUP, group_id):
        raise ClientError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def require_transactional_id(context: Context, operation: int, name: str) -> None:
    """Refuse the request as a whole. Raises ClientError."""
    if not context.may(operation, acls.TRANSACTIONAL_ID, name):
        raise ClientError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def denied(
    context: Context,
    operation: int,
    resource_type: int,
    names: Iterable[str],
    *,
    tell: bool = True,
) -> frozenset[str]:
    """The names among these to which it may not be done."""
    if context.services.authorizer is None:
        return frozenset()
    return frozenset(
        name
        for name in dict.fromkeys(names)
        if not context.may(operation, resource_type, name, tell=tell)
    )


def denied_steps(
    context: Context,
    operation: int,
    resource_type: int,
    names: Iterable[str],
    *,
    tell: bool = True,
) -> Steps[frozenset[str]]:
    """The same in steps, for as many names as a request may have."""
    if context.services.authorizer is None:
        return frozenset()
    seen: set[str] = set()
    found: set[str] = set()
    for name in names:
        if name not in seen:
            seen.add(name)
            if not context.may(operation, resource_type, name, tell=tell):
                found.add(name)
        yield
    return frozenset(found)


def sight(context: Context) -> Callable[[str], bool] | None:
    """Whether a topic may be described; None: all of them may."""
    if context.services.authorizer is None:
        return None
    return lambda name: context.may(acls.DESCRIBE, acls.TOPIC, name, tell=False)
