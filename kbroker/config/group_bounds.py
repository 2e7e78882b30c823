"""Bounds of the groups' times on the broker: each default lies between its least and its most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kbroker.config.types import ConfigError

GROUP_KINDS: Final = ("consumer", "share", "streams")
_TIMES: Final = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")


def check_group_bounds(integer: Callable[[str], int]) -> None:
    """Raises ConfigError as Apache Kafka words it; `integer` has the broker's values."""

    def in_order(less: str, more: str) -> None:
        if integer(less) > integer(more):
            raise ConfigError(f"{more} must be greater than or equal to {less}")

    for kind in GROUP_KINDS:
        for time in _TIMES:
            least, most = f"group.{kind}.min.{time}", f"group.{kind}.max.{time}"
            in_order(least, most)
            in_order(least, f"group.{kind}.{time}")
            in_order(f"group.{kind}.{time}", most)
        beat, silent = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if integer(beat) >= integer(silent):
            raise ConfigError(f"{beat} must be less than {silent}")
    in_order("group.streams.num.standby.replicas", "group.streams.max.standby.replicas")
