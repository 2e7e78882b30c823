"""Client-side assignors of the classic protocol: which member gets which partitions.

They are pure: topics and subscriptions in, assignments out. `range` and `roundrobin` give what
Apache Kafka's give; the sticky ones are balanced and sticky as Kafka's are, by a way of their own
(tests/differential/test_client_assignors.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.client.group.assignors.range import RangeAssignor
from kbroker.client.group.assignors.roundrobin import RoundRobinAssignor
from kbroker.client.group.assignors.spec import (
    COOPERATIVE,
    EAGER,
    NO_GENERATION,
    Assignment,
    Assignor,
    Subscription,
    Topics,
)
from kbroker.client.group.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "COOPERATIVE",
    "EAGER",
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "Topics",
    "make_assignors",
]

_BUILT_IN: tuple[type[Assignor], ...] = (
    RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor,
)  # fmt: skip
_NAMES: dict[str, type[Assignor]] = {
    **{one.name: one for one in _BUILT_IN},
    **{f"org.apache.kafka.clients.consumer.{one.__name__}": one for one in _BUILT_IN},
}


def make_assignors(told: Sequence[str | type[Assignor] | Assignor]) -> tuple[list[Assignor], str]:
    """The assignors of `partition.assignment.strategy` and the rebalance protocol they share, the
    most advanced one. Names, Kafka's class names, classes and objects are taken.

    Raises ValueError for an unknown name, a name given twice, or where they share no protocol.
    """
    made = [_made(one) for one in told]
    if not made:
        raise ValueError("partition.assignment.strategy is empty; `range` is Kafka's first choice")
    names = [one.name for one in made]
    if len(set(names)) < len(names):
        raise ValueError(f"partition.assignment.strategy names one twice: {', '.join(names)}")
    shared = frozenset(made[0].protocols).intersection(*(one.protocols for one in made))
    for protocol in (COOPERATIVE, EAGER):
        if protocol in shared:
            return made, protocol
    raise ValueError(f"assignors {', '.join(names)} share no rebalance protocol")


def _made(one: str | type[Assignor] | Assignor) -> Assignor:
    if isinstance(one, Assignor):
        return one
    if not isinstance(one, str):
        return one()
    known = _NAMES.get(one.strip())
    if known is None:
        names = ", ".join(one.name for one in _BUILT_IN)
        raise ValueError(f"no assignor {one!r}; there are {names}, and classes of your own")
    return known()
