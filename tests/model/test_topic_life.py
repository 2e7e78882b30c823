"""The model of topic life, short and long, and that it notices what is broken."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.changes import Changes
from kbroker.group.slot_loads import SlotLoads
from kbroker.operations import Operations
from kbroker.storage import partition_lifecycle
from kbroker.storage.disk_worker import DiskWorker
from tests.model.topic_life import BrokenInvariantError, DrivenWorker, run
from tests.support.rounds import scaled

SHORT_STEPS, LONG_STEPS = 6_000, 100_000
LONG_SEEDS = range(100, scaled(102, full=110))  # with FULL=1 a million steps in all


def test_short_runs_keep_every_invariant(tmp_path: Path) -> None:
    happened: Counter[str] = Counter()
    for seed in range(1, 4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        happened += run(folder, seed, SHORT_STEPS)
    expected = ("kills", "stops", "rests", "REQUEST_TIMED_OUT", "NONE", "TOPIC_ALREADY_EXISTS")
    assert not [what for what in expected if not happened[what]], happened


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_long_runs_keep_every_invariant(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, LONG_STEPS)


def _loads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator looks for its logs when its topic comes, and never again."""
    seen: set[int] = set()
    load_ready = SlotLoads.load_ready

    def once(self: Any, slots: Any, *arguments: Any) -> None:
        if slots and id(slots[0]) not in seen:
            seen.add(id(slots[0]))
            load_ready(self, slots, *arguments)

    monkeypatch.setattr(SlotLoads, "load_ready", once)


def _answers_before_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A creation counts as done when its logs are asked for."""
    create = partition_lifecycle.PartitionLifecycle.create

    def at_once(self: Any, specs: Any) -> Any:
        create(self, specs)
        return partition_lifecycle.joined([])

    monkeypatch.setattr(partition_lifecycle.PartitionLifecycle, "create", at_once)


def _forgets_the_order_of_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of one folder run in any order."""

    def unordered(self: Any, queued: Any) -> None:
        if not queued.done:
            queued.done = True
            queued.result = queued.step.work()
        for folder in queued.step.folders:
            if queued in self._folders.get(folder, ()):
                self._folders[folder].remove(queued)
                if not self._folders[folder]:
                    del self._folders[folder]

    monkeypatch.setattr(DiskWorker, "_run_step", unordered)


def _never_lets_the_next_change_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Changes, "_leave", lambda self: None)


def _has_no_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operations, "run_due", lambda self: None)


def _loses_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker drops one job of a hundred."""
    drive = DrivenWorker.drive

    def forgetful(self: DrivenWorker, rng: random.Random) -> bool:
        if self._jobs and rng.random() < 0.01:
            self._jobs.popleft()
            return True
        return drive(self, rng)

    monkeypatch.setattr(DrivenWorker, "drive", forgetful)


@pytest.mark.parametrize(
    "broken",
    [_loads_once, _answers_before_the_logs, _forgets_the_order_of_folders,
     _never_lets_the_next_change_in, _has_no_deadlines, _loses_a_job],
    ids=lambda broken: broken.__name__.strip("_"),
)  # fmt: skip
def test_broken_control_plane_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises((BrokenInvariantError, AssertionError)):
        for seed in range(1, 4):
            folder = tmp_path / str(seed)
            folder.mkdir()
            run(folder, seed, SHORT_STEPS)
