"""Scenarios: the delays, the load, and the signal that the broker gets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.support.delays import KINDS, DelayPlan

STOP, KILL = "SIGTERM", "SIGKILL"
TOPICS, BRIEF_TOPICS = "topics", "brief topics"
GROUPS, TRANSACTIONS = "groups", "transactions"
PRODUCERS, MEMBERS = "producers", "members"

EVERYTHING: Final = DelayPlan(per_thousand=40)
SLOW_MKDIR: Final = DelayPlan(kinds=("mkdir",), shortest_ms=80, longest_ms=80)


@dataclass(frozen=True)
class Scenario:
    """A kind of round.

    `loads`: the number of clients of each kind. Producers and members are processes. Brief topics
    are deleted soon after their creation, many while their logs are being created.
    `ending`: the signal that the broker gets after `seconds`, while calls are still delayed.
    `prepared`: the coordinators' topics exist before the delays begin.
    `bulk`: the partitions of a topic whose creation begins `lead_s` before the other loads.
    `second`: there are two log directories, and only the calls on the second are delayed.
    """

    name: str
    plan: DelayPlan = EVERYTHING
    loads: Mapping[str, int] = field(default_factory=dict)
    ending: str = ""
    seconds: float = 3.0
    prepared: bool = True
    bulk: int = 0
    lead_s: float = 0.0
    second: bool = False


SCENARIOS: Final = {
    one.name: one
    for one in (
        Scenario("churn", loads={TOPICS: 2, BRIEF_TOPICS: 1}),
        Scenario("coordinators", SLOW_MKDIR, {GROUPS: 8, TRANSACTIONS: 3}, prepared=False,
                 seconds=2.0, bulk=150, lead_s=2.0),
        Scenario("stop", loads={TOPICS: 2, GROUPS: 4, PRODUCERS: 2}, ending=STOP, bulk=100),
        Scenario("kill", loads={TOPICS: 2, GROUPS: 2, TRANSACTIONS: 2, PRODUCERS: 1}, ending=KILL),
        # Most logs take more than a second, and many topics are deleted before they are there.
        Scenario("second", DelayPlan(kinds=("mkdir",), per_thousand=700, shortest_ms=1100),
                 {BRIEF_TOPICS: 3}, second=True),
        # The first use of each coordinator, with all kinds of delays.
        Scenario("groups", DelayPlan(per_thousand=150), {GROUPS: 8}, prepared=False),
        Scenario("transactions", DelayPlan(per_thousand=150), {TRANSACTIONS: 4}, prepared=False),
        # A stop while the creation of 300 logs would take a minute.
        Scenario("stop-bulk", DelayPlan(kinds=("mkdir",), shortest_ms=200, longest_ms=200),
                 ending=STOP, seconds=1.0, bulk=300),
    )
}  # fmt: skip
"""Scenarios by name; `make test` plays those of SHORT."""

SHORT: Final = ("churn", "coordinators", "stop", "kill", "second")


NAMED_PART: Final = 0.3


def random_scenario(seed: int) -> Scenario:
    """Draw a named scenario or a mixture of loads."""
    chance = random.Random(f"scenario {seed}")
    if chance.random() < NAMED_PART:
        return chance.choice(list(SCENARIOS.values()))
    limits = {TOPICS: 4, BRIEF_TOPICS: 3, GROUPS: 10, TRANSACTIONS: 4, PRODUCERS: 2, MEMBERS: 2}
    kinds = chance.sample(list(limits), chance.randint(2, 5))
    loads = {kind: chance.randint(1, limits[kind]) for kind in kinds}
    if MEMBERS in loads:
        loads.setdefault(PRODUCERS, 1)  # of whose records the members commit offsets
    return Scenario(
        "random",
        _random_plan(chance),
        loads,
        chance.choice(("", STOP, KILL)),
        chance.uniform(4, 20),
        chance.random() < 0.6,
        chance.choice((0, 0, 50, 200)),
        chance.uniform(0, 3),
        chance.random() < 0.25,
    )


def _random_plan(chance: random.Random) -> DelayPlan:
    """Draw delays: few calls of all kinds, many of one or two kinds, or many short delays."""
    if chance.random() < 0.4:
        return DelayPlan(per_thousand=chance.choice((10, 40, 100)))
    if chance.random() < 0.7:
        kinds = tuple(chance.sample(KINDS, chance.randint(1, 2)))
        return DelayPlan(kinds=kinds, per_thousand=chance.choice((100, 300)))
    return DelayPlan(per_thousand=500, longest_ms=100)
