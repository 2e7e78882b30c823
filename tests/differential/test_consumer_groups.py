"""Heartbeats of the consumer group protocol (KIP-848): epochs, assignments, errors, step by step.

Member ids are the scripts' own, so that even who gets which partition must be the same.
"""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Answer, Script, same
from tests.support.waits import wait_for

HEARTBEAT, DESCRIBE, COMMIT, FETCH_OFFSETS, DELETE_GROUPS = 68, 69, 8, 9, 42
JOIN, CLASSIC_BEAT, LEAVE, SYNC = 11, 12, 13, 14
DESCRIBE_CLASSIC, LIST, DELETE_OFFSETS = 15, 16, 47
GROUP, SET = 32, 0
GROUP_ID_NOT_FOUND = 69


class Group:
    """A group with members that name themselves."""

    def __init__(self, script: Script, version: int = 1, short: str = "g") -> None:
        self.script = script
        self.version = version
        self.name = script.name(short)
        script.until_coordinator(0)
        wait_for("the group's partition is loaded", self._is_loaded, 30)

    def _is_loaded(self) -> bool:
        body = {"group_ids": [self.name], "include_authorized_operations": False}
        answer = self.script.connection.call(DESCRIBE, 0, body)
        return bool(answer["groups"][0]["error_code"] == GROUP_ID_NOT_FOUND)

    def body(
        self, member: str, epoch: int, *, names: Any = None, regex: Any = None, owned: Any = None,
        timeout: int | None = None, **fields: Any,
    ) -> Answer:  # fmt: skip
        """A heartbeat; `owned` is {topic: partitions}."""
        parts = None
        if owned is not None:
            parts = [
                {"topic_id": self.script.id_of(topic), "partitions": list(mine)}
                for topic, mine in owned.items()
            ]
        body = {
            "group_id": self.name, "member_id": member, "member_epoch": epoch,
            "rebalance_timeout": (60_000 if epoch == 0 else -1) if timeout is None else timeout,
            "subscribed_topic_names": names, "topic_partitions": parts,
        }  # fmt: skip
        if regex is not None:
            body["subscribed_topic_regex"] = regex
        return body | fields

    def beat(self, member: str, epoch: int, **fields: Any) -> Answer:
        return self.script.call(HEARTBEAT, self.version, self.body(member, epoch, **fields))

    def join(self, member: str, *names: str, **fields: Any) -> Answer:
        return self.beat(member, 0, names=names, owned={}, **fields)

    def beat_until_assigned(self, member: str, epoch: int) -> Answer:
        """For what Kafka does in the background; only the last answer is noted."""

        def ask() -> Answer | None:
            answer = self.script.connection.call(HEARTBEAT, 1, self.body(member, epoch))
            return answer if answer["assignment"] or answer["error_code"] else None

        answer = wait_for("an assignment", ask, 15)
        self.script.note("assigned", answer)
        return answer

    def describe(self, version: int = 1) -> None:
        body = {"group_ids": [self.name], "include_authorized_operations": True}
        self.script.call(DESCRIBE, version, body, keep=by_member)


def by_member(answer: Answer) -> Answer:
    for group in answer["groups"]:
        group["members"].sort(key=lambda member: member["member_id"])
        for member in group["members"]:
            member["subscribed_topic_names"] = sorted(member["subscribed_topic_names"])
            for kind in ("assignment", "target_assignment"):
                for topic in member[kind]["topic_partitions"]:
                    topic["partitions"] = sorted(topic["partitions"])
    return answer


def partitions(answer: Answer) -> list[int]:
    """Of the one topic of an assignment."""
    return [p for one in answer["assignment"]["topic_partitions"] for p in one["partitions"]]


