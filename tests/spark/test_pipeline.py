"""examples/pipeline: its results are those of pandas, whoever is killed on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from examples.pipeline.plan import Plan
from examples.pipeline.run import Kill, Run
from tests.support.java import java
from tests.support.rounds import scaled

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600), pytest.mark.usefixtures("connector")]

FORMATS = ("kbroker", "kafka")
DAYS = 45
#: Both processes, more than once, at moments that fall into every job.
KILLS = (
    Kill("spark", 0.15), Kill("broker", 0.3), Kill("spark", 0.45), Kill("broker", 0.6),
    Kill("spark", 0.75), Kill("broker", 0.85), Kill("spark", 0.95),
)  # fmt: skip

Found = dict[str, list[str]]
Go = Callable[..., tuple[Run, Found]]


def ignore(_what: str, _at: int, _of: int) -> None:
    """Progress that nobody looks at."""


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Go]:
    """Runs the pipeline over DAYS days: go("kafka", kills); gives the run and what it found."""
    from examples.pipeline import results

    java()
    runs: list[Run] = []

    def go(name: str, kills: Sequence[Kill] = ()) -> tuple[Run, Found]:
        home: Path = tmp_path_factory.mktemp(f"pipeline-{name}")
        plan = Plan("", home, name, days=DAYS, lateness_days=20, batch_records=3_000)
        run = Run(plan, days_per_s=3.0, told=ignore, kills=kills)
        runs.append(run)
        run.go()
        return run, results.found(run.plan)

    try:
        yield go
    finally:
        for run in runs:
            run.broker.stop()


@pytest.fixture(scope="module")
def undisturbed(go: Go) -> Found:
    """What a run finds that nobody disturbs."""
    return go(FORMATS[0])[1]


def test_it_is_what_pandas_finds(undisturbed: Found) -> None:
    from examples.pipeline import expected, results

    wanted = expected.expected(Plan("", Path(), days=DAYS))
    assert not results.differences(undisturbed, wanted)
    assert len(wanted["enriched"]) > 30_000
    assert any("wind_speed" not in json.loads(row) for row in wanted["enriched"])


@pytest.mark.parametrize("name", scaled(FORMATS[:1], full=FORMATS))
def test_kills_change_nothing(go: Go, undisturbed: Found, name: str) -> None:
    """kill -9 of Spark and of the broker in turn: row by row what it is without."""
    run, found = go(name, KILLS)
    assert not run.kills_left
    assert found == undisturbed


@pytest.mark.parametrize("name", FORMATS[1:])
def test_both_formats_find_the_same(go: Go, undisturbed: Found, name: str) -> None:
    assert go(name)[1] == undisturbed
