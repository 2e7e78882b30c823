"""Quotas: which limit holds for a client, and whose consumption counts against it.

A limit belongs to an entity: a user, a client id, both, or an address, each of them named or the
default of all that have none of their own (KIP-124, KIP-546). Of several that fit a client the most
special one holds:

    user and client id, user and any client, user, any user and client id, any user and any client,
    any user, client id, any client

What is limited is the sum of all connections that the entity stands for: of "any client" each
client id on its own, of a user all of his client ids together. Both follow Apache Kafka's
ClientQuotaManager, down to a client without an id, for whom no client's limit holds. The data plane
decides the same of bytes and time (ext/quotas.pyx); here are the mutations, which the control
thread counts. No clock: who asks says how late it is. Not thread-safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kbroker.errors import ClientError, ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_RATE: Final = "producer_byte_rate"
CONSUMER_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_RATE: Final = "connection_creation_rate"

DEFAULT: Final = None
"""In the place of a name: everybody that has no limit of his own."""
ABSENT: Final = ""
"""In the place of a name: the entity does not depend on it. No name is empty."""

Name = str | None
Entity = frozenset[tuple[str, Name]]
"""Kinds with names: {("user", "alice"), ("client-id", None)} is any client of alice's."""
Pair = tuple[Name, Name]
"""User and client id of an entity that is no address."""

_BUCKETS_MAX: Final = 100_000


def entity(**names: Name) -> Entity:
    """entity(user="alice", client_id=DEFAULT)"""
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def pair_of(of: Entity) -> Pair:
    """The names of an entity, ABSENT for a kind that it has not."""
    names = dict(of)
    return names.get(USER, ABSENT), names.get(CLIENT_ID, ABSENT)


class Limits:
    """The limits of one kind."""

    def __init__(self) -> None:
        self._limits: dict[Pair, float] = {}
        self._shapes: Counter[tuple[bool, bool]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._limits)

    def put(self, pair: Pair, limit: float | None) -> None:
        """Set a limit, with None take it away."""
        shape = (pair[0] != ABSENT, pair[1] != ABSENT)
        if pair in self._limits:
            self._shapes[shape] -= 1
            del self._limits[pair]
        if limit is not None:
            self._limits[pair] = limit
            self._shapes[shape] += 1

    def whose(self, user: str, client_id: str) -> tuple[str, str]:
        """Under which names a client's consumption is counted; ABSENT for one that is not told
        apart. All clients with the same answer share a limit."""
        shapes = [shape for shape, count in self._shapes.items() if count]
        if len(shapes) <= 1:
            by_user, by_client = shapes[0] if shapes else (False, True)
            return user if by_user else ABSENT, client_id if by_client else ABSENT
        for of_user in (user, DEFAULT):
            if client_id and (of_user, client_id) in self._limits:
                return user, client_id
            if (of_user, DEFAULT) in self._limits:
                return user, client_id
            if (of_user, ABSENT) in self._limits:
                return user, ABSENT
        return ABSENT, client_id

    def limit(self, whose: tuple[str, str]) -> float | None:
        """The limit that holds for what is counted under these names; None: none."""
        return next((self._limits[one] for one in _candidates(*whose) if one in self._limits), None)


def _candidates(user: str, client_id: str) -> Iterator[Pair]:
    if user and client_id:
        for of_user in (user, DEFAULT):
            yield of_user, client_id
            yield of_user, DEFAULT
    elif user:
        yield user, ABSENT
        yield DEFAULT, ABSENT
    elif client_id:
        yield ABSENT, client_id
        yield ABSENT, DEFAULT


class MutationQuota:
    """What one request may create and delete, counted in partitions (KIP-599).

    A strict one refuses a topic while earlier ones have not been paid for; the other lets all
    pass and only tells how long to wait.
    """

    def __init__(self, bucket: TokenBucket | None, now_ms: int, *, strict: bool) -> None:
        self._bucket = bucket
        self._now_ms = now_ms
        self._strict = strict
        self.throttle_ms = 0

    def record(self, partitions: int) -> None:
        """Raises ClientError where it is too much now."""
        bucket, now_ms = self._bucket, self._now_ms
        if bucket is None:
            return
        if self._strict:
            wait_ms = bucket.wait_ms(now_ms)
            if wait_ms:
                self.throttle_ms = wait_ms
                raise ClientError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            bucket.take(partitions, now_ms)
        else:
            bucket.take(partitions, now_ms)
            self.throttle_ms = bucket.wait_ms(now_ms) or self.throttle_ms


class TokenBucket:
    """Tokens that come at a rate, up to those of `burst_s` seconds; more may be taken than there
    are, which is then waited for."""

    __slots__ = ("_burst_s", "_last_ms", "_tokens", "rate")

    def __init__(self, rate: float, burst_s: float, now_ms: int) -> None:
        self.rate = rate
        self._burst_s = burst_s
        self._tokens = rate * burst_s
        self._last_ms = now_ms

    def _refill(self, now_ms: int) -> None:
        come = self.rate * max(now_ms - self._last_ms, 0) / 1000
        self._tokens = min(self.rate * self._burst_s, self._tokens + come)
        self._last_ms = max(now_ms, self._last_ms)

    def take(self, tokens: float, now_ms: int) -> None:
        """Take tokens, whether they are there or not."""
        self._refill(now_ms)
        self._tokens -= tokens

    def wait_ms(self, now_ms: int) -> int:
        """How long until no token is owed."""
        self._refill(now_ms)
        return round(-self._tokens / self.rate * 1000) if self._tokens < 0 else 0


class Mutations:
    """The quotas on mutations, and what has been used of them."""

    def __init__(self, samples: int, window_s: int) -> None:
        self.limits = Limits()
        self._burst_s = samples * window_s
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def quota(self, user: str, client_id: str, now_ms: int, *, strict: bool) -> MutationQuota:
        """What holds for a request of this client."""
        whose = self.limits.whose(user, client_id)
        rate = self.limits.limit(whose)
        if rate is None:
            return MutationQuota(None, now_ms, strict=strict)
        bucket = self._buckets.get(whose)
        if bucket is None:
            if len(self._buckets) >= _BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[whose] = TokenBucket(rate, self._burst_s, now_ms)
        bucket.rate = rate
        return MutationQuota(bucket, now_ms, strict=strict)