@same((0, 1))
def test_sharing(s: Script, version: int) -> None:
    """Three members come, give up and get partitions, and go."""
    t = s.topic("t", 7)
    group = Group(s, version)
    group.join("m1", t)
    group.beat("m1", 2)
    group.describe(version)
    group.join("m2", t)
    kept = partitions(group.beat("m1", 2, owned={t: range(7)}))
    group.describe(version)
    group.beat("m2", 3, owned={})
    group.beat("m1", 2, owned={t: range(7)})
    group.beat("m1", 2)
    group.beat("m1", 2, owned={t: kept})
    group.describe(version)
    group.beat("m2", 3, owned={})
    group.describe(version)
    group.join("m3", t)
    group.beat("m1", 3, owned={t: kept})
    group.beat("m2", 3)
    group.beat("m3", 4)
    group.describe(version)
    group.beat("m2", -1)
    group.beat("m1", 3)
    group.beat("m3", 4)
    group.describe(version)
    for member in ("m1", "m3"):
        group.beat(member, -1)
    group.describe(version)
    s.call(DELETE_GROUPS, 2, {"groups_names": [group.name]})
    group.describe(version)


@same()
def test_many_members(s: Script, version: int) -> None:
    """Who gets which partition, through many changes, with both assignors."""
    t = s.topic("t", 15)  # in the order of Kafka's hash tables whatever their history
    for assignor in ("uniform", "range"):
        group = Group(s, 1, assignor)
        epochs = {}
        for number in range(12):
            member = f"member-{number}-{number * 7919}"
            answer = group.join(member, t, server_assignor=assignor)
            epochs[member] = answer.get("member_epoch")
        group.describe()
        for member in list(epochs)[::3]:
            group.beat(member, -1)
        group.describe()
        group.join("last", t)
        group.describe()


@same()
def test_mixed_subscriptions(s: Script, version: int) -> None:
    a, b = s.topic("a", 6), s.topic("b", 1)
    group = Group(s)
    group.join("m1", a)
    group.join("m2", a, b)
    group.join("m3", b)
    group.describe()
    group.beat("m1", 2, names=[a, b], owned={a: range(6)})
    group.describe()
    group.beat("m2", 3, names=[b])
    group.describe()


@same()
def test_epochs_and_fencing(s: Script, version: int) -> None:
    t = s.topic("t", 4)
    group = Group(s)
    group.beat("m1", 5)
    group.beat("m1", -1)
    group.join("m1", t)
    group.join("m2", t)
    kept = partitions(group.beat("m1", 2))
    group.beat("m1", 2, owned={t: kept})
    for epoch in (1, 2, 3, 4, 100):
        for owned in (None, {}, {t: kept}, {t: range(4)}):
            group.beat("m1", epoch, owned=owned)
    group.beat("m3", 3)
    group.beat("m3", -1)
    group.join("m1", t)
    group.beat("m1", 3, owned={t: kept}, names=[t], timeout=60_000)
    group.beat("m1", 3, owned={t: kept}, names=[t])
    group.describe()


@same((0, 1))
def test_invalid_requests(s: Script, version: int) -> None:
    t = s.topic("t")
    group = Group(s, version)
    sound: dict[str, Any] = {"names": [t], "owned": {}}
    group.beat("m", 0, **(sound | {"timeout": -1}))
    group.beat("m", 0, **(sound | {"owned": None}))
    group.beat("m", 0, **(sound | {"owned": {t: [0]}}))
    group.beat("m", 0, **(sound | {"names": None}))
    for text in ("", " "):
        for name in ("group_id", "instance_id", "rack_id", "server_assignor"):
            group.beat("m", 0, **(sound | {name: text}))
        for epoch in (-1, 1):
            group.beat(text, epoch)
    group.beat("m", -2)
    group.beat("m", -3)
    group.beat("m", 0, **(sound | {"server_assignor": "sticky"}))
    if version > 0:
        group.beat("", 0, **sound)
        group.beat("m", 0, owned={}, regex="(")
        group.beat("m", 0, owned={}, regex="(?<=a)b")
    group.beat("m", 0, **(sound | {"names": []}))
    group.beat("m", 1, server_assignor="nope")
    group.beat("m", 1, names=["no such topic"])
    group.describe()


