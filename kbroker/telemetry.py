"""Metrics that clients push (KIP-714): who is asked for which, and what came last.

A subscription (a client-metrics resource of the metadata) names metrics by prefix, an interval, and
patterns that a client's attributes must match, all of them. A client instance gets what all
subscriptions that match it name, at the shortest interval, as Apache Kafka's ClientMetricsManager
has it: also when it is told that it asks too early, or that what it pushes was not asked for.

A push is kept as it came, the last of each instance, and looked into when somebody wants to see it
(`kbroker.server.client_metrics`): clients are asked for sums since their start, so that nothing is
lost with the ones before. Instances and bytes are bounded, who was quiet for longest goes first.

No clock: who asks says how late it is (monotonic ms). Not thread-safe, but for `pushes`.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ClientError, ErrorCode
from kbroker.limits import TELEMETRY_INSTANCES_MAX_COUNT, TELEMETRY_KEPT_MAX_BYTES
from kbroker.linear_regex import compile_linear
from kbroker.uuids import random_uuid, uuid_text

if TYPE_CHECKING:
    from uuid import UUID

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACCEPTED: Final = (4, 3, 1, 2)  # codecs by number, the best first
ALL: Final = "*"
_INTERVAL_MS: Final = 300_000
_KEPT_MS_MIN: Final = 60_000
_KEPT_INTERVALS: Final = 3
_LONG_AGO_MS: Final = -(10**12)
_RESERVED: Final = (0, 1)
_ASKED_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class Subscription(NamedTuple):
    """Which metrics, how often, of whom."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]  # attribute to regular expression


class Push(NamedTuple):
    """What a client instance pushed last."""

    instance: UUID
    client_id: str
    codec: str
    data: bytes


class Instance:
    """A client that was given an id, until it is quiet for long."""

    def __init__(self, number: UUID, attributes: Mapping[str, str]) -> None:
        self.id = number
        self.attributes = attributes
        self.version = -1
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = _INTERVAL_MS
        self.subscription_id = 0
        self.asked_ms = _LONG_AGO_MS
        self.pushed_ms = _LONG_AGO_MS
        self.seen_ms = 0
        self.terminating = False
        self.last_error = ErrorCode.NONE
        self.push: Push | None = None

    def subscribe(self, subscriptions: Iterable[Subscription], version: int) -> None:
        """Take over what is asked of this instance from now on."""
        fitting = [one for one in subscriptions if _fits(one.match, self.attributes)]
        metrics = sorted({name for one in fitting for name in one.metrics})
        self.version = version
        self.metrics = (ALL,) if ALL in metrics else tuple(metrics)
        self.interval_ms = min([_INTERVAL_MS, *(one.interval_ms for one in fitting)])
        told = zlib.crc32(f"{self.metrics}{self.interval_ms}".encode()) ^ hash(self.id.int)
        self.subscription_id = (told + 2**31) % 2**32 - 2**31
        self.asked_ms = self.pushed_ms = _LONG_AGO_MS
        self.terminating = False
        self.last_error = ErrorCode.NONE

    @property
    def kept_ms(self) -> int:
        """How long it is remembered when it is quiet."""
        return max(_KEPT_MS_MIN, _KEPT_INTERVALS * self.interval_ms)

    def may_ask(self, now_ms: int) -> bool:
        """Whether the interval since it last asked or pushed is over."""
        if now_ms - max(self.asked_ms, self.pushed_ms) < self.interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether the interval is over, or this is the first push since it asked."""
        if self.asked_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


def _fits(match: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    return all(
        name in attributes and _matches(pattern, attributes[name])
        for name, pattern in match.items()
    )


def _matches(pattern: str, text: str) -> bool:
    """Whether an expression matches a text of a client. One that an earlier version took, and RE2
    does not, matches nothing."""
    try:
        return compile_linear(pattern).fullmatch(text) is not None
    except ValueError:
        return False


class Telemetry:
    """Client instances and what they pushed; the control thread owns it."""

    def __init__(self, bytes_max: int, load: Callable[[], list[Subscription]]) -> None:
        """`bytes_max` is the largest push that is taken; `load` gives the subscriptions."""
        self.bytes_max = bytes_max
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        self._kept_bytes = 0
        self._version = 0
        self._load = load
        self._subscriptions: list[Subscription] | None = None

    def subscriptions_changed(self) -> None:
        """They are loaded when they are next needed."""
        self._subscriptions = None
        self._version += 1

    def pushes(self) -> list[Push]:
        """What came last, of each instance that pushed; any thread may ask."""
        return [one.push for one in list(self._instances.values()) if one.push is not None]

    def ask(
        self, number: UUID | None, attributes: Mapping[str, str], now_ms: int
    ) -> Instance:
        """What an instance is to push; a new one gets its id. Raises ClientError."""
        instance = self._instance(number or _new_id(), attributes, now_ms)
        if not instance.may_ask(now_ms) and instance.last_error not in _ASKED_AGAIN:
            raise ClientError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(  # noqa: PLR0917  the fields of the request
        self,
        number: UUID | None,
        attributes: Mapping[str, str],
        subscription_id: int,
        codec: int,
        data: bytes,
        terminating: bool,
        now_ms: int,
    ) -> None:
        """Take metrics. Raises ClientError."""
        if number is None or number.int in _RESERVED:
            raise ClientError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(number, attributes, now_ms)
        try:
            self._check(instance, subscription_id, codec, data, terminating, now_ms)
        except ClientError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = terminating
        instance.last_error = ErrorCode.NONE
        if data:
            kept = Push(number, attributes.get("client_id", ""), CODECS[codec], data)
            self._keep(instance, kept)

    def _check(  # noqa: PLR0917
        self,
        instance: Instance,
        subscription_id: int,
        codec: int,
        data: bytes,
        terminating: bool,
        now_ms: int,
    ) -> None:
        if instance.terminating:
            raise ClientError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(now_ms) and not terminating:
            raise ClientError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != instance.subscription_id:
            raise ClientError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if not 0 <= codec < len(CODECS):
            raise ClientError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(data) > self.bytes_max:
            raise ClientError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _instance(self, number: UUID, attributes: Mapping[str, str], now_ms: int) -> Instance:
        instance = self._instances.get(number)
        if instance is None:
            instance = self._instances[number] = Instance(
                number, {**attributes, "client_instance_id": uuid_text(number.bytes)}
            )
        if instance.version != self._version:
            if self._subscriptions is None:
                self._subscriptions = self._load()
            instance.subscribe(self._subscriptions, self._version)
        instance.seen_ms = now_ms
        self._instances.move_to_end(number)
        self._make_room(now_ms)
        return instance

    def _keep(self, instance: Instance, push: Push) -> None:
        self._kept_bytes += len(push.data) - (len(instance.push.data) if instance.push else 0)
        instance.push = push
        while self._kept_bytes > TELEMETRY_KEPT_MAX_BYTES:
            self._drop_oldest()

    def _make_room(self, now_ms: int) -> None:
        """Those that are quiet for too long go, and the quietest of too many."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            quiet = now_ms - oldest.seen_ms > oldest.kept_ms
            if not quiet and len(self._instances) <= TELEMETRY_INSTANCES_MAX_COUNT:
                return
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, gone = self._instances.popitem(last=False)
        if gone.push is not None:
            self._kept_bytes -= len(gone.push.data)


def _new_id() -> UUID:
    from uuid import UUID  # noqa: PLC0415  2 ms of a start, for brokers that nobody asks

    return UUID(bytes=random_uuid())
