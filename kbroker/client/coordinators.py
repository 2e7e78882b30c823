"""Where groups and transactions are coordinated, and asking there.

A coordinator is looked up for each call, and the call is made again while the coordinator loads
its state or has moved elsewhere, within the cluster's time limit. What all coordinators have, every
broker is asked for.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import CorruptDataError, check
from kbroker.client.results import listed
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = [
    "GROUP",
    "TRANSACTION",
    "ask_brokers",
    "ask_coordinators",
    "check_coordinator",
    "find_coordinators",
    "subject_of",
]

T = TypeVar("T")

# What a coordinator is looked up for.
GROUP = 0
TRANSACTION = 1

_PASSING = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


def find_coordinators(
    cluster: Cluster, keys: Collection[str], kind: int = GROUP, timeout_s: float | None = None
) -> dict[str, int]:
    """The node that coordinates each group, or each transactional id with kind TRANSACTION.
    timeout_s: for one answer."""
    wanted = list(dict.fromkeys(keys))
    return cluster.retry(lambda: _find_coordinators(cluster, wanted, kind, timeout_s))


def _find_coordinators(
    cluster: Cluster, keys: Sequence[str], kind: int, timeout_s: float | None = None
) -> dict[str, int]:
    connection = cluster.any_connection()
    if connection.version_of(ApiKey.FIND_COORDINATOR) >= 4:
        values = {"key_type": kind, "coordinator_keys": keys}
        answers = (
            connection.call(ApiKey.FIND_COORDINATOR, values, timeout_s=timeout_s).coordinators
            if keys
            else ()
        )
        told = [(answer.key, answer) for answer in answers]
    else:
        told = [
            (key, connection.call(ApiKey.FIND_COORDINATOR, {"key": key, "key_type": kind},
                                  timeout_s=timeout_s))
            for key in keys
        ]  # fmt: skip
    for key, answer in told:
        if key not in keys:
            raise _unasked(key, kind)
        check(answer.error_code, subject_of(key, kind), answer.error_message)
    found = {key: int(answer.node_id) for key, answer in told}
    for key in keys:
        if key not in found:
            raise CorruptDataError(f"the answer tells nothing of {subject_of(key, kind)}")
    return found


def ask_coordinators(
    cluster: Cluster,
    groups: Collection[str],
    ask: Callable[[Connection, int, list[str]], Iterator[tuple[str, T]]],
    kind: int = GROUP,
) -> dict[str, T]:
    """What `ask` tells of each group, in their order.

    ask(connection, node, its groups) is called at each coordinator, and again for the groups that
    it has told nothing of when it raised an error that passes.
    """
    left = list(dict.fromkeys(listed(groups)))
    found: dict[str, T] = {}

    def attempt() -> None:
        by_node: dict[int, list[str]] = defaultdict(list)
        for group, node_id in _find_coordinators(cluster, left, kind).items():
            by_node[node_id].append(group)
        for node_id, names in by_node.items():
            for group, told in ask(cluster.connection(node_id), node_id, names):
                if group not in left:
                    raise _unasked(group, kind)
                found[group] = told
                left.remove(group)
        if left:
            raise CorruptDataError(f"the answer tells nothing of {subject_of(left[0], kind)}")

    if left:
        cluster.retry(attempt)
    return {group: found[group] for group in dict.fromkeys(groups)}


def ask_brokers(cluster: Cluster, ask: Callable[[int], T]) -> list[T]:
    """What each broker answers, by its id, tried again each by itself; one limit for all."""

    def ask_all() -> list[T]:
        cluster.refresh([])
        return [cluster.retry(functools.partial(ask, node)) for node in sorted(cluster.nodes)]

    return cluster.retry(ask_all)


def _unasked(key: str, kind: int) -> CorruptDataError:
    return CorruptDataError(f"the answer tells of {subject_of(key, kind)}, which was not asked for")


def check_coordinator(key: str, code: int, kind: int = GROUP) -> None:
    """Raises for the errors after which the coordinator is looked for again."""
    if code in _PASSING:
        check(code, subject_of(key, kind))


def subject_of(key: str, kind: int = GROUP) -> str:
    """A group or transactional id as errors name it."""
    return f"{'group' if kind == GROUP else 'transactional id'} {key!r}"
