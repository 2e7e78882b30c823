"""Brokers with an authorizer, and clients that it tells apart by the address that they come from.

Without authentication everybody is User:ANONYMOUS: who comes from 127.0.0.1 may do everything here,
who comes from 127.0.0.2 what a test allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import WireConnection, call_once

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {
    "authorizer.class.name": STANDARD,
    "allow.everyone.if.no.acl.found": "true",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
}
NOBODY, HERE, THERE = "User:ANONYMOUS", "127.0.0.1", "127.0.0.2"
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = range(2, 8)
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3

Row = dict[str, Any]


def acl(
    kind: int, name: str, operation: int, *, pattern: int = LITERAL, permission: int = ALLOW,
    principal: str = NOBODY, host: str = THERE,
) -> Row:  # fmt: skip
    """An ACL as CreateAcls takes it; of the cluster the name does not count."""
    return {
        "resource_type": kind, "resource_name": "kafka-cluster" if kind == CLUSTER else name,
        "resource_pattern_type": pattern, "principal": principal, "host": host,
        "operation": operation, "permission_type": permission,
    }  # fmt: skip


def the_filter(row: Row) -> Row:
    """The filter that means one ACL."""
    return {
        "resource_type_filter": row["resource_type"],
        "resource_name_filter": row["resource_name"],
        "pattern_type_filter": row["resource_pattern_type"],
        "principal_filter": row["principal"], "host_filter": row["host"],
        "operation": row["operation"], "permission_type": row["permission_type"],
    }  # fmt: skip


EVERYTHING = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def told(port: int, which: Row | None = None) -> int:
    """How many ACLs a filter means, as the broker sees it."""
    answer = call_once(port, DESCRIBE_ACLS, 3, which or EVERYTHING)
    assert answer["error_code"] == 0, answer
    return sum(len(one["acls"]) for one in answer["resources"])


def create(port: int, rows: Iterable[Row]) -> None:
    """Makes ACLs and waits until the broker goes by them; Kafka hears of them after the answer."""
    rows = list(rows)
    answer = call_once(port, CREATE_ACLS, 3, {"creations": rows})
    assert all(one["error_code"] == 0 for one in answer["results"]), answer
    for row in rows:
        wait_for("an ACL holds", lambda row=row: told(port, the_filter(row)) == 1, 60)


def delete(port: int, rows: Iterable[Row]) -> None:
    """Takes ACLs away and waits until they are gone."""
    rows = list(rows)
    answer = call_once(port, DELETE_ACLS, 3, {"filters": [the_filter(row) for row in rows]})
    assert all(one["error_code"] == 0 for one in answer["filter_results"]), answer
    for row in rows:
        wait_for("an ACL is gone", lambda row=row: told(port, the_filter(row)) == 0, 60)


@contextmanager
def granted(port: int, *rows: Row) -> Iterator[None]:
    """These ACLs while it lasts."""
    create(port, rows)
    try:
        yield
    finally:
        delete(port, rows)


def guard(broker: BrokerProcess) -> None:
    """From here on who comes from 127.0.0.1 may do everything, and nobody else anything."""
    names = ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, ""), (TRANSACTIONAL_ID, "*"),
             (DELEGATION_TOKEN, "*"), (USER, "*"))  # fmt: skip
    create(broker.port, [acl(kind, name, ALL, host=HERE) for kind, name in names])


def other(port: int) -> WireConnection:
    """A connection of somebody who may do what was allowed."""
    return WireConnection(port, source=THERE)
