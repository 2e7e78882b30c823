"""TxnOffsetCommit of members: which generation, epoch and member may commit in a transaction."""

from __future__ import annotations

from tests.differential.classic_members import members
from tests.differential.harness import Script, same
from tests.differential.test_consumer_groups import Group, partitions
from tests.differential.test_transactions import (
    ADD_OFFSETS,
    OFFSETS,
    commit_body,
    fetched,
    is_stable,
)
from tests.differential.transactional import Producer
from tests.support.waits import wait_for


class Committer:
    """A producer that commits offsets of one group, its transaction open."""

    def __init__(self, s: Script, version: int, group: str, topic: str) -> None:
        self.s, self.version, self.group, self.topic = s, version, group, topic
        self.producer = Producer(s, 2 if version >= 5 else 1)
        self.producer.init()
        self.begin()

    def begin(self) -> None:
        if self.version < 5:
            self.s.call(ADD_OFFSETS, 3, self.producer.who | {"group_id": self.group})

    def commit(self, offset: int, partition: int = 0, **fields: object) -> None:
        body = commit_body(self.producer, self.group, self.topic, offset, **fields)
        body["topics"][0]["partitions"][0]["partition_index"] = partition
        self.s.call(OFFSETS, self.version, body)

    def end(self, commit: bool) -> None:
        self.producer.end(commit)
        wait_for("the offset", lambda: is_stable(self.s, self.group, self.topic), 30)
        fetched(self.s, self.group, self.topic)


@same((3, 4, 5))
def test_members_of_a_classic_group(s: Script, version: int) -> None:
    """Of another generation, another member, another instance, of one that left."""
    topic = s.topic()
    with members(s, 9, {}) as (member,):
        member.stable()
        committer = Committer(s, version, s.name("g"), topic)
        mine = {"member_id": member.id, "generation_id": member.generation}
        committer.commit(1, **mine)
        committer.commit(2, **mine | {"generation_id": 0})
        committer.commit(3, **mine | {"generation_id": 7})
        committer.commit(4, **mine | {"generation_id": -1})
        committer.commit(5, **mine | {"member_id": "somebody"})
        committer.commit(6, **mine | {"member_id": ""})
        committer.commit(7, **mine | {"group_instance_id": "somebody"})
        committer.end(True)
        committer.begin()
        committer.commit(8)
        member.join()
        committer.commit(9, **mine)
        member.sync((member.id, b"mine"))
        mine["generation_id"] = member.generation
        committer.commit(10, **mine)
        committer.end(False)
        member.leave()
        committer.begin()
        committer.commit(11, **mine)
        committer.commit(12)
        committer.end(True)


@same((3, 5))
def test_static_members(s: Script, version: int) -> None:
    topic = s.topic()
    static = {"group_instance_id": "i"}
    with members(s, 9, static, static) as (member, heir):
        member.stable()
        committer = Committer(s, version, s.name("g"), topic)
        mine = {"member_id": member.id, "generation_id": member.generation} | static
        committer.commit(1, **mine)
        committer.commit(2, **mine | {"group_instance_id": "j"})
        committer.commit(3, **mine | {"member_id": "other"})
        heir.join()
        committer.commit(4, **mine)
        committer.commit(5, **mine | {"member_id": heir.id, "generation_id": heir.generation})
        committer.end(True)


@same((3, 5))
def test_members_of_a_consumer_group(s: Script, version: int) -> None:
    """A member's epoch, older ones that had the partition, and ones to come."""
    topic = s.topic("t", 4)
    group = Group(s)
    group.join("m1", topic)
    group.join("m2", topic)
    kept = partitions(group.beat("m1", 2))
    group.beat("m1", 2, owned={topic: kept})
    group.beat("m2", 3)
    (lost,) = [p for p in range(4) if p not in kept][:1]
    committer = Committer(s, version, group.name, topic)
    for epoch in (-1, 1, 2, 3, 4):
        for partition in (kept[0], lost):
            committer.commit(5, partition, member_id="m1", generation_id=epoch)
    committer.commit(6, lost, member_id="m2", generation_id=2)
    committer.commit(7, lost, member_id="nobody", generation_id=3)
    committer.commit(8, lost, member_id="", generation_id=3)
    committer.commit(9, lost)
    committer.end(True)
    group.beat("m1", -1)
    group.beat("m2", -1)
    committer.begin()
    committer.commit(10, member_id="m1", generation_id=2)
    committer.commit(11)
    committer.end(True)
