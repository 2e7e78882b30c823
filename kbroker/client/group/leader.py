"""What the leader of a classic group does: it assigns, and watches the topics of all members.

Belongs to the polling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbroker.client.group.assignors import COOPERATIVE, Assignment, Assignor, Subscription
from kbroker.client.group.embedded import read_subscription, write_assignment
from kbroker.client.group.room import Room, log
from kbroker.client.partitions import TopicPartition

__all__ = ["Leader"]

Made = list[dict[str, Any]] | Exception


class Leader:
    """Idle while another member leads."""

    def __init__(self, room: Room, protocol: str) -> None:
        self._room = room
        self._protocol = protocol
        self._leads = False
        self._wanted: frozenset[str] = frozenset()
        self._snapshot: Mapping[str, Any] | None = None

    def resign(self) -> None:
        """A rebalance begins: who leads next is open. What this member wants itself is watched."""
        self._leads = False
        self._snapshot = None

    def outdated(self) -> bool:
        """The assignment was made of topics that have changed since."""
        return self._leads and self._snapshot is not None and self._snapshot != self._shapes()

    def _shapes(self) -> Mapping[str, Any]:
        known = self._room.topics.known
        return {name: known[name].racks for name in self._wanted if name in known}

    def lead(self, assignor: Assignor, joined: Any, done: Callable[[Made], None]) -> None:
        """Makes the assignments of a JoinGroup answer when the topics of all are known."""
        try:
            members = {
                str(one.member_id): read_subscription(bytes(one.metadata), one.group_instance_id)
                for one in joined.members
            }
        except Exception as error:
            done(error)
            return
        self._wanted = frozenset(topic for one in members.values() for topic in one.topics)

        def known() -> None:
            done(self._make(assignor, members, bool(getattr(joined, "skip_assignment", False))))

        self._leads = True
        if self._room.subscribed.pattern is None:
            self._room.topics.want(self._wanted)
        self._room.topics.after(known)

    def _make(self, assignor: Assignor, members: Mapping[str, Subscription], skip: bool) -> Made:
        topics = self._snapshot = self._shapes()
        if skip:
            return []
        try:
            given = dict(assignor.assign(topics, members))
            missing = members.keys() - given.keys()
            given.update(dict.fromkeys(missing, Assignment()))
            if self._protocol == COOPERATIVE and assignor.name != "cooperative-sticky":
                _check_cooperative(assignor.name, members, given)
            return [
                {"member_id": member_id, "assignment": write_assignment(one)}
                for member_id, one in given.items()
                if member_id in members
            ]
        except Exception as error:
            log.exception("Group %s: assignor %s", self._room.settings.group_id, assignor.name)
            return error


def _check_cooperative(
    name: str, members: Mapping[str, Subscription], given: Mapping[str, Assignment]
) -> None:
    """No partition may go to another member while its owner has not let go of it."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, member in members.items():
        owned, new = frozenset(member.owned), frozenset(given[member_id].partitions)
        added |= new - owned
        revoked |= owned - new
    both = ", ".join(str(one) for one in sorted(added & revoked))
    if both:
        raise ValueError(f"assignor {name!r} is cooperative but gave away what others own: {both}")
