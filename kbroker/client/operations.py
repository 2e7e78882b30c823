"""What may be done with a resource, as ACLs and brokers name it (KIP-430)."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["AclOperation", "told_operations"]

_NOT_TOLD = -(1 << 31)


class AclOperation(IntEnum):
    """What is done; ANY only in filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def told_operations(bits: int) -> frozenset[AclOperation] | None:
    """Of the bits in an answer, one for each operation's number; None: they were not told."""
    if bits == _NOT_TOLD:
        return None
    return frozenset(one for one in AclOperation if bits >> one & 1)
