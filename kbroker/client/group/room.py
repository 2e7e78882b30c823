"""What the parts of a membership share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kbroker.client.errors import KafkaError
from kbroker.client.group.heart import Heart
from kbroker.client.group.metrics import GroupMetrics
from kbroker.client.group.port import Host
from kbroker.client.group.subscribed import Subscribed
from kbroker.client.group.topics import TopicsWatch
from kbroker.client.group.wire import Wire
from kbroker.client.partitions import TopicPartition
from kbroker.ext.client_clock import monotonic

__all__ = ["GroupMetadata", "GroupSettings", "Member", "Room", "log"]

log = logging.getLogger("kbroker.client.group")

NO_MEMBER = ""


class GroupMetadata(NamedTuple):
    """Who a member is now, as commits and transactions tell it.

    generation: of the classic protocol, or the member epoch; -1 outside of the group.
    """

    group_id: str
    generation: int = -1
    member_id: str = NO_MEMBER
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The part of a consumer's configuration that a group looks at, in seconds where it is time."""

    group_id: str
    instance_id: str | None
    rack: str | None
    session_timeout_ms: int
    heartbeat_interval_s: float
    poll_interval_ms: int
    retry_s: tuple[float, float]
    request_timeout_s: float
    auto_commit: bool
    auto_commit_interval_s: float
    remote_assignor: str | None
    exclude_internal: bool


@dataclass(slots=True)
class Room:
    """Belongs to the polling thread."""

    settings: GroupSettings
    host: Host
    wire: Wire
    subscribed: Subscribed
    topics: TopicsWatch
    clock: Callable[[], float] = monotonic
    heart: Heart | None = None
    first_error: list[BaseException] = field(default_factory=list)
    metrics: GroupMetrics = field(default_factory=GroupMetrics)

    def beat(self, heart: Heart | None) -> None:
        """Heartbeats of this kind from now on."""
        self.heart = heart
        self.wire.beat(heart)

    def tell(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        """Calls the listener; what it raises is kept and raised by poll at the end."""
        listener = self.subscribed.listener
        told: Collection[TopicPartition] = sorted(partitions)
        log.info("Group %s: %s %s", self.settings.group_id, name[3:], [*map(str, told)])
        if listener is None:
            return
        began_s = self.clock()
        try:
            getattr(listener, name)(told)
        except Exception as error:
            log.exception("Group %s: %s of the listener failed", self.settings.group_id, name)
            self.first_error.append(error)
        finally:
            self.metrics.callbacks[name].note(self.clock() - began_s)

    def raise_first(self) -> None:
        """What a listener or an assignor raised."""
        if self.first_error:
            first = self.first_error[0]
            self.first_error.clear()
            if isinstance(first, KafkaError):
                raise first
            raise KafkaError(f"a callback of the application failed: {first!r}") from first


class Member(Protocol):
    """A membership of either protocol; all calls on the polling thread."""

    @property
    def settled(self) -> bool:
        """A member of the group, with all that it is to have, as far as it knows."""

    def poll(self, now: float) -> float:
        """Goes on with whatever is due; seconds until the next call is."""

    def identity(self) -> GroupMetadata:
        """What commits are sent with. Raises RebalanceInProgressError or CommitFailedError where
        none would be taken."""

    def refreshed(self, sent: GroupMetadata) -> GroupMetadata:
        """The same member as it is when the request leaves; any thread."""

    def told(self) -> GroupMetadata:
        """What group_metadata() tells, at any time."""

    def commit_refused(self, code: int, sent: GroupMetadata) -> KafkaError:
        """The error to be raised for a commit that was refused because of who sent it."""

    def begin_anew(self) -> None:
        """Join anew, whatever state an exception has left this in."""

    def rejoin(self, reason: str) -> None:
        """Asks for a rebalance."""

    def leave(self, reason: str) -> None:
        """Gives everything up, callbacks included, and sends the request to leave."""
