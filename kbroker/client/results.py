"""Answers about many things at once: what came of each, and asking again for what may yet come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from kbroker.client.cluster import Cluster
from kbroker.client.errors import KafkaError
from kbroker.errors import ErrorCode

__all__ = ["Results", "ask_each", "listed"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Results(Mapping[K, V]):
    """What came of each thing asked for. `results[key]` raises the error of a thing that failed.

    errors: those that failed, with why; their text names the thing. told: all, neither raised.
    """

    def __init__(self, told: Mapping[K, V | KafkaError]) -> None:
        self.told = told

    def __getitem__(self, key: K) -> V:
        told = self.told[key]
        if isinstance(told, KafkaError):
            raise told
        return told

    def __iter__(self) -> Iterator[K]:
        return iter(self.told)

    def __len__(self) -> int:
        return len(self.told)

    def __repr__(self) -> str:
        return f"Results({dict(self.told)!r})"

    @property
    def errors(self) -> dict[K, KafkaError]:
        """What failed."""
        return {key: told for key, told in self.told.items() if isinstance(told, KafkaError)}

    @property
    def succeeded(self) -> dict[K, V]:
        """What did not fail."""
        return {
            key: told for key, told in self.told.items() if not isinstance(told, KafkaError)
        }

    def checked(self) -> Results[K, V]:
        """Itself; raises the first error where anything failed."""
        for error in self.errors.values():
            raise error
        return self


def listed(given: Iterable[V]) -> Iterable[V]:
    """What is given. Raises TypeError for a string, which would be taken letter by letter."""
    if isinstance(given, str | bytes):
        raise TypeError(f"several are asked for: write [{given!r}] instead of {given!r}")
    return given


def ask_each(
    cluster: Cluster,
    keys: Iterable[K],
    ask: Callable[[list[K]], Iterable[tuple[K, V | KafkaError]]],
    *,
    final: Collection[int] = (),
) -> Results[K, V]:
    """What `ask` tells of each key, in their order; again for those whose error passes, within the
    cluster's limit. An error that `ask` raises counts for all keys of which it has told nothing,
    and is raised where it stays so. final: codes that are not waited out."""
    every = list(dict.fromkeys(listed(keys)))
    told: dict[K, V | KafkaError] = {}

    def passes(known: V | KafkaError | None) -> bool:
        return isinstance(known, KafkaError) and known.retriable and known.code not in final

    def attempt() -> None:
        left = [key for key in every if key not in told or passes(told[key])]
        for key in left:
            told.pop(key, None)
        again: list[KafkaError] = []
        for key, answer in ask(left):
            told[key] = answer
            if isinstance(answer, KafkaError) and passes(answer):
                again.append(answer)
        if any(error.code == ErrorCode.NOT_CONTROLLER for error in again):
            cluster.refresh([])
        if again:
            raise again[0]

    if every:
        try:
            cluster.retry(attempt)
        except KafkaError:
            if any(key not in told for key in every):
                raise
    return Results({key: told[key] for key in every if key in told})
