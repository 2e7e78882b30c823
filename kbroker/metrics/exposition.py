"""The text that a scraper reads: Prometheus' text format 0.0.4 and OpenMetrics 1.0.0.

A block per family, in the order of the list, families without samples left out:

    # HELP name what it means
    # TYPE name counter|gauge|histogram|summary|untyped
    name{label="value",...} value

OpenMetrics differs in three places: a counter's family is named without the _total of its samples,
untyped is called unknown, and the last line is `# EOF`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.metrics.family import COUNTER, UNTYPED, Family, Samples

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPENMETRICS_RANGE: Final = "application/openmetrics-text"
_PLAIN_RANGES: Final = ("text/plain", "text/*", "*/*")
_VERSION: Final = "1.0.0"


def negotiated(accept: str) -> str:
    """The content type to answer with for an Accept header (RFC 9110, 12.5.1); Prometheus' own
    where the header names neither."""
    best = {OPENMETRICS: 0.0, PROMETHEUS: 0.0}
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        told = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind == _OPENMETRICS_RANGE and told.get("version", _VERSION) == _VERSION:
            best[OPENMETRICS] = max(best[OPENMETRICS], _quality(told))
        elif kind in _PLAIN_RANGES and told.get("version", "0.0.4") == "0.0.4":
            best[PROMETHEUS] = max(best[PROMETHEUS], _quality(told))
    return OPENMETRICS if best[OPENMETRICS] > best[PROMETHEUS] else PROMETHEUS


def _quality(parameters: dict[str, str]) -> float:
    try:
        return min(max(float(parameters.get("q", "1")), 0.0), 1.0)
    except ValueError:
        return 0.0


def expose(families: Iterable[Family], samples: Samples, content_type: str) -> bytes:
    """The whole text of a scrape."""
    openmetrics = content_type == OPENMETRICS
    parts: list[str] = []
    for family in families:
        lines = samples.lines[family.name]
        if not lines:
            continue
        name, kind = family.name, family.kind
        if openmetrics:
            name = name.removesuffix("_total") if kind == COUNTER else name
            kind = "unknown" if kind == UNTYPED else kind
        parts.append(f"# HELP {name} {_help(family.help)}\n# TYPE {name} {kind}\n")
        parts += lines
    if openmetrics:
        parts.append("# EOF\n")
    return "".join(parts).encode()


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
