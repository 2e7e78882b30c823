"""What a consumer subscribes to: names, a pattern matched here, or one matched by the broker."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kbroker.client.group.port import RebalanceListener

__all__ = ["Subscribed", "SubscriptionPattern", "Target"]

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class SubscriptionPattern(NamedTuple):
    """A regular expression of Google's RE2 that the broker matches whole topic names against, with
    group.protocol=consumer. Equal patterns are equal subscriptions."""

    pattern: str


Target = Iterable[str] | re.Pattern[str] | SubscriptionPattern


class Subscribed:
    """The subscription now. changes: how often it was replaced.

    topics: names, those that a pattern of our own matched among them. Belongs to the polling
    thread.
    """

    def __init__(self) -> None:
        self.listener: RebalanceListener | None = None
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.regex: SubscriptionPattern | None = None
        self.active = False
        self.changes = 0

    def set(self, target: Target, listener: RebalanceListener | None) -> None:
        """Replaces the subscription.

        Raises TypeError for a plain string, ValueError for what cannot be a topic's name, and for
        a pattern that begins with ^ as a name (librdkafka's way of saying pattern).
        """
        if isinstance(target, str):
            raise TypeError(
                f"subscribe takes a list of topics; write [{target!r}], or re.compile({target!r})"
            )
        pattern = regex = None
        topics: frozenset[str] = frozenset()
        if isinstance(target, re.Pattern):
            pattern = target
        elif isinstance(target, SubscriptionPattern):
            if not target.pattern:
                raise ValueError("an empty pattern matches no topic")
            regex = target
        else:
            topics = frozenset(map(_checked_name, target))
        if pattern is not None and pattern == self.pattern:
            topics = self.topics
        self.topics, self.pattern, self.regex = topics, pattern, regex
        self.listener = listener
        self.active = bool(topics or pattern or regex)
        self.changes += 1

    def clear(self) -> None:
        """Nothing is subscribed to any more."""
        self.topics, self.pattern, self.regex = frozenset(), None, None
        self.listener = None
        self.active = False
        self.changes += 1

    def match(self, existing: Iterable[str]) -> None:
        """Topics that there are, for a pattern that is matched here."""
        if self.pattern is not None:
            self.topics = frozenset(name for name in existing if self.pattern.fullmatch(name))

    def covers(self, topic: str) -> bool:
        """Whether partitions of the topic may be assigned to this consumer."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return self.regex is not None or topic in self.topics


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"topic {name!r} is no string")
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        hint = "; a pattern is re.compile(...)" if set(name) & set("^*$[]()|?+") else ""
        raise ValueError(
            f"{name!r} is no name of a topic: letters, digits, . _ -, at most 249{hint}"
        )
    return str.__str__(name)  # of a StrEnum as well
