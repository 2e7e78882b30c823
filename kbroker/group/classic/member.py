"""A member of a classic group."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kbroker.errors import BugError
from kbroker.ext.pulses import Pulse
from kbroker.group.classic.requests import Protocols
from kbroker.group.outcome import Reply
from kbroker.group.timers import Action
from kbroker.group.unwritten import bytes_of, metadata_bytes


class Identity(NamedTuple):
    """What does not change in a member's life; the host as Java writes an address."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class Member:
    """A member. `timer` is the name of its session timer, which timers may know for a while after
    the member has gone, and so not the member itself with its megabytes of metadata.

    `is_new`: it waits for the answer to its first JoinGroup, and cannot send heartbeats, as it
    does not know its id. `join` and `sync` are the parked answers. `pulse`: by which the data plane
    answers its heartbeats, from the first one on. `held`: its bytes that no record holds.
    """

    __slots__ = (
        "assignment", "expire", "held", "identity", "is_new", "join", "member_id", "protocols",
        "pulse", "rebalance_timeout_ms", "session_timeout_ms", "sync", "timer",
    )  # fmt: skip

    def __init__(
        self,
        identity: Identity,
        protocols: Protocols,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        assignment: bytes = b"",
    ) -> None:
        self.identity = identity
        self.member_id = identity.member_id
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.assignment = assignment
        self.is_new = False
        self.join: Reply | None = None
        self.sync: Reply | None = None
        self.expire: Action | None = None
        self.pulse: Pulse | None = None
        self.timer = object()
        self.held = 0

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, instance={self.instance_id!r})"

    @property
    def instance_id(self) -> str | None:
        """`group.instance.id` of a static member."""
        return self.identity.instance_id

    @property
    def waits(self) -> bool:
        """An answer of it is parked, so that its silence says nothing."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def left_ms(self, now_ms: int) -> int:
        """What is left of its session by heartbeats that the data plane has answered; 0: nothing,
        and it answers no more."""
        return 0 if self.pulse is None else self.pulse.left_ms(self.session_timeout_ms, now_ms)

    def end(self) -> None:
        """It is no member any more: its heartbeats are refused from now on, and `expire`, which
        refers back to it, does not keep it until the next full garbage collection."""
        self.expire = None
        if self.pulse is not None:
            self.pulse.end()
            self.pulse = None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member sent with a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise BugError(f"member {self.member_id} does not support protocol {protocol}")

    def all_bytes(self) -> int:
        """What it holds while no record holds anything of it."""
        return bytes_of(self.protocols, self.identity)

    def unwritten_bytes(self, written: str | None) -> int:
        """What is not in a record that holds what it sent with that protocol."""
        return metadata_bytes(one for one in self.protocols if one[0] != written)

    def protocol_names(self) -> frozenset[str]:
        """The protocols that it supports."""
        return frozenset(name for name, _ in self.protocols)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it prefers."""
        return next(name for name, _ in self.protocols if name in candidates)

    def renamed(self, member_id: str) -> Member:
        """The same static member under a new id, with nothing parked and no timer."""
        return Member(
            self.identity._replace(member_id=member_id),
            self.protocols,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.assignment,
        )