@same()
def test_static_members(s: Script, version: int) -> None:
    t = s.topic("t", 4)
    group = Group(s)
    group.join("m1", t, instance_id="i1")
    group.join("m2", t, instance_id="i2")
    kept = partitions(group.beat("m1", 2, instance_id="i1"))
    group.beat("m1", 2, owned={t: kept}, instance_id="i1")
    group.beat("m2", 3, instance_id="i2")
    group.join("m3", t, instance_id="i1")
    group.beat("m3", 3, instance_id="i1")
    group.beat("m3", -2, instance_id="i1")
    group.beat("m3", -1, instance_id="i3")
    group.beat("m1", -2, instance_id="i1")
    group.describe()
    group.beat("m1", 3, instance_id="i1")
    group.join("m3", t, instance_id="i1")
    group.describe()
    group.beat("m1", 3, instance_id="i1")
    group.beat("m1", 3)
    group.beat("m3", 3, instance_id="i1", owned={t: kept})
    group.beat("m3", -2, instance_id="i1")
    group.join("m4", instance_id="i1")
    group.describe()
    group.beat("m4", 4, instance_id="i1", owned={})
    group.beat("m2", -1, instance_id="i2")
    group.describe()


@same()
def test_topics_come_and_grow(s: Script, version: int) -> None:
    t = s.topic("t", 2)
    group = Group(s)
    group.join("m1", t, s.name("later"))
    s.topic("later", 3)
    group.beat_until_assigned("m1", 2)
    body = {"name": t, "count": 4, "assignments": None}
    s.call(37, 3, {"topics": [body], "timeout": 10_000, "validate_only": False})
    group.beat_until_assigned("m1", 3)
    group.describe()


@same()
def test_regular_expressions(s: Script, version: int) -> None:
    s.topic("red-1", 4)
    s.topic("blue", 2)
    group = Group(s)
    group.beat("m1", 0, regex=s.prefix + "red-.*", owned={})
    group.beat_until_assigned("m1", 1)
    group.describe()
    group.beat("m2", 0, regex=s.prefix + "red-.*", owned={})
    group.describe()
    group.beat("m2", -1)
    group.beat("m1", -1)
    group.describe()


@same()
def test_commits(s: Script, version: int) -> None:
    """In which epochs a member may commit, and fetch what was committed."""
    t = s.topic("t", 4)
    group = Group(s)
    group.join("m1", t)
    group.join("m2", t)
    kept = partitions(group.beat("m1", 2))
    group.beat("m1", 2, owned={t: kept})
    group.beat("m2", 3)
    lost = [p for p in range(4) if p not in kept]

    def commit(member: str, epoch: int, partition: int, v: int = 9) -> None:
        part = {"partition_index": partition, "committed_offset": 7, "committed_metadata": ""}
        body = {
            "group_id": group.name, "member_id": member,
            "generation_id_or_member_epoch": epoch,
            "topics": [s.topic_field(t, v >= 10, "name") | {"partitions": [part]}],
        }  # fmt: skip
        s.call(COMMIT, v, body)

    for v in (8, 9, 10):
        for epoch in (-1, 1, 2, 3, 4):
            commit("m1", epoch, kept[0], v)
            commit("m1", epoch, lost[0], v)
        commit("m2", 2, lost[0], v)
        commit("nobody", 3, kept[0], v)
        commit("", -1, kept[0], v)
    for member, epoch in (("m1", 3), ("m1", 2), ("nobody", 3), (None, -1)):
        topics = [{"name": t, "partition_indexes": [*range(4)]}]
        asked = {"group_id": group.name, "member_id": member, "member_epoch": epoch,
                 "topics": topics}  # fmt: skip
        s.call(FETCH_OFFSETS, 9, {"groups": [asked], "require_stable": True})
    s.call(DELETE_GROUPS, 2, {"groups_names": [group.name]})
    group.beat("m1", -1)
    group.beat("m2", -1)
    commit("", -1, 1)


