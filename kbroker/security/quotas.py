"""Quotas: which limit holds for a client, and how long it has to wait when it is over it.

A limit belongs to an entity: a user, a client id, both, or an address, each of them named or the
default of all. Of several that fit a client the most special one holds (KIP-124, KIP-546):

    user and client id, user and any client, user, any user and client id, any user and any client,
    any user, client id, any client

The rate is measured over sampled windows as Apache Kafka's metrics do it: `samples` windows behind
the present one, each `window_ms` long; a client that began later is taken to have been there all
that time. No clock: who asks says how late it is. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

USER, CLIENT_ID, IP = "user", "client-id", "ip"
DEFAULT: Final = None
"""Stands for everybody that has no limit of its own."""

Name = str | None
Entity = frozenset[tuple[str, Name]]
"""Kinds with names: {("user", "alice"), ("client-id", None)} is any client of alice's."""


def entity(**names: Name) -> Entity:
    """entity(user="alice", client_id=DEFAULT)"""
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def candidates(user: str, client_id: str) -> Iterator[Entity]:
    """The entities whose limits fit a client, the one that counts most first."""
    for own in (user, DEFAULT):
        yield entity(user=own, client_id=client_id)
        yield entity(user=own, client_id=DEFAULT)
        yield entity(user=own)
    yield entity(client_id=client_id)
    yield entity(client_id=DEFAULT)


def limit_of(
    limits: Mapping[Entity, float], wanted: Iterable[Entity]
) -> tuple[Entity, float] | None:
    """The limit that holds, and whose it is; None where nothing is limited."""
    return next(((one, limits[one]) for one in wanted if one in limits), None)


def ip_limit(limits: Mapping[Entity, float], address: str) -> float | None:
    """The limit of connections that an address may make a second."""
    found = limit_of(limits, (entity(ip=address), entity(ip=DEFAULT)))
    return None if found is None else found[1]


class Rate:
    """How much a second, over `samples` windows of `window_ms`."""

    __slots__ = ("_at", "_samples", "_window_ms", "_windows")

    def __init__(self, samples: int = 11, window_ms: int = 1000) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._windows: list[list[float]] = []  # [begin, last event, sum], one more than samples
        self._at = 0

    def record(self, amount: float, now_ms: int) -> None:
        """Something happened."""
        if not self._windows:
            self._windows.append([now_ms, now_ms, 0.0])
        elif now_ms - self._windows[self._at][0] >= self._window_ms:
            self._advance(now_ms)
        window = self._windows[self._at]
        window[1], window[2] = now_ms, window[2] + amount

    def _advance(self, now_ms: int) -> None:
        self._at = (self._at + 1) % (self._samples + 1)
        fresh = [now_ms, now_ms, 0.0]
        if self._at == len(self._windows):
            self._windows.append(fresh)
        else:
            self._windows[self._at] = fresh

    def measure(self, now_ms: int) -> float:
        """The rate now."""
        elapsed = self.elapsed_ms(now_ms)
        return sum(window[2] for window in self._windows) * 1000 / elapsed

    def elapsed_ms(self, now_ms: int) -> int:
        """The time over which the rate is taken."""
        for window in self._windows:
            if now_ms - window[1] >= self._samples * self._window_ms:
                window[:] = (now_ms, now_ms, 0.0)
        began = min((window[0] for window in self._windows), default=now_ms)
        elapsed = int(now_ms - began)
        missing = self._samples - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may happen until the rate is back at its limit; 0 where it is below."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        return round((rate - limit) / limit * self.elapsed_ms(now_ms))
