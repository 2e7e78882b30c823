"""Server-side assignors and the metadata hash: Kafka's own classes beside ours."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from kbroker.group.consumer.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec
from kbroker.group.consumer.metadata_hash import MetadataHashes
from kbroker.group.order import string_order
from kbroker.group.topics import TopicInfo
from kbroker.uuids import parse_uuid, uuid_text
from tests.support.tool_jvm import program_output
from tests.support.topics import FakeTopics

HISTORIES = 300


def kafka(command: str, path: Path, cases: list[Any]) -> list[Any]:
    """What Kafka's classes make of each case."""
    path.write_text(json.dumps(cases))
    output = program_output("Assignors", command, str(path))
    answers: list[Any] = json.loads(output.splitlines()[-1])
    return answers


class History:
    """A group whose members and subscriptions change, and who is assigned again after each."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen
        self.name = chosen.choice(["uniform", "uniform", "range"])
        sizes = chosen.choice([[1, 2, 3], [5, 12, 13, 40], [100]])
        count = chosen.choice([1, 1, 2, 3, 8])
        self.topics = {chosen.randbytes(16): chosen.choice(sizes) for _ in range(count)}
        self.mixed = chosen.random() < 0.5
        self.members: dict[str, MemberSpec] = {}
        for _ in range(chosen.choice([1, 2, 3, 7, 30])):
            self.join()

    def subscription(self) -> tuple[bytes, ...]:
        every = tuple(self.topics)
        return tuple(t for t in every if self.chosen.random() < 0.6) if self.mixed else every

    def join(self) -> None:
        member_id = uuid_text(self.chosen.randbytes(16))
        instance = f"i{len(self.members)}" if self.chosen.random() < 0.2 else None
        self.members[member_id] = MemberSpec(self.subscription(), {}, instance)

    def change(self) -> None:
        what = self.chosen.randrange(4)
        if what == 0 and len(self.members) > 1:
            del self.members[self.chosen.choice(list(self.members))]
        elif what == 1:
            self.topics[self.chosen.choice(list(self.topics))] += self.chosen.choice([1, 5])
        elif what == 2 and self.mixed:
            member_id = self.chosen.choice(list(self.members))
            changed = self.members[member_id]._replace(topic_ids=self.subscription())
            self.members[member_id] = changed
        else:
            self.join()

    def spec(self) -> GroupSpec:
        owners: dict[bytes, dict[int, str]] = {}
        for member_id, member in self.members.items():
            for topic_id, partitions in member.assignment.items():
                owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))
        members = {one: self.members[one] for one in string_order(list(self.members))}
        return GroupSpec(members, not self.mixed, owners, self.topics)

    def case(self) -> dict[str, Any]:
        return {
            "assignor": self.name,
            "homogeneous": not self.mixed,
            "topics": {uuid_text(t): count for t, count in self.topics.items()},
            "members": [
                {
                    "id": member_id,
                    "instance": member.instance_id,
                    "topics": [uuid_text(t) for t in member.topic_ids],
                    "assignment": readable(member.assignment),
                }
                for member_id, member in self.members.items()
            ],
        }

    def assign(self) -> dict[str, Assignment]:
        given = ASSIGNORS[self.name](self.spec())
        for member_id, member in self.members.items():
            self.members[member_id] = member._replace(assignment=given.get(member_id, {}))
        return given


def readable(assignment: Assignment) -> dict[str, list[int]]:
    return {uuid_text(t): sorted(partitions) for t, partitions in assignment.items() if partitions}


def test_assignments_are_kafkas(tmp_path: Path) -> None:
    chosen = random.Random(848)
    cases, ours = [], []
    for _ in range(HISTORIES):
        history = History(chosen)
        for _ in range(chosen.choice([1, 2, 6])):
            cases.append(history.case())
            given = history.assign()
            ours.append({member_id: readable(one) for member_id, one in given.items()})
            history.change()
    theirs = kafka("assign", tmp_path / "groups.json", cases)
    for case, one, other in zip(cases, theirs, ours, strict=True):
        assert one == other, json.dumps(case)


def test_hashes_are_kafkas(tmp_path: Path) -> None:
    chosen = random.Random(1101)
    names = ["a", "topic-1", "x" * 249, "flights.2013", "_under"]
    racks = ["", "r1", "eu-west-1a", "räck", "\U0001f600", "r" * 300]
    cases = []
    for _ in range(200):
        cases.append({
            uuid_text(chosen.randbytes(16)): {
                "name": name,
                "racks": [
                    chosen.sample(racks, chosen.choice([0, 1, 2]))
                    for _ in range(chosen.choice([1, 3, 50]))
                ],
            }
            for name in chosen.sample(names, chosen.choice([1, 2, 5]))
        })  # fmt: skip
    ours = []
    for case in cases:
        infos = [
            TopicInfo(told["name"], parse_uuid(text), len(racks), [*map(frozenset, racks)])
            for text, told in case.items()
            for racks in [told["racks"]]
        ]
        topics = FakeTopics(*infos)
        ours.append(MetadataHashes(topics).of_group([*topics.names(), "is-not-there"]))
    assert kafka("hash", tmp_path / "topics.json", [{}, *cases]) == [0, *ours]
