"""How the rooms of the two protocols meet in a group (KIP-848, `group.consumer.migration.policy`).

Upgrade: a member of the new protocol joins a classic group that is not empty. The consumer room
reads the group's `ClassicState`, and writes its tombstone and the records of the consumer group;
after their replay it calls `upgraded`. Downgrade: the last member of the new protocol leaves. The
consumer room writes its tombstones and a GroupMetadata record, whose replay makes the classic
group, and then calls `downgraded`. In between, classic requests to a consumer group that has
members go from the classic room's entry points to `shard.consumer`. An empty group of the other
kind is deleted (`Group.tombstones`) and begun anew by the room that wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kbroker.group.classic.requests import HeartbeatRequest, JoinRequest, SyncRequest
    from kbroker.group.group import Group
    from kbroker.group.outcome import Now, Outcome


class Client(NamedTuple):
    """Who sent a request, and in which version."""

    version: int
    client_id: str
    client_host: str
    """As Java prints an address: "/127.0.0.1"."""
    sees: Callable[[str], bool] | None = None
    """Whether it may describe a topic; None: all of them."""


class ClassicMember(NamedTuple):
    """A member as the classic protocol knows it; protocols in the order of its preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class ClassicState(NamedTuple):
    """A classic group at a moment."""

    generation: int
    protocol_type: str | None
    protocol_name: str | None
    members: Sequence[ClassicMember]


class ClassicSide(Protocol):
    """What the consumer room asks of the classic room; it sets itself as `shard.classic`."""

    def state_of(self, group: Group) -> ClassicState:
        """The group's generation, protocol and members."""

    def upgraded(self, group: Group) -> None:
        """The group is a consumer group now: answers parked joins and syncs with
        REBALANCE_IN_PROGRESS, and forgets the group's timers."""

    def downgraded(
        self, group_id: str, state: ClassicState, rebalance: str | None, now: Now
    ) -> Outcome | None:
        """The group, replayed from its record, is classic now: gives its members back all their
        protocols, starts their session timers and, where a reason is given, a rebalance."""


class ConsumerSide(Protocol):
    """Where classic members of a consumer group are served; sets itself as `shard.consumer`.

    Requests are those of kbroker.group.classic; answers are in the outcomes, whole. What is
    refused is raised as ClientError. Group id, session timeout and version were judged before.
    """

    def classic_join(
        self, group: Group, request: JoinRequest, client: Client, now: Now
    ) -> Outcome: ...

    def classic_sync(self, group: Group, request: SyncRequest, now: Now) -> Outcome: ...

    def classic_heartbeat(self, group: Group, request: HeartbeatRequest, now: Now) -> Outcome: ...

    def classic_leave(
        self, group: Group, members: Sequence[tuple[str, str | None]], now: Now
    ) -> Outcome:
        """(member id, instance id) of each that leaves; answered in the same order."""
