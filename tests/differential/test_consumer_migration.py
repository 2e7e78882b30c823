"""Groups that pass from the classic protocol to the new one and back (KIP-848), step by step."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from tests.differential.harness import Answer, Script, same
from tests.differential.test_consumer_groups import (
    CLASSIC_BEAT,
    DESCRIBE,
    DESCRIBE_CLASSIC,
    JOIN,
    LEAVE,
    SYNC,
    Group,
)


def subscription(topic: str, owned: Iterable[int]) -> bytes:
    """ConsumerProtocolSubscription version 1."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    parts = list(owned)
    out = struct.pack(">hi", 1, 1) + name + struct.pack(">i", -1)
    return out + struct.pack(">i", 1) + name + struct.pack(f">i{len(parts)}i", len(parts), *parts)


def assignment(topic: str, parts: Iterable[int]) -> bytes:
    given = list(parts)
    out = struct.pack(">hih", 1, 1, len(topic)) + topic.encode()
    return out + struct.pack(f">i{len(given)}ii", len(given), *given, -1)


class ClassicMember:
    """A member by JoinGroup; its random id is told as "old", or as its instance id."""

    def __init__(
        self, group: Group, topic: str, instance: str | None = None,
        names: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.group = group
        self.topic = topic
        self.instance = instance
        self.id = ""
        self.names = {} if names is None else names

    def renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.renamed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.renamed(item) for item in value]
        if isinstance(value, bytes):
            return value.replace(self.topic.encode(), b"topic")
        return self.names.get(value, value) if isinstance(value, str) else value

    def call(self, api: int, version: int, body: Answer) -> Answer:
        def keep(answer: Answer) -> Any:
            self.id = self.id or answer.get("member_id", "")
            if self.id:
                self.names[self.id] = self.instance or "old"
            return self.renamed(answer)

        common = {"group_id": self.group.name, "member_id": self.id,
                  "group_instance_id": self.instance}  # fmt: skip
        return self.group.script.call(api, version, common | body, keep=keep)

    def join(self, owned: Iterable[int] = ()) -> Answer:
        data = subscription(self.topic, owned)
        names = ("cooperative-sticky", "range")
        body = {
            "session_timeout": 45_000, "rebalance_timeout": 60_000, "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": data} for name in names],
        }  # fmt: skip
        return self.call(JOIN, 9, body)

    def sync(self, generation: int, given: bytes | None = None) -> Answer:
        assignments = [] if given is None else [{"member_id": self.id, "assignment": given}]
        body = {"generation_id": generation, "protocol_type": "consumer",
                "protocol_name": "cooperative-sticky", "assignments": assignments}  # fmt: skip
        return self.call(SYNC, 5, body)

    def beat(self, generation: int) -> Answer:
        return self.call(CLASSIC_BEAT, 4, {"generation_id": generation})

    def describe(self) -> None:
        body = {"group_ids": [self.group.name], "include_authorized_operations": False}
        for version, api in ((1, DESCRIBE), (6, DESCRIBE_CLASSIC)):
            asked = body if api == DESCRIBE else {
                "groups": [self.group.name], "include_authorized_operations": False
            }  # fmt: skip
            self.group.script.call(api, version, asked, keep=self._described)

    def _described(self, answer: Answer) -> Any:
        answer = self.renamed(answer)
        for group in answer["groups"]:
            group["members"].sort(key=lambda member: member["member_id"])
        return answer


@same()
def test_up_and_downgrade(s: Script, version: int) -> None:
    """A classic group, a member of the new protocol that joins and leaves it again."""
    t = s.topic("t", 4)
    group = Group(s)
    old = ClassicMember(group, t)
    old.join()
    old.join()
    old.sync(1, assignment(t, range(4)))
    old.describe()
    group.beat("new", 3)
    group.join("new", t)
    old.describe()
    old.beat(1)
    old.beat(2)
    old.sync(1)
    old.join(range(4))
    old.sync(1)
    old.beat(1)
    old.join([0, 1])
    old.sync(2)
    old.beat(2)
    group.beat("new", 2)
    old.describe()
    group.beat("new", -1)
    old.describe()
    old.beat(2)
    old.join([0, 1])
    old.sync(3, assignment(t, range(4)))
    old.beat(3)
    old.describe()


@same()
def test_static_up_and_downgrade(s: Script, version: int) -> None:
    """An instance that comes back speaking the other protocol."""
    t = s.topic("t", 4)
    group = Group(s)
    old = ClassicMember(group, t, "i")
    old.join()
    old.sync(1, assignment(t, range(4)))
    group.join("new", t, instance_id="i")
    old.describe()
    old.beat(1)
    again = ClassicMember(group, t, "i")
    again.join(range(4))
    again.describe()
    again.sync(1)
    again.sync(2)
    again.beat(1)
    again.beat(2)



@same()
def test_joining_by_the_classic_request(s: Script, version: int) -> None:
    """A classic member joins a consumer group; then the one that was there before leaves."""
    t = s.topic("t", 6)  # shared evenly by two and by three: member ids are random
    group = Group(s)
    group.join("new", t)
    old = ClassicMember(group, t)
    old.join()
    old.join()
    old.describe()
    old.sync(2)
    old.sync(3)
    old.beat(3)
    group.beat("new", 2)
    group.beat("new", 2, owned={t: [0, 1, 2]})
    old.beat(3)
    old.join()
    old.sync(3)
    old.describe()
    seat = ClassicMember(group, t, "i", old.names)
    seat.join()
    seat.describe()
    seat.beat(4)
    old.beat(3)
    old.beat(4)
    old.join([3, 4])
    s.call(LEAVE, 5, {"group_id": group.name, "members": [
        {"member_id": "new", "group_instance_id": None, "reason": None},
    ]})  # fmt: skip
    old.beat(4)
    seat.beat(4)


@same()
def test_what_is_not_upgraded(s: Script, version: int) -> None:
    """Groups of other protocol types, and assignments that say more than partitions."""
    t = s.topic("t", 4)
    group = Group(s)
    old = ClassicMember(group, t, "i")
    old.join()
    old.sync(1, assignment(t, range(4))[:-4] + struct.pack(">i", 1) + b"x")
    group.join("new", t)
    old.beat(1)
    other = Group(s, short="connect")
    body = {
        "group_id": other.name, "member_id": "", "group_instance_id": "i",
        "session_timeout": 45_000, "rebalance_timeout": 60_000, "protocol_type": "connect",
        "protocols": [{"name": "v1", "metadata": b""}],
    }  # fmt: skip
    s.call(JOIN, 9, body, keep=lambda answer: answer["error_code"])
    other.join("new", t)
