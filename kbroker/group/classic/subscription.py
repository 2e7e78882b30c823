"""The topics in the metadata of the "consumer" protocol type (ConsumerProtocolSubscription).

The broker reads of it what version 0 has and every later version begins with: version (int16),
topics (array of string), user data (bytes). What a client sends there is its own affair; where it
cannot be read the group's subscription is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

#: Of one group, every member's counted: reading so many takes the control thread 0.1 s.
_TOPICS_MAX: Final = 500_000
_TOPICS_AT: Final = 6  # behind the version and the count


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that are subscribed to; None where a subscription cannot be read, or where all
    together name more than a group's members can mean."""
    topics: set[str] = set()
    left = _TOPICS_MAX
    try:
        for subscription in subscriptions:
            left -= _count(subscription)
            if left < 0:
                return None
            topics.update(_topics(subscription))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _count(subscription: bytes) -> int:
    _, count = struct.unpack_from(">hi", subscription)
    if count < 0 or count * 2 > len(subscription) - _TOPICS_AT:
        raise ValueError("not a subscription")
    return int(count)


def _topics(subscription: bytes) -> Iterable[str]:
    at = _TOPICS_AT
    for _ in range(_count(subscription)):
        (length,) = struct.unpack_from(">h", subscription, at)
        at += 2
        if not 0 <= length <= len(subscription) - at:
            raise ValueError("a topic name runs out of the subscription")
        yield subscription[at : at + length].decode(errors="replace")
        at += length
    (length,) = struct.unpack_from(">i", subscription, at)
    if length > len(subscription) - at - 4:
        raise ValueError("the user data run out of the subscription")
