"""Client-side assignors and what members tell each other: Kafka's own classes beside ours."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.group.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
)
from kbroker.client.group.embedded import (
    Reader,
    read_assignment,
    read_subscription,
    write_subscription,
)
from kbroker.client.partitions import TopicPartition
from tests.support.tool_jvm import program_output

HISTORIES = 150
Given = Mapping[str, Sequence[TopicPartition]]


class History:
    """A group that changes, each of its members with an assignor of its own."""

    def __init__(self, chosen: random.Random, kind: type[Assignor]) -> None:
        self.chosen = chosen
        self.kind = kind
        self.mixed = chosen.random() < 0.5
        racks = chosen.choice([[], ["a"], ["a", "b", "c"]])
        self.racks = racks
        sizes = chosen.choice([[1, 2, 3], [4], [6, 6, 12, 30]])
        self.topics = {
            f"t{at}": [self.some_racks() for _ in range(chosen.choice(sizes))]
            for at in range(chosen.choice([1, 2, 3, 7]))
        }
        self.members: dict[str, tuple[Subscription, Assignor]] = {}
        self.generation = 0
        for _ in range(chosen.choice([1, 2, 3, 8])):
            self.join()

    def some_racks(self) -> frozenset[str]:
        return frozenset(self.chosen.sample(self.racks, self.chosen.randint(0, len(self.racks))))

    def wanted(self) -> tuple[str, ...]:
        """At least one topic: Kafka's sticky assignor may serve those that want none."""
        every = [*self.topics, "not-there"]
        some = tuple(t for t in every if self.chosen.random() < 0.6) if self.mixed else (*every,)
        return some or (every[0],)

    def join(self) -> None:
        instance = f"i{len(self.members)}" if self.chosen.random() < 0.2 else None
        rack = self.chosen.choice([*self.racks, None])
        member = Subscription(self.wanted(), None, (), -1, rack, instance)
        self.members[f"m-{self.chosen.randbytes(4).hex()}"] = (member, self.kind())

    def change(self) -> None:
        what = self.chosen.randrange(4)
        if what == 0 and len(self.members) > 1:
            del self.members[self.chosen.choice(list(self.members))]
        elif what == 1:
            self.topics[self.chosen.choice(list(self.topics))].append(self.some_racks())
        elif what == 2 and self.mixed:
            member_id = self.chosen.choice(list(self.members))
            member, assignor = self.members[member_id]
            self.members[member_id] = (member._replace(topics=self.wanted()), assignor)
        else:
            self.join()

    def subscriptions(self) -> dict[str, Subscription]:
        return {
            member_id: member._replace(user_data=assignor.user_data(member.topics))
            for member_id, (member, assignor) in self.members.items()
        }

    def case(self) -> dict[str, Any]:
        return {
            "assignor": self.kind.name,
            "topics": {name: [sorted(one) for one in racks] for name, racks in self.topics.items()},
            "members": {
                member_id: {"bytes": text(write_subscription(one)), "instance": one.instance_id}
                for member_id, one in self.subscriptions().items()
            },
        }

    def assign(self) -> Mapping[str, Assignment]:
        given = self.kind().assign(self.topics, self.subscriptions())
        self.generation += 1
        for member_id, (member, assignor) in self.members.items():
            assignor.on_assignment(given[member_id], self.generation)
            owned = given[member_id].partitions if self.kind is CooperativeStickyAssignor else ()
            changed = member._replace(owned=owned, generation=self.generation)
            self.members[member_id] = (changed, assignor)
        return given


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kafka(path: Path, cases: Sequence[Any]) -> list[Any]:
    """What Kafka's classes make of each case."""
    path.write_text(json.dumps(cases))
    output = program_output("ClientAssignors", str(path))
    answers: list[Any] = json.loads(output.splitlines()[-1])
    return answers


def play(
    kind: type[Assignor], path: Path
) -> list[tuple[dict[str, Any], dict[str, Subscription], Given, Given]]:
    """Histories, each step assigned by both: (case, members, ours, theirs). Subscriptions have to
    be read and written by Kafka as they were here."""
    chosen = random.Random(kind.name)
    cases, steps = [], []
    for _ in range(HISTORIES):
        history = History(chosen, kind)
        for _ in range(chosen.choice([1, 3, 6])):
            cases.append(history.case())
            members = history.subscriptions()
            steps.append((members, partitions(history.assign())))
            history.change()
    played = []
    for case, (members, ours), answer in zip(cases, steps, kafka(path, cases), strict=True):
        for member_id, told in case["members"].items():
            assert answer["subscriptions"][member_id] == told["bytes"]
            again = read_subscription(base64.b64decode(told["bytes"]), told["instance"])
            assert again == members[member_id]._replace(topics=(*sorted(again.topics),),
                                                        owned=(*sorted(again.owned),))  # fmt: skip
        theirs = {
            member_id: read_assignment(base64.b64decode(one))
            for member_id, one in answer["assignments"].items()
        }
        played.append((case, members, ours, partitions(theirs)))
    return played


def partitions(given: Mapping[str, Assignment]) -> Given:
    return {member_id: sorted(one.partitions) for member_id, one in given.items()}


@pytest.mark.parametrize("kind", [RangeAssignor, RoundRobinAssignor])
def test_assignments_are_kafkas(kind: type[Assignor], tmp_path: Path) -> None:
    for _, members, ours, theirs in play(kind, tmp_path / "groups.json"):
        assert ours == theirs, members


@pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
def test_sticky_is_as_even_and_as_sticky(kind: type[Assignor], tmp_path: Path) -> None:
    """No case is less even than Kafka's; over all cases no more partitions move, but for a few:
    which members are asked to give is chance in both. The same holds for partitions that have no
    replica in the rack of who gets them."""
    moved, apart = [0, 0], [0, 0]
    for case, members, ours, theirs in play(kind, tmp_path / "groups.json"):
        if kind is StickyAssignor:
            assert set().union(*ours.values()) == set().union(*theirs.values())
            assert spread(ours) <= spread(theirs), (members, ours, theirs)
        for at, given in enumerate((ours, theirs)):
            every = [one for found in given.values() for one in found]
            assert len(every) == len(set(every))
            moved[at] += moves(members, given)
            apart[at] += strangers(case, members, given)
    assert moved[0] <= moved[1] * 1.02, moved
    if kind is StickyAssignor:  # else what is on its way belongs to nobody, and more is in Kafka's
        assert apart[0] <= apart[1] * 1.02, apart


def strangers(
    case: Mapping[str, Any], members: Mapping[str, Subscription], given: Given
) -> int:
    """Partitions far from the members that got them."""
    racks = {member_id: one.rack for member_id, one in members.items()}
    return sum(
        racks[member_id] not in case["topics"][one.topic][one.partition]
        for member_id, found in given.items()
        for one in found
        if racks[member_id]
    )


def spread(given: Given) -> int:
    """Sum of the differences between all pairs of members, Kafka's measure of balance."""
    sizes = [len(found) for found in given.values()]
    return sum(abs(one - other) for one in sizes for other in sizes) // 2


def moves(members: Mapping[str, Subscription], given: Given) -> int:
    """Partitions that members have to give up though they still want them."""
    lost = 0
    for member_id, member in members.items():
        lost += len(
            {one for one in had(member) if one.topic in member.topics} - {*given[member_id]}
        )
    return lost


def had(member: Subscription) -> Sequence[TopicPartition]:
    if member.owned or not member.user_data or len(member.user_data) <= 4:
        return member.owned
    return Reader(member.user_data, "user data").partitions()
