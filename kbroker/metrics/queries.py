"""PromQL over the list of metrics: a name or a label that is not in the list is an error at import.

Every query is narrowed to the instances that a dashboard has chosen; those of alerts are not.
"""

from __future__ import annotations

from typing import Final

from kbroker.metrics.families import BY_NAME
from kbroker.metrics.family import HISTOGRAM, SUMMARY

_SCRAPER: Final = ("instance", "job")
_PARTS: Final = {HISTOGRAM: ("_bucket", "_sum", "_count"), SUMMARY: ("", "_sum", "_count")}
_OF_PARTS: Final = {HISTOGRAM: "le", SUMMARY: "quantile"}


def metric(name: str, *matchers: str, part: str = "") -> str:
    """A selector: `metric("kafka_log_log_size", 'topic=~"$topic"')`. Raises KeyError or ValueError
    for what the list does not have."""
    family = BY_NAME[name]
    if part not in _PARTS.get(family.kind, ("",)):
        raise ValueError(f"{name} is a {family.kind} and has no {part}")
    labels = {*family.labels, *_SCRAPER, _OF_PARTS.get(family.kind, "instance")}
    for matcher in ",".join(matchers).split(",") if matchers else ():
        label = matcher.partition("=")[0].rstrip("!~")
        if label not in labels:
            raise ValueError(f"{name} has no label {label}")
    return f"{name}{part}{{{','.join(matchers)}}}" if matchers else f"{name}{part}"


def here(name: str, *matchers: str, part: str = "") -> str:
    """The same of the instances that a dashboard shows."""
    return metric(name, 'instance=~"$instance"', *matchers, part=part)


def rate(name: str, *matchers: str, part: str = "") -> str:
    """Growth a second, over a window that fits the scrape interval and the zoom."""
    return f"rate({here(name, *matchers, part=part)}[$__rate_interval])"
