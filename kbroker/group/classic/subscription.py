"""The topics in the metadata of the "consumer" protocol type (ConsumerProtocolSubscription).

The broker reads of it what version 0 has and every later version begins with: version (int16),
topics (array of string), user data (bytes). What a client sends there is its own affair; where it
cannot be read the group's subscription is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that are subscribed to; None where a subscription cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> Iterable[str]:
    _, count = struct.unpack_from(">hi", subscription)
    at = 6
    if count < 0 or count * 2 > len(subscription) - at:
        raise ValueError("not a subscription")
    for _ in range(count):
        (length,) = struct.unpack_from(">h", subscription, at)
        at += 2
        if not 0 <= length <= len(subscription) - at:
            raise ValueError("a topic name runs out of the subscription")
        yield subscription[at : at + length].decode(errors="replace")
        at += length
    (length,) = struct.unpack_from(">i", subscription, at)
    if length > len(subscription) - at - 4:
        raise ValueError("the user data run out of the subscription")
