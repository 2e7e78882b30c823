"""A heartbeat: what is sent, how often, and when the answer is worth anybody's attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kbroker.client.errors import KafkaError
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = ["AT_ONCE", "GOING_ON", "LOST", "Heart"]

LOST = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Codes after which the coordinator is looked for anew."""
GOING_ON = LOST | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS}
"""After these heartbeats go on: the member is what it was."""
AT_ONCE = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
})  # fmt: skip
"""After these the member joins again without a pause."""


class _Driver(Protocol):
    """ext.client_heartbeat.HeartbeatDriver, once the loop has these heartbeats."""

    @property
    def epoch(self) -> int: ...

    def polled(self, deadline_s: float) -> None: ...


class Heart:
    """Heartbeats of one generation of a member.

    The loop sends them once it is attached to its driver. leave: what is sent when the application
    does not poll in time. Answers that say more than "go on" go to `on_answer`, on the polling
    thread.
    """

    def __init__(
        self,
        api: ApiKey,
        values: Mapping[str, Any],
        *,
        interval_s: float,
        timeout_s: float,
        poll_interval_s: float,
        leave: tuple[ApiKey, Mapping[str, Any]] | None,
        on_answer: Callable[[Any], None],
        on_poll_expired: Callable[[], None],
        now: float,
    ) -> None:
        self.api = api
        self.leave = leave
        self.on_answer = on_answer
        self.on_poll_expired = on_poll_expired
        self.interval_s = interval_s
        self.timeout_s = timeout_s
        self.poll_deadline_s = now + poll_interval_s
        self._values = dict(values)
        self._poll_interval_s = poll_interval_s
        self._driver: _Driver | None = None

    def attach(self, driver: _Driver) -> None:
        """The loop sends them from now on."""
        self._driver = driver
        driver.polled(self.poll_deadline_s)

    @property
    def epoch(self) -> int:
        """The member epoch, of KIP-848; -1 where there is none."""
        if self._driver is not None:
            return self._driver.epoch
        return int(self._values.get("member_epoch", -1))

    def polled(self, now: float) -> None:
        """The application has called poll."""
        self.poll_deadline_s = now + self._poll_interval_s
        if self._driver is not None:
            self._driver.polled(self.poll_deadline_s)

    def values(self) -> Mapping[str, Any]:
        return self._values

    def went_out(self, epoch: int, interval_s: float) -> None:
        """A heartbeat of the member's own was answered (KIP-848): epoch and interval hold. The
        driver heard of it at once, and may have heard of a later epoch since."""
        self.interval_s = interval_s
        self._values["member_epoch"] = epoch

    def stops_at(self, answer: Any) -> bool:
        """Whether heartbeats end with this answer."""
        if isinstance(answer, KafkaError):
            return not answer.retriable
        return answer.error_code != 0 and answer.error_code not in GOING_ON
