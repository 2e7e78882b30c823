"""Server-side assignors (KIP-848): who of a group gets which partitions.

An assignor is a function of a `GroupSpec`, which tells the members with what they subscribe to
and what they were given last. It gives each member its partitions by topic id. Both assignors give
what Apache Kafka's give (tests/differential/test_consumer_assignors.py), down to the order in
which members are served: see `kbroker.group.order`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from .range import assign_range
from .spec import Assignment, GroupSpec, MemberSpec
from .uniform import assign_uniform

Assignor = Callable[[GroupSpec], dict[str, Assignment]]

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}

_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def assignor_named(told: str) -> str | None:
    """The name of an assignor that is told by name or by Kafka's class; None for a Java class of
    a user, which cannot run here."""
    name = _CLASSES.get(told, told)
    return name if name in ASSIGNORS else None


def allowed_assignors(told: Iterable[str]) -> list[str]:
    """Names that members may ask for where `group.consumer.assignors` tells these; the first is the
    default."""
    return [name for one in told if (name := assignor_named(one))] or list(ASSIGNORS)


__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "GroupSpec",
    "MemberSpec",
    "allowed_assignors",
    "assignor_named",
]
