"""librdkafka's names and values of settings that Kafka spells otherwise, for kcat's users."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["by_kafkas_names"]

_NAMES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "partitioner": "partitioner.class",
}
_VALUES = {
    ("auto.offset.reset", "smallest"): "earliest",
    ("auto.offset.reset", "beginning"): "earliest",
    ("auto.offset.reset", "largest"): "latest",
    ("auto.offset.reset", "end"): "latest",
    ("auto.offset.reset", "error"): "none",
    ("ssl.endpoint.identification.algorithm", "none"): "",
}


def by_kafkas_names(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings by Kafka's names with dots; `topic.` before one is librdkafka's as well."""
    found = {}
    for name, value in settings.items():
        plain = name.replace("_", ".").removeprefix("topic.")
        plain = _NAMES.get(plain, plain)
        found[plain] = _VALUES.get((plain, value), value)
    return found
