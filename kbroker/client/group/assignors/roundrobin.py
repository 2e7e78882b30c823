"""The `roundrobin` assignor: all partitions of all topics in their order, dealt like cards."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.client.group.assignors.spec import (
    Assignment,
    Assignor,
    Subscription,
    Topics,
    java_order,
    member_order,
)
from kbroker.client.partitions import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor(Assignor):
    """A member that does not subscribe to a topic is passed over."""

    name = "roundrobin"

    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        order = member_order(members)
        subscribed = {member_id: frozenset(members[member_id].topics) for member_id in order}
        given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in order}
        at = 0
        for topic in sorted(frozenset().union(*subscribed.values()), key=java_order):
            for index in range(len(topics.get(topic, ()))):
                while topic not in subscribed[order[at % len(order)]]:
                    at += 1
                given[order[at % len(order)]].append(TopicPartition(topic, index))
                at += 1
        return {member_id: Assignment(tuple(found)) for member_id, found in given.items()}
