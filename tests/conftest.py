"""Shared fixtures of all tests, what the system lacks, and the leak check where ext counts."""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

from kbroker.ext.debug import counts_objects, is_debug_build, live_objects
from tests.support.needs import demand_all, loop_devices_work
from tests.support.rounds import FULL_ONLY, is_full
from tests.support.tree import ROOT
from tests.support.waits import wait_for

pytest_plugins = [
    "tests.support.parts", "tests.support.ledger", "tests.support.leftovers",
    "tests.support.fixtures", "tests.support.tally",
]  # fmt: skip

# A loaded machine is slow, which says nothing about what is tested.
settings.register_profile("kbroker", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kbroker")
set_hypothesis_home_dir(ROOT / "build" / "hypothesis")


def pytest_report_header() -> list[str]:
    """One line for each thing that only the system can give and does not, before the first test."""
    lacking = [
        line
        for found, line in (
            (shutil.which("java"), "no Java 17: install openjdk-17-jre-headless"),
            (shutil.which("mvn"), "no Maven: install maven"),
            (shutil.which("kcat"), "no kcat: install kcat"),
            (loop_devices_work(), "no loop device: install e2fsprogs and mount, and run as root"),
        )
        if not found
    ]
    verdict = "its tests fail" if demand_all() else "its tests are skipped"
    build = "debug" if is_debug_build() else "counted" if counts_objects() else "release"
    return [f"kbroker: {build} build", *(f"{line} ({verdict})" for line in lacking)]


def _made_of_text(*args: object, **named: object) -> logging.LogRecord:
    """Captured records live as long as their test: an error among the arguments would keep, by its
    traceback, what each function on its way had in hand."""
    record = logging.LogRecord(*args, **named)  # type: ignore[arg-type]
    record.msg, record.args = record.getMessage(), ()
    return record


logging.setLogRecordFactory(_made_of_text)


@pytest.fixture(autouse=True)
def _no_object_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test ends with no more live objects of ext than it began with: in the debug build each, in
    one that only counts those of the folders that share no broker or client in this process. With
    fewer: it was the first to collect what a test of another folder left to the collector. A count
    below zero is of an object that was freed, or unlocked, without having been counted: it would
    hide as many that are left."""
    alone = request.node.nodeid.startswith(("tests/unit/", "tests/client/"))
    if not (is_debug_build() or (alone and counts_objects())):
        yield
        return
    before = live_objects()
    yield
    if _unbalanced(before):
        gc.collect()
    if set(_unbalanced(before)) == {"locked mutex"}:
        with contextlib.suppress(TimeoutError):  # by a thread that goes on
            wait_for("the mutexes", lambda: not _unbalanced(before), 5)
    left = _unbalanced(before)
    assert not left, f"objects left behind, or freed uncounted: {left}"


def _unbalanced(before: dict[str, int]) -> dict[str, int]:
    live = live_objects()
    return {
        kind: n - before[kind]
        for kind, n in live.items()
        if n > before[kind] or n < min(before[kind], 0)
    }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only FULL=1 runs."""
    if not is_full():
        others = [item for item in items if item.get_closest_marker(FULL_ONLY)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if not item.get_closest_marker(FULL_ONLY)]


def pytest_collection_finish() -> None:
    """What is there by now stays: a collection after a test need not walk thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that changes how all of the process logs puts it back: others read lines. After Ctrl-C
    pytest has put away its own handlers by now, and has yet to tell what failed before."""
    before = _log_form()
    yield
    if request.session.exitstatus != pytest.ExitCode.INTERRUPTED:
        assert _log_form() == before, "left behind: levels or formatters of the root logger"


def _log_form() -> tuple[object, ...]:
    root = logging.root
    handlers = [(handler, handler.formatter) for handler in root.handlers]
    return root.level, root.manager.disable, handlers


_crashed: list[str] = []


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """A process of the tests died: compiled code did that, and passing again excuses nothing."""
    _crashed.append(crashitem)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _crashed:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
