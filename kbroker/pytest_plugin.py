"""The pytest plugin: fixtures `kbroker` and `kbroker_session`; see docs/testing.md.

pytest loads this module in every session, so that nothing of kbroker is imported before a test
asks for a broker.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kbroker.testing import Broker

_BROKERS = "kbroker.testing.broker"
_INI = "kbroker_settings"
_MARK = "kbroker"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini option."""
    parser.addini(
        _INI, "settings of the brokers that tests get, KEY=VALUE, one a line",
        type="linelist", default=[],
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(settings, **settings): settings of the test's own broker, a dict with Kafka's"
        " names or keyword arguments with underscores",
    )


@pytest.fixture
def kbroker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the test's own: an empty one, on a port of 127.0.0.1 that the kernel picked."""
    settings: dict[str, object] = dict(_ini_settings(request.config))
    for mark in reversed(list(request.node.iter_markers(_MARK))):
        settings.update(_mark_settings(mark))
    yield from _running(settings)


@pytest.fixture(scope="session")
def kbroker_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for all tests of the session, or of the worker under pytest-xdist."""
    yield from _running(_ini_settings(request.config))


def _running(settings: dict[str, Any]) -> Iterator[Broker]:
    from kbroker.testing import Broker, BrokerFailedError

    broker = None
    try:
        broker = Broker(settings)
        broker.start()
        yield broker
        broker.check()
    except (BrokerFailedError, ValueError) as error:
        pytest.fail(f"kbroker: {error}", pytrace=False)
    finally:
        if broker is not None:
            broker.close()


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    told = {}
    for line in config.getini(_INI):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_INI}: {line!r} is not KEY=VALUE")
        told[name.strip()] = value.strip()
    return told


def _mark_settings(mark: pytest.Mark) -> dict[str, object]:
    told: dict[str, object] = {}
    for given in mark.args:
        if not isinstance(given, dict):
            raise pytest.UsageError(f"the marker {_MARK} takes a dict of settings, not {given!r}")
        told.update(given)
    return told | {name.replace("_", "."): value for name, value in mark.kwargs.items()}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test's brokers say from here on belongs to the test."""
    names = getattr(item, "fixturenames", ())
    if item.get_closest_marker(_MARK) and "kbroker_session" in names and "kbroker" not in names:
        pytest.fail(
            f"the marker {_MARK} holds for the fixture `kbroker`; settings of `kbroker_session`"
            f" stand in the ini option {_INI}",
            pytrace=False,
        )
    if _BROKERS in sys.modules:
        for broker in sys.modules[_BROKERS].live:
            broker.mark_log()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a test that failed has what its brokers said meanwhile."""
    report = yield
    if report.failed and _BROKERS in sys.modules:
        for broker in sys.modules[_BROKERS].live:
            said = broker.log_since_mark()
            if said:
                report.sections.append((f"log of kbroker {broker.bootstrap_servers}", said))
    return report


def pytest_unconfigure() -> None:
    """Nothing is left behind, whatever a test did not close."""
    if _BROKERS in sys.modules:
        sys.modules[_BROKERS].close_all()
