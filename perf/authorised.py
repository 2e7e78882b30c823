"""What authorization costs: a broker that asks for rights beside one that is open, in turn.

A part of `python -m perf.security`. Both are kbroker in the page cache, and both are started anew
in each round, so that where the kernel puts their memory does not count for one of them alone. The
guarded one has a StandardAuthorizer and some ACLs, none of them a super user's; one of them lets
everybody write and read what is measured. What is told is processor time of the broker for a
request, as the median of the rounds' ratios.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from perf import admin
from perf.lifecycle import empty_home
from perf.native import is_sound, load
from perf.series import say
from tests.support import guarded
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess

TOPIC, PARTITIONS, CONNECTIONS, OTHERS = "measured", 4, 8, 200
ROUNDS, SECONDS, FILL_SECONDS = 24, 1.0, 0.3
AT_MOST = 1.03
OPEN, GUARDED = "open", "guarded"
RIGHTS = {"authorizer.class.name": guarded.STANDARD, "allow.everyone.if.no.acl.found": "true"}


class Work(NamedTuple):
    """A load: what load.c gets after the topic's partitions."""

    what: str
    mode: str
    arguments: tuple[int, ...]


WORK = (
    Work("produce, one record of 100 bytes a request", "produce", (CONNECTIONS, 8, 1, 100, -1, 0)),
    Work("produce, 16 records of 1 KiB a request", "produce", (4, 8, 16, 1024, -1, 0)),
    Work("fetch, one batch of 16 KiB a request", "fetch", (CONNECTIONS, 1)),
    Work("fetch, 1 MiB a request", "fetch", (4, 1 << 20)),
)
FILL = Work("", "produce", (4, 8, 16, 1024, -1, 0))
#: (rounds' us of CPU a request) by (what, who)
Costs = Mapping[tuple[str, str], list[float]]


def run(process: BrokerProcess, work: Work, seconds: float, topic: str = TOPIC) -> float:
    """Microseconds of the broker's processor time for a request."""
    figures = load(work.mode, process.port, process.pid, seconds, topic, PARTITIONS,
                   *work.arguments)  # fmt: skip
    if not is_sound(figures):
        raise RuntimeError(f"{work.what}: errors {figures['errors']}, lost {figures['lost']}")
    return figures["us_request"]


def grant(process: BrokerProcess) -> None:
    """Rights of everybody to the topics of this, among those of others to others."""
    rows = [
        guarded.acl(guarded.TOPIC, TOPIC, operation, pattern=guarded.PREFIXED, host="*",
                    principal="User:*")
        for operation in (guarded.READ, guarded.WRITE)
    ]  # fmt: skip
    rows += [
        guarded.acl(guarded.TOPIC, f"of-{number}", guarded.READ, principal=f"User:{number}")
        for number in range(OTHERS)
    ]
    rows.append(guarded.acl(guarded.TOPIC, TOPIC, guarded.DELETE, permission=guarded.DENY))
    guarded.create(process.port, rows)


@contextmanager
def running() -> Iterator[dict[str, BrokerProcess]]:
    """Both, warm, with a topic to read; gone at the end."""
    with ExitStack() as stack:
        brokers: dict[str, BrokerProcess] = {}
        for who in (OPEN, GUARDED):
            home = stack.enter_context(empty_home(f"authorised-{who}"))
            settings = {"kbroker.durability": "page-cache"}
            if who == GUARDED:
                settings |= RIGHTS
            process = KbrokerProcess(home, settings)
            process.start()
            stack.callback(process.kill)
            names = {f"{TOPIC}-read": PARTITIONS, TOPIC: PARTITIONS}
            admin.create_topics(process.port, names)
            if who == GUARDED:
                grant(process)
            run(process, FILL, FILL_SECONDS, f"{TOPIC}-read")
            brokers[who] = process
        yield brokers


def measure(rounds: int = ROUNDS, seconds: float = SECONDS) -> Costs:
    """Rounds in turn, beginning with the one or the other."""
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        with running() as brokers:
            for work in WORK:
                topic = f"{TOPIC}-read" if work.mode == "fetch" else TOPIC
                for who in sorted(brokers, reverse=number % 2 == 0):
                    costs[work.what, who].append(run(brokers[who], work, seconds, topic))
                    say(f"{who}, {work.what}: {costs[work.what, who][-1]:.3f} us a request")
    return costs


def table(costs: Costs) -> list[str]:
    """As README has it."""
    lines = [
        "| with rights asked for | open | authorised | ratio of CPU |",
        "|---|---|---|---|",
    ]
    for work in WORK:
        mine, other = costs[work.what, GUARDED], costs[work.what, OPEN]
        ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
        verdict = f"{ratio:.3f}x, at most {AT_MOST:g}x"
        shown = verdict if ratio <= AT_MOST else f"**{verdict}: missed**"
        cells = " | ".join(f"{statistics.median(one):.2f} us a request" for one in (other, mine))
        lines.append(f"| {work.what} | {cells} | {shown} |")
    return lines
