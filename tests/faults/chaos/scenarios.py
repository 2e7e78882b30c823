"""Scenarios: which calls are slow, which load there is, and how the broker ends in the middle."""

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
    """One round. `loads`: how many clients of each kind (processes, for producers and members).
    Brief topics are deleted soon, many before their logs are there.

    `prepared`: the coordinators' topics exist before the delays begin. `bulk`: partitions of a
    topic whose creation begins with the delays, `lead_s` before the load. `second`: there are two
    log directories, and the second one alone is slow.
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
                 bulk=150, lead_s=2.0),
        Scenario("stop", loads={TOPICS: 2, GROUPS: 4, PRODUCERS: 2}, ending=STOP, bulk=100),
        Scenario("kill", loads={TOPICS: 2, GROUPS: 2, TRANSACTIONS: 2, PRODUCERS: 1}, ending=KILL),
        # Topics are deleted while their logs are made: most take seconds there.
        Scenario("second", DelayPlan(kinds=("mkdir",), per_thousand=700, shortest_ms=1100),
                 {BRIEF_TOPICS: 3}, second=True),
        # Each coordinator alone, with all kinds of delays.
        Scenario("groups", DelayPlan(per_thousand=150), {GROUPS: 8}, prepared=False),
        Scenario("transactions", DelayPlan(per_thousand=150), {TRANSACTIONS: 4}, prepared=False),
        # The stop of a broker that is creating logs for a minute.
        Scenario("stop-bulk", DelayPlan(kinds=("mkdir",), shortest_ms=200, longest_ms=200),
                 ending=STOP, seconds=1.0, bulk=300),
    )
}  # fmt: skip
"""Scenarios by name; `make test` plays those of SHORT."""

SHORT: Final = ("churn", "coordinators", "stop", "kill", "second")


def random_scenario(seed: int) -> Scenario:
    """Draw a scenario for a long run."""
    chance = random.Random(f"scenario {seed}")
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
    """All kinds of calls now and then, or a few kinds often, or each a little."""
    if chance.random() < 0.4:
        return DelayPlan(per_thousand=chance.choice((10, 40, 100)))
    if chance.random() < 0.7:
        kinds = tuple(chance.sample(KINDS, chance.randint(1, 2)))
        return DelayPlan(kinds=kinds, per_thousand=chance.choice((100, 300)))
    return DelayPlan(per_thousand=500, longest_ms=100)
