"""Histograms of the data plane (ext/times.pxd) as samples: buckets, and quantiles out of them.

Bucket i counts values below 2^(10 + i); the last one has no bound. A quantile is read off as if
values lay evenly within their bucket, so it is never off by more than the bucket's factor of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kbroker.metrics.family import Samples

_FIRST_BOUND_BITS: Final = 10
QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999)


class Counted(NamedTuple):
    """A histogram: the sum of its values, and how many there are by bucket."""

    sum: int
    buckets: Sequence[int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.buckets)

    def quantile(self, share: float) -> float:
        """The value that this share lies below; 0 of none."""
        wanted = share * self.total
        below = 0
        for index, count in enumerate(self.buckets):
            if count and below + count >= wanted:
                low = 0 if index == 0 else 1 << (_FIRST_BOUND_BITS + index - 1)
                high = 1 << (_FIRST_BOUND_BITS + index)
                return low + (high - low) * max(wanted - below, 0.0) / count
            below += count
        return 0.0


def add_histogram(
    samples: Samples, name: str, told: Counted, unit: float, labels: str = ""
) -> None:
    """As a histogram; `unit` is how many of the values' units the metric's unit is."""
    lead = f"{labels}," if labels else ""
    total = 0
    last = len(told.buckets) - 1
    for index, count in enumerate(told.buckets):
        total += count
        bound = "+Inf" if index == last else repr((1 << (_FIRST_BOUND_BITS + index)) / unit)
        samples.add_part(name, "_bucket", total, f'{lead}le="{bound}"')
    samples.add_part(name, "_sum", told.sum / unit, labels)
    samples.add_part(name, "_count", total, labels)


def add_summary(
    samples: Samples, name: str, told: Counted, unit: float, labels: str = ""
) -> None:
    """As quantiles since the start, which is what the JMX exporter makes of Kafka's histograms."""
    lead = f"{labels}," if labels else ""
    for share in QUANTILES:
        samples.add_part(name, "", told.quantile(share) / unit, f'{lead}quantile="{share}"')
    samples.add_part(name, "_sum", told.sum / unit, labels)
    samples.add_part(name, "_count", told.total, labels)
