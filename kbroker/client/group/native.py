"""Heartbeats by the loop, and requests over its links: what the group has of the data plane.

With these one connection serves the group, and heartbeats leave on time whatever Python does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kbroker.client.connection import Connection
from kbroker.client.errors import (
    ClosedError,
    ConnectError,
    CorruptDataError,
    KafkaError,
    RequestTimeoutError,
)
from kbroker.client.group.heart import LOST, Heart
from kbroker.client.messages import decode_body, encode_body
from kbroker.client.native_threads import Lock
from kbroker.ext.client_heartbeat import BROKEN, POLL_EXPIRED, HeartbeatDriver
from kbroker.ext.client_loop import ClientLoop
from kbroker.protocol import ApiKey, request_header_version

__all__ = ["LoopChannel", "NativePulse"]


class LoopChannel:
    """A connection handed over to a loop; several threads may call."""

    def __init__(self, loop: ClientLoop, connection: Connection) -> None:
        self.renew_at = connection.renew_at
        self._address = connection.address
        self._version_of = connection.version_of
        self._timeout_s = connection.timeout_s
        self._on_silence = connection.on_silence
        self._loop = loop
        self.link = connection.hand_over(loop)

    @property
    def closed(self) -> bool:
        return self._loop.link_stats(self.link) is None

    def version_of(self, api: ApiKey, *, by_id: bool = False) -> int:
        return self._version_of(api, by_id=by_id)

    def call(
        self,
        api: ApiKey,
        values: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        by_id: bool = False,
    ) -> Any:
        version = self._version_of(api, by_id=by_id)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        body = encode_body(api, version, values)
        flexible = request_header_version(api, version) > 1
        try:
            answer = self._loop.request(
                self.link, int(api), version, body, limit_s, flexible=flexible
            )
        except TimeoutError as error:
            if self._on_silence is not None:
                self._on_silence(self._address)
            raise RequestTimeoutError(
                f"broker {self._address} did not answer {api.name} within {limit_s:g} s"
            ) from error
        except ConnectionAbortedError as error:
            raise CorruptDataError(f"broker {self._address}: {error}") from error
        except ConnectionError as error:
            raise ConnectError(f"connection to {self._address} broke: {error}") from error
        except RuntimeError as error:
            raise ClosedError(f"the consumer was closed: {error}") from error
        return decode_body(api, version, answer)

    def close(self) -> None:
        self._loop.drop_link(self.link)


class _Way(Protocol):
    """The wire, as its pulse sees it."""

    def run(self, job: Callable[[], None]) -> None: ...

    def forget(self) -> None: ...

    def coordinator(self) -> Any: ...

    def give_up(self, heart: Heart) -> None: ...

    def post(self, what: Callable[[], None]) -> None: ...


class NativePulse:
    """Starts and stops the loop's heartbeats and works up what comes of them.

    Heartbeats of different generations are told apart by a serial number.
    """

    def __init__(self, driver: HeartbeatDriver, way: _Way) -> None:
        self._driver = driver
        self._way = way
        self._serials = itertools.count(1)
        self._now: tuple[int, Heart] | None = None
        self._version = 0
        self._lock = Lock()  # of taking and posting: what comes first is told first

    def beat(self, heart: Heart | None) -> None:
        """Heartbeats of this kind, or none. The polling thread."""
        self._driver.stop()
        if heart is None:
            self._now = None
            return
        serial = next(self._serials)
        self._now = (serial, heart)
        self._way.run(lambda: self._start(serial, heart))

    def _start(self, serial: int, heart: Heart) -> None:
        """The wire's thread, where what is sent and what was answered is in order."""
        if self._now != (serial, heart):
            return
        channel = self._way.coordinator()
        version = channel.version_of(heart.api)
        values = heart.values()
        epoch_at = 0
        if heart.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            epoch_at = _compact_bytes(values["group_id"]) + _compact_bytes(values["member_id"])
        self._version = version
        self._driver.beat(
            serial,
            channel.link,
            int(heart.api),
            version,
            encode_body(heart.api, version, values),
            flexible=request_header_version(heart.api, version) > 1,
            epoch_at=epoch_at,
            epoch=heart.epoch,
            interval_s=heart.interval_s,
            timeout_s=heart.timeout_s,
            poll_deadline_s=heart.poll_deadline_s,
        )
        heart.attach(self._driver)

    def on_event(self) -> None:
        """The control thread: the loop has something to tell of heartbeats."""
        with self._lock:
            for kind, serial, body in self._driver.take():
                now = self._now
                if now is not None and now[0] == serial:
                    self._told(kind, serial, now[1], body)

    def _told(self, kind: int, serial: int, heart: Heart, body: bytes) -> None:
        if kind == POLL_EXPIRED:
            self._way.run(lambda: self._way.give_up(heart))
            self._way.post(heart.on_poll_expired)
        elif kind == BROKEN:
            self._way.run(lambda: self._relink(serial))
        else:
            self._answered(serial, heart, body)

    def _answered(self, serial: int, heart: Heart, body: bytes) -> None:
        try:
            answer: Any = decode_body(heart.api, self._version, body)
        except KafkaError as error:
            answer = error
        if getattr(answer, "error_code", 0) in LOST:
            self._way.forget()
            self._way.run(lambda: self._relink(serial))
        self._way.post(lambda: heart.on_answer(answer))

    def _relink(self, serial: int) -> None:
        now = self._now
        if now is None or now[0] != serial:
            return
        try:
            self._driver.relink(serial, self._way.coordinator().link)
        except KafkaError as error:
            failure = error
            self._way.post(lambda: now[1].on_answer(failure))

    def hold(self, timeout_s: float) -> None:
        """Waits for a heartbeat in flight and keeps the next one back, until `release`. What its
        answer told is in the inbox then, before anything that is answered later."""
        self._driver.hold(timeout_s)
        self.on_event()

    def heard(self, answer: Any) -> None:
        """A heartbeat of the member's own was answered (KIP-848): epoch and interval hold for the
        next of the loop's, which leaves whether or not anybody polls by then."""
        if answer.error_code == 0 and answer.member_epoch > 0:
            interval_s = answer.heartbeat_interval.total_seconds()
            self._driver.went_out(int(answer.member_epoch), interval_s)

    def release(self) -> None:
        self._driver.release()


def _compact_bytes(text: str) -> int:
    """Bytes of a compact string."""
    count = len(text.encode())
    return (max(1, (count + 1).bit_length()) + 6) // 7 + count