@same()
def test_leaving_by_the_classic_request(s: Script, version: int) -> None:
    """An administrator removes members, of whichever protocol."""
    t = s.topic("t", 4)
    group = Group(s)
    group.join("m1", t, instance_id="i1")
    group.join("m2", t)
    members = [("", "i1"), ("m2", None), ("m3", None), ("m1", "i2")]
    leaving = [{"member_id": m, "group_instance_id": i, "reason": None} for m, i in members]
    s.call(LEAVE, 5, {"group_id": group.name, "members": leaving})
    group.describe()


@same()
def test_classic_requests_to_a_consumer_group(s: Script, version: int) -> None:
    """What members of the classic protocol are told before they are members."""
    t = s.topic("t", 2)
    group = Group(s)
    group.join("m1", t)
    sync = {"group_id": group.name, "generation_id": 2, "member_id": "m1",
            "protocol_type": "consumer", "protocol_name": "range", "assignments": []}  # fmt: skip
    for member in ("m1", "m2"):
        beat = {"group_id": group.name, "generation_id": 2, "member_id": member}
        s.call(CLASSIC_BEAT, 4, beat)
        s.call(SYNC, 5, sync | {"member_id": member})
    join = {"group_id": group.name, "session_timeout": 45_000, "rebalance_timeout": 60_000,
            "member_id": "", "protocol_type": "consumer", "protocols": []}  # fmt: skip
    s.call(JOIN, 9, join)
    s.call(JOIN, 9, join | {"protocol_type": "connect"})
    group.describe()


@same()
def test_group_settings(s: Script, version: int) -> None:
    """The group's own heartbeat interval, within the broker's bounds."""
    group = Group(s)

    def alter(**values: str) -> None:
        configs = [
            {"name": key.replace("_", "."), "config_operation": SET, "value": value}
            for key, value in values.items()
        ]
        resource = {"resource_type": GROUP, "resource_name": group.name, "configs": configs}
        s.call(44, 1, {"resources": [resource], "validate_only": False})

    alter(consumer_heartbeat_interval_ms="5000")
    alter(consumer_heartbeat_interval_ms="100")
    alter(consumer_session_timeout_ms="1")
    alter(no_such_key="1")

    def interval() -> int:
        answer = s.connection.call(HEARTBEAT, 1, group.body("m", 0, names=[], owned={}))
        return int(answer["heartbeat_interval"])

    # Kafka takes settings over some time after it has answered.
    wait_for("the group's settings count", lambda: interval() == 5000, 15)


@same((0, 1))
def test_describing(s: Script, version: int) -> None:
    s.until_coordinator(0)
    names = ["", s.name("none")]
    s.call(DESCRIBE, version, {"group_ids": names, "include_authorized_operations": False})


@same()
def test_listing(s: Script, version: int) -> None:
    """A consumer group among all groups, and what else may be done with it."""
    t = s.topic("t", 2)
    group = Group(s)

    def mine(answer: Answer) -> Any:
        return [one for one in answer["groups"] if one["group_id"] == group.name]

    def list_groups() -> None:
        for states in ([], ["Stable"], ["empty"], ["Assigning", "reconciling"]):
            for kinds in ([], ["consumer"], ["Classic"]):
                body = {"states_filter": states, "types_filter": kinds}
                s.call(LIST, 5, body, keep=mine)

    group.join("m1", t)
    list_groups()
    group.join("m2", t)
    list_groups()
    s.call(DESCRIBE_CLASSIC, 6, {"groups": [group.name], "include_authorized_operations": False})
    s.call(DELETE_GROUPS, 2, {"groups_names": [group.name]})
    topics = [{"name": t, "partitions": [{"partition_index": 0}]}]
    s.call(DELETE_OFFSETS, 0, {"group_id": group.name, "topics": topics})
    group.beat("m1", -1)
    group.beat("m2", -1)
    list_groups()
    s.call(DELETE_GROUPS, 2, {"groups_names": [group.name]})
    list_groups()
