"""What a producer counts, by names like Java's producer-metrics."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["producer_metrics"]


def producer_metrics(told: Mapping[str, int]) -> dict[str, float]:
    """told: the driver's totals. Latencies in milliseconds, but where a name says otherwise."""
    return {
        "record-send-total": told["acked"],
        "record-error-total": told["errors"],
        "record-retry-total": told["retries"],
        "batch-split-total": told["splits"],
        "batch-total": told["batches"],
        "batches-waiting": told["batches_waiting"],
        "request-total": told["requests"],
        "outgoing-byte-total": told["request_bytes"],
        "batch-size-avg": told["request_bytes"] / max(told["batches"], 1),
        "request-latency-avg": told["latency_ns"] / max(told["requests"], 1) / 1e6,
        "request-latency-max": told["latency_ns_max"] / 1e6,
        "produce-throttle-time-total": told["throttle_ms"],
        "buffer-total-bytes": told["memory_total"],
        "buffer-available-bytes": told["memory_available"],
        "bufferpool-wait-total": told["memory_waits"],
        "bufferpool-wait-time-ns-total": told["memory_wait_ns"],
        "waiting-threads": told["memory_waiting"],
    }
