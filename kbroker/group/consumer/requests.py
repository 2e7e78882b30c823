"""What a member of the consumer protocol asks for.

Apart from the room that answers it, so that a broker without groups starts without that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kbroker.group.consumer.reconcile import Owned


class Heartbeat(NamedTuple):
    """A request; None (-1 for the timeout) where it says "as before"."""

    group_id: str
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: Collection[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Owned | None = None
