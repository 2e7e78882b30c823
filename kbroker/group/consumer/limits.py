"""Times of a group: what is set on the group (GROUP configs), within the broker's bounds."""

from __future__ import annotations

from kbroker.group.shard import Shard


class GroupLimits:
    """Milliseconds; asked anew each time, so that a setting counts from the next heartbeat on."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def session_timeout_ms(self, group_id: str) -> int:
        """A member that is silent for this long is fenced."""
        s = self._shard.settings
        return self._within(
            group_id,
            "consumer.session.timeout.ms",
            s.group_consumer_session_timeout_ms,
            (s.group_consumer_min_session_timeout_ms, s.group_consumer_max_session_timeout_ms),
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members are told to report."""
        s = self._shard.settings
        return self._within(
            group_id,
            "consumer.heartbeat.interval.ms",
            s.group_consumer_heartbeat_interval_ms,
            (
                s.group_consumer_min_heartbeat_interval_ms,
                s.group_consumer_max_heartbeat_interval_ms,
            ),
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        """Least time between two target assignments."""
        s = self._shard.settings
        return self._within(
            group_id,
            "consumer.assignment.interval.ms",
            s.group_consumer_assignment_interval_ms,
            (
                s.group_consumer_min_assignment_interval_ms,
                s.group_consumer_max_assignment_interval_ms,
            ),
        )

    def _within(self, group_id: str, key: str, default: int, bounds: tuple[int, int]) -> int:
        told = self._shard.settings.configs_of(group_id).get(key)
        return default if told is None else min(max(int(told), bounds[0]), bounds[1])
