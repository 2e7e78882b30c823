"""Parts of the test suite: `PART=k/n`, and the order in which test processes get their files.

A scope is what one process runs from beginning to end: a file, or files whose tests share JVMs.
Scopes are divided by the durations in tests/durations.json, which `make test-durations`
writes. Every test process computes the same division.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.tree import ROOT

TABLE = ROOT / "tests" / "durations.json"
LONG, SHORT = "long", "short"
#: The property of a test report that names its suite. (Its keywords have names of folders, too.)
SUITE = "suite"
#: Seconds of a test whose file is not in the table.
UNKNOWN_S = {LONG: 10.0, SHORT: 0.2}
#: Folders whose tests share Apache Kafka, Spark or a Debian package.
SHARING = ("tests/differential", "tests/kafka_scripts", "tests/packaging", "tests/spark")
#: Files of such folders that share nothing.
ALONE = (
    "tests/packaging/test_wheel.py", "tests/spark/test_exactly_once_kills.py",
    "tests/spark/test_pipeline.py",
)  # fmt: skip
#: Files that share three nodes of Apache Kafka.
CLUSTER = "tests/client with three nodes of Apache Kafka"
OF_CLUSTER = (
    "tests/client/test_admin_kafka.py", "tests/client/test_cluster_kafka.py",
    "tests/client/test_nodes.py", "tests/client/test_nodes_groups.py",
)  # fmt: skip


class Part(NamedTuple):
    """The part `number` of `count`, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def part(text: str) -> Part:
    """Parse K/N. Raise ValueError where it is anything else."""
    number, slash, count = text.partition("/")
    parsed = Part(int(number), int(count)) if slash else Part(0, 0)
    if not 1 <= parsed.number <= parsed.count:
        raise ValueError(f"part {text!r} is not K/N with 1 <= K <= N")
    return parsed


def path_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def scope_of(nodeid: str) -> str:
    """Return the scope of a test."""
    path = path_of(nodeid)
    folder = path.rpartition("/")[0]
    if path in OF_CLUSTER:
        return CLUSTER
    return folder if folder in SHARING and path not in ALONE else path


Table = Mapping[str, Mapping[str, tuple[float, int]]]
"""Of each suite (`long`, `short`): seconds and number of tests of each file."""


def load_table(path: Path = TABLE) -> Table:
    """Read the measured durations; a missing file is an empty table."""
    try:
        table: Table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return table


def seconds_of(table: Table, suite: str, path: str) -> float:
    """Return the mean duration of a test of this file."""
    seconds, count = table.get(suite, {}).get(path, (UNKNOWN_S[suite], 1))
    return seconds / count


def weigh(table: Table, tests: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return the seconds of each scope of these tests (suite and node id)."""
    weights: dict[str, float] = defaultdict(float)
    for suite, nodeid in tests:
        weights[scope_of(nodeid)] += seconds_of(table, suite, path_of(nodeid))
    return dict(weights)


def longest_first(weights: Mapping[str, float]) -> list[str]:
    """Return the scopes in their order; names decide where seconds are equal."""
    return sorted(weights, key=lambda scope: (-weights[scope], scope))


def split(weights: Mapping[str, float], count: int) -> list[list[str]]:
    """Divide scopes into parts: each in turn, longest first, goes to the shortest part."""
    parts: list[list[str]] = [[] for _ in range(count)]
    seconds = [0.0] * count
    for scope in longest_first(weights):
        shortest = seconds.index(min(seconds))
        parts[shortest].append(scope)
        seconds[shortest] += weights[scope]
    return parts


class ScopeScheduling(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Scopes go to test processes in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", type=part, help="Run the K-th of N parts.")


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Make the scheduler of `pytest -n`."""
    config.option.loadscopereorder = False
    return ScopeScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the part. Where several processes share them, longest scopes come first:
    a long one that begins last keeps the others waiting."""
    for item in items:
        item.user_properties.append((SUITE, suite_of(item)))
    chosen: Part | None = config.getoption("--part")
    shared = hasattr(config, "workerinput")
    if chosen is None and not shared:
        return
    table = load_table()
    weights = weigh(table, ((suite_of(item), item.nodeid) for item in items))
    if chosen is not None:
        scopes = set(split(weights, chosen.count)[chosen.number - 1])
        others = [item for item in items if scope_of(item.nodeid) not in scopes]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if scope_of(item.nodeid) in scopes]
    if shared:
        order = {scope: at for at, scope in enumerate(longest_first(weights))}
        items.sort(key=lambda item: order[scope_of(item.nodeid)])


def suite_of(item: pytest.Item) -> str:
    """Return which suite a test belongs to."""
    return LONG if item.get_closest_marker("long") else SHORT
