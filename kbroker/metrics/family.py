"""What a metric is: name, kind, meaning, labels; and the samples of one scrape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
SUMMARY: Final = "summary"
UNTYPED: Final = "untyped"
"""A gauge whose name, which existing dashboards know, ends as only a part of a histogram may."""


class Family(NamedTuple):
    """A metric. `name` is that of its samples; a counter's ends in _total.

    `rarely`: a broker may have no sample of it, and this says when it has.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    rarely: str = ""


class Samples:
    """The samples of one scrape by family, each a line as both formats have it.

    Not thread-safe: one scrape's.
    """

    def __init__(self, families: Iterable[Family]) -> None:
        self.lines: dict[str, list[str]] = {family.name: [] for family in families}

    def add(self, name: str, value: float, labels: str = "") -> None:
        """A sample of a family without parts; `labels` as `labels_text` makes them. Raises KeyError
        for a family that is not in the list."""
        at = f"{name}{{{labels}}}" if labels else name
        self.lines[name].append(f"{at} {value}\n")

    def add_part(self, name: str, part: str, value: float, labels: str = "") -> None:
        """A sample of a histogram or summary: part is _bucket, _sum, _count or empty."""
        at = f"{name}{part}{{{labels}}}" if labels else f"{name}{part}"
        self.lines[name].append(f"{at} {value}\n")

    def merge(self, other: Samples) -> None:
        """Take over what another part of the same scrape found."""
        for name, lines in other.lines.items():
            self.lines[name] += lines


def labels_text(**labels: object) -> str:
    """`topic="a",partition="0"`, escaped."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items())


def escaped(text: str) -> str:
    """A label's value as it stands between quotes."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text
