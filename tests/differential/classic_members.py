"""Members of classic groups for the scripts that are sent to both brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.differential.harness import Script
from tests.support.waits import wait_for
from tests.support.wire import WireConnection, call_once

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
COMMIT, DESCRIBE = 8, 15
SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01t" + b"\xff\xff\xff\xff"
OTHER_SUBSCRIPTION = SUBSCRIPTION.replace(b"t", b"u")


class Member:
    """One client: its connection, what it asked last, and the id that it was given."""

    def __init__(self, s: Script, version: int, **joins: Any) -> None:
        self.s = s
        self.version = version
        self.joins = {
            "group_id": s.name("g"), "session_timeout": 30_000, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        }  # fmt: skip
        if version >= 1:
            self.joins["rebalance_timeout"] = 30_000
        self.joins |= joins
        self.id = ""
        self.generation = -1
        self.connection = WireConnection(s.broker.port, timeout_s=30)
        self._asked = (0, 0, 0)

    def send(self, api: int, body: dict[str, Any], version: int | None = None) -> Member:
        asked = min(self.version, {SYNC: 5, HEARTBEAT: 4, LEAVE: 5, JOIN: 9}[api])
        version = asked if version is None else version
        self._asked = (api, version, self.connection.send(api, version, body))
        return self

    def expect(self, api: int, version: int, correlation_id: int) -> None:
        """The next answer is to a request that was sent by hand."""
        self._asked = (api, version, correlation_id)

    def take(self) -> dict[str, Any]:
        """The answer to what was asked last, noted."""
        api, version, correlation_id = self._asked
        answer = self.connection.receive(api, version, correlation_id)
        self.s.note(f"api {api} v{version}", answer)
        if api == JOIN:
            self.id = answer["member_id"] or self.id
            self.generation = answer["generation_id"]
        return answer

    def send_join(self, **fields: Any) -> Member:
        return self.send(JOIN, self.joins | {"member_id": self.id} | fields)

    def join(self, **fields: Any) -> dict[str, Any]:
        """Join, and once more where an id is given out first."""
        answer = self.send_join(**fields).take()
        return self.send_join(**fields).take() if answer["error_code"] == 79 else answer

    def begin_join(self, **fields: Any) -> Member:
        """Join, so that only the answer is still to come."""
        if self.version >= 4 and not self.id and "group_instance_id" not in self.joins:
            self.send_join(**fields).take()
        return self.send_join(**fields)

    def send_sync(self, *assignments: tuple[str, bytes], **fields: Any) -> Member:
        body = {
            "group_id": self.joins["group_id"], "generation_id": self.generation,
            "member_id": self.id,
            "assignments": [{"member_id": m, "assignment": a} for m, a in assignments],
        }  # fmt: skip
        if self.version >= 5:
            body |= {"protocol_type": "consumer", "protocol_name": "range"}
        return self.send(SYNC, body | fields)

    def sync(self, *assignments: tuple[str, bytes], **fields: Any) -> dict[str, Any]:
        return self.send_sync(*assignments, **fields).take()

    def heartbeat(self, **fields: Any) -> dict[str, Any]:
        body = {"group_id": self.joins["group_id"], "generation_id": self.generation,
                "member_id": self.id}  # fmt: skip
        return self.send(HEARTBEAT, body | fields).take()

    def leave(self, *members: dict[str, Any], version: int | None = None) -> dict[str, Any]:
        version = min(self.version, 5) if version is None else version
        body: dict[str, Any] = {"group_id": self.joins["group_id"]}
        if version >= 3:
            body["members"] = list(members) or [{"member_id": self.id}]
        else:
            body["member_id"] = members[0]["member_id"] if members else self.id
        return self.send(LEAVE, body, version).take()

    def stable(self) -> Member:
        """Alone in a stable group."""
        self.join()
        self.sync((self.id, b"mine"))
        return self


def until_served(s: Script, group: str) -> None:
    """Waits until the group's coordinator has loaded; Kafka's says NOT_COORDINATOR before."""
    s.until_coordinator(0)
    body = {"group_id": group, "generation_id": 1, "member_id": "nobody"}

    def is_served() -> bool:
        return bool(call_once(s.broker.port, HEARTBEAT, 0, body)["error_code"] not in (0, 15, 16))

    wait_for("the coordinator of the group", is_served, 30)


@contextmanager
def members(s: Script, version: int, *joins: dict[str, Any]) -> Iterator[list[Member]]:
    """Clients of one group, connected."""
    until_served(s, s.name("g"))
    for fields in joins:
        until_served(s, fields.get("group_id", s.name("g")))
    found = [Member(s, version, **fields) for fields in joins]
    try:
        yield found
    finally:
        for member in found:
            member.connection.close()


def protocols(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "metadata": SUBSCRIPTION} for name in names]


def wait_for_rebalance(member: Member) -> list[int]:
    """Heartbeats until the member is told to join again: with which error."""
    body = {"group_id": member.joins["group_id"], "generation_id": member.generation,
            "member_id": member.id}  # fmt: skip

    def error() -> int:
        return int(member.connection.call(HEARTBEAT, 0, body)["error_code"])

    return [wait_for("a rebalance", error, 10)]


def commit(m: Member, version: int, **fields: Any) -> None:
    """Commits one offset of the topic "t" of the script."""
    part: dict[str, Any] = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "x"}
    if version >= 6:
        part["committed_leader_epoch"] = -1
    topic = m.s.topic_field(m.s.name("t"), version >= 10, "name") | {"partitions": [part]}
    body = {
        "group_id": m.joins["group_id"], "generation_id_or_member_epoch": m.generation,
        "member_id": m.id, "topics": [topic],
    }  # fmt: skip
    if version < 5:
        body["retention_time"] = -1
    answer = m.connection.call(COMMIT, version, body | fields)
    m.s.note(f"commit v{version}", answer)


def described(m: Member) -> dict[str, Any]:
    return m.connection.call(DESCRIBE, 6, {"groups": [m.joins["group_id"]]})


def describe(m: Member, label: str) -> None:
    m.s.note(f"described {label}", described(m))


def until_described(m: Member) -> None:
    """Waits until a new group is told of. Kafka gives a first member its id before the record of
    the group is committed, and tells of the group after."""
    wait_for("the new group", lambda: described(m)["groups"][0]["group_state"] != "Dead", 10)
