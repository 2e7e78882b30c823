"""Bounds of the groups' times on the broker: each default lies between its least and its most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kbroker.config.types import ConfigError

GROUP_KINDS: Final = ("consumer", "share", "streams")
_TIMES: Final = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")


def check_order(integer: Callable[[str], int], less: str, more: str) -> None:
    """Raises ConfigError as Apache Kafka words it; `integer` has the broker's values."""
    if integer(less) > integer(more):
        raise ConfigError(f"{more} must be greater than or equal to {less}")


def check_beat(integer: Callable[[str], int], kind: str) -> None:
    """Whoever is only heard of once a session is lost now and then. Raises ConfigError."""
    beat, silent = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
    if integer(beat) >= integer(silent):
        raise ConfigError(f"{beat} must be less than {silent}")


def _orders() -> Iterator[tuple[str, str]]:
    for kind in GROUP_KINDS:
        for time in _TIMES:
            least, most = f"group.{kind}.min.{time}", f"group.{kind}.max.{time}"
            yield least, most
            yield least, f"group.{kind}.{time}"
            yield f"group.{kind}.{time}", most
    yield "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"


# Settings of which the first is never more than the second.
ORDERS: Final = tuple(_orders())
