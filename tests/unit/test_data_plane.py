"""The table of topics: the real data plane, and the stand-in that control plane tests use."""

from __future__ import annotations

import inspect
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.api.context import DataPlanePort
from kbroker.ext.data_plane import DataPlane
from tests.support.ports import FakeDataPlane

DEADLINE_S = 20
ONE, TWO = bytes(range(16)), bytes(range(16, 32))

Call = tuple[Any, ...]  # the name of a method, then its arguments


def within_deadline(do: Callable[[], Any]) -> Any:
    """Return what `do` returns. A data plane that hangs fails the test instead of hanging it."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(do()), daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the data plane hangs"
    return results[0]


def outcomes(data_plane: Any, calls: list[Call]) -> list[Any]:
    """Return what each call returned or the type that it raised, and the counts after it."""
    found: list[Any] = []
    for method, *arguments in calls:
        try:
            result = getattr(data_plane, method)(*arguments)
        except Exception as error:
            result = type(error)
        found.append((result, data_plane.counts()))
    return found


def test_remove_of_unknown_topic_leaves_table_usable():
    data_plane = DataPlane({})
    calls = [("remove_topic", "nope"), ("add_topic", "a", ONE, [None]), ("remove_topic", "a")]
    assert within_deadline(lambda: outcomes(data_plane, calls)) == [
        (False, (0, 0, 0)), (None, (1, 1, 0)), (True, (0, 0, 0)),
    ]  # fmt: skip


SEQUENCES: dict[str, list[Call]] = {
    "remove_twice": [
        ("add_topic", "a", ONE, [None]), ("remove_topic", "a"), ("remove_topic", "a"),
        ("add_topic", "a", ONE, [None, None]), ("remove_topic", "a"),
    ],
    "other_id": [
        ("add_topic", "a", ONE, [None]), ("add_topic", "a", TWO, [None, None]),
        ("remove_topic", "a"), ("remove_topic", "a"), ("add_topic", "a", TWO, []),
    ],
    "add_twice": [
        ("add_topic", "a", ONE, [None]), ("add_topic", "a", ONE, [None]),
        ("add_topic", "a", ONE, [None, None, None], True), ("remove_topic", "a"),
        ("remove_topic", "a"),
    ],
    "one_id_of_two_topics": [
        ("add_topic", "a", ONE, [None]), ("add_topic", "b", ONE, [None]), ("remove_topic", "a"),
        ("remove_topic", "b"), ("remove_topic", "a"), ("add_topic", "b", ONE, [None]),
    ],
    "remove_unknown": [
        ("remove_topic", "a"), ("remove_topic", ""), ("remove_topic", "b" * 249),
        ("add_topic", "a", ONE, [None]), ("remove_topic", "b"), ("remove_topic", "a"),
    ],
    "wrong_arguments": [
        ("add_topic", "a", b"short", [None]), ("add_topic", "a", None, [None]),
        ("add_topic", None, ONE, [None]), ("add_topic", "a", ONE, None), ("remove_topic", None),
        ("remove_topic", "\ud800"), ("add_topic", "a", ONE, [None]), ("remove_topic", "a"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
def test_fake_data_plane_returns_what_the_real_one_does(name):
    calls = SEQUENCES[name]
    real = within_deadline(lambda: outcomes(DataPlane({}), calls))
    assert outcomes(FakeDataPlane(), calls) == real


@pytest.mark.parametrize("seed", range(20))
def test_fake_data_plane_agrees_over_random_calls(seed):
    """Enough topics for the table to grow and to lose its tombstones several times."""
    chance = random.Random(seed)
    calls: list[Call] = []
    for _ in range(1000):
        name = f"topic-{chance.randrange(200)}"
        if chance.random() < 0.6:
            logs = [None] * chance.randrange(4)
            calls.append(("add_topic", name, chance.choice([ONE, TWO, chance.randbytes(16)]), logs))
        else:
            calls.append(("remove_topic", name))
    real = within_deadline(lambda: outcomes(DataPlane({}), calls))
    assert outcomes(FakeDataPlane(), calls) == real


def parameters_of(method: Any) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(method).parameters.values()
    ]


def methods_of(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if inspect.isfunction(value)}


def test_fake_data_plane_has_the_methods_of_the_port():
    assert {name for name in methods_of(DataPlanePort) if name[0] != "_"} <= methods_of(
        FakeDataPlane
    )


@pytest.mark.parametrize("name", sorted(methods_of(FakeDataPlane) - {"__init__"}))
def test_fake_data_plane_method_has_the_real_parameters(name):
    assert parameters_of(getattr(FakeDataPlane, name)) == parameters_of(getattr(DataPlane, name))
