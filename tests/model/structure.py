"""What the coordinator's state must look like after every step, and what of it a log gives back."""

from __future__ import annotations

from typing import Any

from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.committed import unpack
from kbroker.group.consumer.group import ConsumerGroup
from kbroker.group.group import Group
from kbroker.group.rooms import Rooms
from kbroker.group.settings import GroupSettings
from kbroker.group.shard import Shard
from tests.model.oracle import BrokenPromiseError
from tests.model.world import World, compacted
from tests.support.coordinator import Coordinator


def check(condition: object, *told: object) -> None:
    """A rule of the state."""
    if not condition:
        raise BrokenPromiseError(" ".join(map(str, told)))


def check_group(shard: Shard, group: Group) -> None:
    """All that can be said of one group."""
    if isinstance(group, ClassicGroup):
        check_classic(shard, group)
    elif isinstance(group, ConsumerGroup):
        check_consumer(group)


def check_classic(shard: Shard, group: ClassicGroup) -> None:
    """Members, parked answers and timers fit the state and each other."""
    members = group.members
    joins = sum(member.join is not None for member in members.values())
    syncs = sum(member.sync is not None for member in members.values())
    check(group.joined == joins, group, "counts", group.joined, "joins of", joins)
    check(not joins or group.state is State.PREPARING, group, "parks joins")
    check(not syncs or group.state is State.COMPLETING, group, "parks syncs")
    check(group.state is not State.EMPTY or not members, group, "has members")
    if group.state in {State.STABLE, State.COMPLETING}:
        check(members, group, "has no members")
    check(bool(members) == (group.leader in members), group, "is led by", group.leader)
    static = {m.instance_id: name for name, m in members.items() if m.instance_id is not None}
    check(group.static == static, group, "knows", group.static, "not", static)
    check(group.unsynced <= members.keys(), group, "waits for the sync of strangers")
    if group.state is State.STABLE:
        for member in members.values():
            unwritten = member.unwritten_bytes(group.protocol_name)
            check(member.held == unwritten, member, "counts", member.held, "of", unwritten)
    timers = shard.timers
    for member in members.values():
        check(member.timer in timers or member.waits, member, "will never expire")
    for name in group.pending:
        check(("classic-pending", group.group_id, name) in timers, name, "will be pending forever")
        check(name not in members, name, "is pending and a member")
    collecting = ("classic-join", group.group_id) in timers
    check(collecting == (group.state is State.PREPARING), group, "join timer", collecting)
    if group.state is State.COMPLETING:
        check(("classic-sync", group.group_id) in timers, group, "waits for syncs forever")


def check_consumer(group: ConsumerGroup) -> None:
    """No partition is two members', and nobody is ahead of the group."""
    members = group.members.values()
    for member in members:
        if member.epoch > group.epoch:
            check(False, member.member_id, member.epoch, "is ahead of", group.epoch)
    owned = [
        (topic_id, partition)
        for member in members
        for held in (member.assigned, member.revoking)
        for topic_id, partitions in held.items()
        for partition in partitions
    ]
    check(len(owned) == len(set(owned)), group.group_id, "has partitions that two own", owned)
    meant = [
        (topic_id, partition)
        for target in group.target.values()
        for topic_id, partitions in target.items()
        for partition in partitions
    ]
    check(len(meant) == len(set(meant)), group.group_id, "means partitions for two", meant)


def check_replay(world: World) -> None:
    """A fresh coordinator on the same log, as it is and compacted, has the same state."""
    live = dump(world.shard, world.rooms[0], world.unsure)
    groups = [g for g in world.shard.groups.values() if isinstance(g, ClassicGroup)]
    held = sum(member.held for group in groups for member in group.members.values())
    held += sum(sum(group.pending.values()) for group in groups)
    counted = world.shard.unwritten.bytes
    check(held == counted, "members hold", held, "unwritten bytes, counted are", counted)
    settings = GroupSettings()  # a group that is too large would rebalance at once
    for log in (world.log, compacted(world.log)):
        fresh = Coordinator(
            Rooms, settings=settings, topics=world.topics, now_ms=world.now_ms, log=log
        )
        loaded = dump(fresh.shard, fresh.rooms[0], world.unsure)
        for name in live.keys() | loaded.keys():
            mine, theirs = live.get(name), loaded.get(name)
            if mine is not REBALANCING:
                check(mine == theirs, name, "is live", mine, "and loaded", theirs)


def check_shadow(world: World) -> None:
    """What was written since the last look gives the state of the groups that it is about."""
    shadow = world.shadow
    for group_id in shadow.touched:
        mine = dump_one(world.shard, world.rooms[0], group_id)
        theirs = dump_one(shadow.shard, shadow.rooms, group_id)
        check(mine[1] == theirs[1], "offsets of", group_id, mine[1], "are replayed as", theirs[1])
        if mine[0] is not REBALANCING and group_id not in world.unsure:
            check(mine[0] == theirs[0], group_id, "is", mine[0], "and replayed", theirs[0])
    shadow.touched.clear()


REBALANCING = "between two generations: only memory knows"


def dump(shard: Shard, rooms: Rooms, unsure: set[str]) -> dict[str, Any]:
    """The state that a restart must find again, in a form that can be compared.

    Of `unsure` groups the log is behind, because it refused a record.
    """
    found: dict[str, Any] = {
        group_id: dump_group(group)
        for group_id, group in shard.groups.items()
        if group_id not in unsure
    }
    for group_id in list(rooms.offsets.committed.groups()):
        found[f"offsets of {group_id}"] = dump_offsets(rooms, group_id)
    return found


def dump_one(shard: Shard, rooms: Rooms, group_id: str) -> tuple[Any, dict[Any, Any]]:
    """A group, None where there is none, and its offsets."""
    group = shard.groups.get(group_id)
    return None if group is None else dump_group(group), dump_offsets(rooms, group_id)


def dump_offsets(rooms: Rooms, group_id: str) -> dict[tuple[str, int], Any]:
    """What a group has committed."""
    return {
        (topic, partition): unpack(data)
        for topic, partitions in rooms.offsets.committed.topics(group_id).items()
        for partition, data in partitions.items()
    }


def dump_group(group: Group) -> Any:
    """A group; an empty one is the same whether it has a record or only offsets."""
    if isinstance(group, ClassicGroup):
        return dump_classic(group)
    if isinstance(group, ConsumerGroup):
        return dump_consumer(group)
    return ("classic", "Empty", 0, None, None, None, {})


def dump_classic(group: ClassicGroup) -> Any:
    """Generation and members; of their protocols the one that was selected."""
    if group.state not in {State.STABLE, State.EMPTY}:
        return REBALANCING
    name = group.protocol_name
    members = {
        member.member_id: (
            member.identity, member.metadata(name), member.assignment,
            member.session_timeout_ms, member.rebalance_timeout_ms,
        )
        for member in group.members.values()
    }  # fmt: skip
    since = group.changed_ms if group.is_empty() and group.protocol_type else None
    return ("classic", group.state_name, group.generation, group.protocol_type, group.leader,
            since, members)  # fmt: skip


def dump_consumer(group: ConsumerGroup) -> Any:
    """Everything that records tell."""
    return (
        "consumer", group.epoch, group.metadata_hash, group.assignment_epoch,
        dict(group.members), dict(group.static_members),
        {name: target for name, target in group.target.items() if target or name in group.members},
        group.owners, group.regexes, group.state_name,
    )  # fmt: skip
