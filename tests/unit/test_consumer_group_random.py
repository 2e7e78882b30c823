"""Groups under random members, topics, failures and restarts: what must hold after every step."""

from __future__ import annotations

import random

import pytest

from kbroker.errors import ClientError, ErrorCode
from tests.support.group_shard import GroupShard
from tests.support.rounds import scaled
from tests.support.topics import FakeTopics

TOPICS = ("a", "b", "c1", "c2")
REGEXES = ("c.*", "a|b", ".*")


class Client:
    """A member as a client is: it owns what it was told, and gives up what it is told to."""

    def __init__(self, chosen, number):
        self.chosen = chosen
        self.member_id = f"m{number}"
        self.number = number
        self.epoch = 0
        self.owned = {}
        self.calm = False
        self.instance_id = f"i{number}" if chosen.random() < 0.3 else None
        self.subscribe()

    def subscribe(self):
        by_regex = self.chosen.random() < 0.3
        names = self.chosen.sample(TOPICS, self.chosen.randrange(1, 4))
        self.fields = {
            "topic_names": [] if by_regex else names,
            "topic_regex": self.chosen.choice(REGEXES) if by_regex else "",
            "rebalance_timeout_ms": 30_000,
        }
        self.says_all = True

    def beat(self, shard):
        fields = {"instance_id": self.instance_id}
        if self.epoch == 0 or self.says_all or self.chosen.random() < 0.1:
            fields |= self.fields | {"owned": self.owned}
        elif self.chosen.random() < 0.7:
            fields["owned"] = self.owned
        try:
            answer = shard.beat(self.member_id, self.epoch, **fields)
        except ClientError as error:
            assert error.code in (
                ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNRELEASED_INSTANCE_ID,
            ), error  # fmt: skip
            self.epoch, self.owned, self.says_all = 0, {}, True
            return
        if answer.get("error_code") or (not self.calm and self.chosen.random() < 0.05):
            return  # refused, or the answer is lost
        self.says_all = False
        self.epoch = answer["member_epoch"]
        self.owned = answer.get("assignment", self.owned)

    def leave(self, shard):
        """For good, or as one that will be back under another member id."""
        back = self.instance_id is not None and self.chosen.random() < 0.5
        try:
            shard.beat(self.member_id, -2 if back else -1, instance_id=self.instance_id)
        except ClientError:
            back = False
        self.epoch, self.owned, self.says_all = 0, {}, True
        self.member_id += "'"
        return back


def check(shard):
    """No partition is with two members; what is counted is what is there."""
    group = shard.shard.groups.get("g")
    if group is None:
        return
    holders = {}
    for member in group.members.values():
        for partitions in (member.assigned, member.revoking):
            for topic_id, mine in partitions.items():
                for partition in mine:
                    assert (topic_id, partition) not in holders
                    holders[topic_id, partition] = member.epoch
    kept = {(t, p): e for t, mine in group._partition_epochs.items() for p, e in mine.items()}
    assert kept == holders
    assert group.static_members.keys() == {
        member.instance_id for member in group.members.values() if member.instance_id
    }


def state(group):
    return {
        name: vars(value) if name == "subscriptions" else value
        for name, value in vars(group).items()
        if name not in ("fresh", "resolved_at", "unresolved_ms")
    }


def settle(shard, clients):
    """Let everybody report until nothing changes; then every partition is with a subscriber."""
    for client in clients:
        client.calm = True
    quiet = 0
    while quiet < 10:
        written = len(shard.log)
        shard.advance(2_000)
        for client in clients:
            client.says_all = True
            client.beat(shard)
        quiet = quiet + 1 if len(shard.log) == written else 0
    group = shard.shard.groups.get("g")
    if group is None or not group.members:
        return
    assert group.state_name == "Stable", group.state_name
    owned = [(t, p) for member in group.members.values() for t, mine in member.assigned.items()
             for p in mine]  # fmt: skip
    wanted = {name for name in shard.topics.names() if group.subscribed_to(name)}
    assert sorted(owned) == sorted(
        (info.topic_id, p) for name in wanted for info in [shard.topics.by_name(name)]
        for p in range(info.partitions)
    )  # fmt: skip
    for client in clients:
        member = group.members[client.member_id]
        assert client.owned == {t: sorted(mine) for t, mine in member.assigned.items()}


def one_step(shard, chosen, clients, numbers):
    what = chosen.randrange(100)
    if what < 5 and len(clients) < 12:
        clients.append(Client(chosen, next(numbers)))
    elif what < 8 and clients:
        client = chosen.choice(clients)
        if not client.leave(shard):
            clients.remove(client)
    elif what < 10 and clients:
        clients.remove(chosen.choice(clients))  # dies
    elif what < 13 and clients:
        chosen.choice(clients).subscribe()
    elif what < 15:
        name = chosen.choice(TOPICS)
        info = shard.topics.by_name(name)
        if info is not None and chosen.random() < 0.3:
            shard.topics.remove(name)
        else:
            shard.topics.add(name, (info.partitions if info else 0) + chosen.randrange(1, 4))
    elif what < 17:
        shard.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif what < 18:
        group = shard.shard.groups.get("g")
        before = None if group is None else state(group)
        shard.restart()
        group = shard.shard.groups.get("g")
        assert (None if group is None else state(group)) == before
    elif what < 30:
        shard.advance(chosen.choice([500, 5_000, 20_000]))
    elif clients:
        chosen.choice(clients).beat(shard)


def run(seed, steps):
    chosen = random.Random(seed)
    assignor = chosen.choice(["uniform", "range"])
    shard = GroupShard(FakeTopics(), group_consumer_assignors=(assignor,))
    for name in TOPICS:
        shard.topics.add(name, chosen.randrange(1, 6))
    clients = []
    numbers = iter(range(10**9))
    for _ in range(steps):
        one_step(shard, chosen, clients, numbers)
        check(shard)
    shard.refuse = None
    shard.advance(60_000)
    settle(shard, clients)


@pytest.mark.parametrize("seed", range(40))
def test_random_groups(seed):
    run(seed, 300)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, scaled(1005, full=1020)))
def test_many_random_groups(seed):
    run(seed, 3_000)
