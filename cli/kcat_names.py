"""Settings as kcat's users write them: librdkafka's names and values."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.client.config_elsewhere import LIBRDKAFKA

__all__ = ["by_kafkas_names"]

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
        plain = LIBRDKAFKA.get(plain, plain)
        found[plain] = _VALUES.get((plain, value), value)
    return found
