"""What a consumer can be asked about offsets, topics and itself, beside reading."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kbroker.client.cluster import Cluster, PartitionInfo, TopicInfo
from kbroker.client.config_consumer import ConsumerConfig
from kbroker.client.offsets import FoundOffset, checked_time, list_offsets
from kbroker.client.partitions import TopicPartition, checked_partition, checked_partitions
from kbroker.ext.client_fetch import Fetcher

__all__ = ["OffsetAndTimestamp", "Queries"]


class OffsetAndTimestamp(NamedTuple):
    """A record found by its time, in ms."""

    offset: int
    timestamp: int


class Queries:
    """Blocking calls on the calling thread's own connections, and counters."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, fetcher: Fetcher) -> None:
        self._cluster = cluster
        self._committed = config.isolation_level == "read_committed"
        self._fetcher = fetcher

    def _list(
        self, wanted: Mapping[tuple[str, int], int], timeout_s: float | None
    ) -> dict[tuple[str, int], FoundOffset]:
        return self._cluster.retry(
            lambda: list_offsets(self._cluster, wanted, read_committed=self._committed),
            timeout_s,
            ends=True,
        )

    def offsets(
        self, partitions: Iterable[tuple[str, int]], timestamp: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        """EARLIEST or LATEST of each."""
        found = self._list(dict.fromkeys(checked_partitions(partitions), timestamp), timeout_s)
        return {TopicPartition(*where): told.offset for where, told in found.items()}

    def for_times(
        self, times_ms: Mapping[tuple[str, int], int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time."""
        wanted: dict[tuple[str, int], int] = {
            (where := checked_partition(key)): checked_time(time_ms, f" of {where}")
            for key, time_ms in times_ms.items()
        }
        return {
            TopicPartition(*where): (
                OffsetAndTimestamp(told.offset, told.timestamp_ms) if told.offset >= 0 else None
            )
            for where, told in self._list(wanted, timeout_s).items()
        }

    def lag(self, where: tuple[str, int]) -> int | None:
        """As the last answer of the broker tells it."""
        state = self._fetcher.state(*where)
        end = state["last_stable_offset" if self._committed else "high_watermark"]
        if end < 0 or state["position"] < 0:
            return None
        return max(0, end - state["position"])

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """From what is known, or from a broker."""
        limit_s = self._cluster.settings.call_timeout_s
        return self._cluster.limits.run(
            limit_s, True, lambda _: self._cluster.topic(topic).partitions
        )

    def topics(self) -> dict[str, TopicInfo]:
        """All of them."""
        return {info.name: info for info in self._cluster.topics()}

    def metrics(self) -> dict[str, float]:
        """By Kafka's names; times in ms."""
        stats = self._fetcher.stats()
        answers = stats["answers"] or 1
        lags = []
        for where in self._fetcher.assigned():
            with contextlib.suppress(KeyError):  # given up meanwhile, by the thread that polls
                lags.append(self.lag(where))
        return self._cluster.metrics() | {
            "records-consumed-total": stats["records"],
            "bytes-consumed-total": stats["fetched_bytes"],
            "fetch-total": stats["answers"],
            "fetch-latency-avg": stats["latency_ns_sum"] / answers / 1e6,
            "fetch-latency-max": stats["latency_ns_max"] / 1e6,
            "fetch-throttle-time-total": stats["throttle_ms"],
            "records-lag-max": max((lag for lag in lags if lag is not None), default=0),
            "queued-bytes": stats["queued_bytes"],
            "assigned-partitions": len(lags),
        }
