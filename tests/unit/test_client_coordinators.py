"""Answers of coordinators: of what was asked for, all of it and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client import coordinators
from kbroker.client.errors import CorruptDataError


class Here:
    """A cluster of one broker, which coordinates these groups whatever it is asked."""

    def __init__(self, *groups: str) -> None:
        self._groups = groups

    def retry(self, call: Any) -> Any:
        return call()

    def any_connection(self) -> Any:
        return self

    def connection(self, node: int) -> Any:
        return node

    def version_of(self, api: Any) -> int:
        return 4

    def call(self, api: Any, values: Any, **_: Any) -> Any:
        found = [
            SimpleNamespace(key=group, node_id=1, error_code=0, error_message=None)
            for group in self._groups
        ]
        return SimpleNamespace(coordinators=found)


def asked(cluster: Here, told: list[str]) -> dict[str, int]:
    def ask(*_: Any) -> Iterator[tuple[str, int]]:
        yield from ((group, 7) for group in told)

    return coordinators.ask_coordinators(cluster, ["a", "b"], ask)  # type: ignore[arg-type]


def test_each_is_told_of() -> None:
    assert asked(Here("a", "b"), ["b", "a"]) == {"a": 7, "b": 7}


@pytest.mark.parametrize("told", [["a", "c"], ["a", "a"], ["a"], []])
def test_others_or_too_few_are_no_answer(told: list[str]) -> None:
    with pytest.raises(CorruptDataError, match=r"group '[abc]'"):
        asked(Here("a", "b"), told)


@pytest.mark.parametrize("told", [["a", "b", "c"], ["a"], []])
def test_coordinators_of_others_or_too_few_are_no_answer(told: list[str]) -> None:
    with pytest.raises(CorruptDataError, match=r"group '[abc]'"):
        asked(Here(*told), ["a", "b"])
