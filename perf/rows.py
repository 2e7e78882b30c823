"""The rows of the table: what each sends, what of it is shown, and what each is held to."""

from __future__ import annotations

from dataclasses import dataclass, field

RECORDS_OF_16_KIB = 16
FETCH_BYTES = 1 << 20


@dataclass(frozen=True)
class Target:
    """A bound of one figure: a number, or a multiple of another system's median of that figure."""

    figure: str
    bound: float
    of: str | None = None
    at_least: bool = False

    def limit(self, reference: float | None) -> float | None:
        """The bound as a number; None where it hangs on a system that was not measured."""
        if self.of is None:
            return self.bound
        return None if reference is None else self.bound * reference

    def holds(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit


@dataclass(frozen=True)
class Row:
    """One load. `rate` above 0 is an open loop of so many requests a second."""

    name: str
    what: str
    shown: tuple[str, ...]
    mode: str = "produce"
    partitions: int = 4
    connections: int = 4
    window: int = 8
    records: int = 1
    record_bytes: int = 100
    rate: int = 0
    after: str = ""  # the row whose topic it reads
    page_cache: tuple[Target, ...] = ()
    fsync: tuple[Target, ...] = ()
    not_for: tuple[str, ...] = field(default=())

    def arguments(self, topic: str) -> list[object]:
        """What load.c gets after the seconds."""
        if self.mode == "ping":
            return [self.connections, self.window]
        if self.mode == "fetch":
            return [topic, self.partitions, self.connections, FETCH_BYTES]
        return [topic, self.partitions, self.connections, self.window, self.records,
                self.record_bytes, -1, self.rate]  # fmt: skip


def at_most(figure: str, bound: float, of: str | None = None) -> Target:
    return Target(figure, bound, of)


def at_least(figure: str, bound: float) -> Target:
    return Target(figure, bound, at_least=True)


B0, B2, KAFKA = "floor", "floor-sync", "kafka"

ROWS = (
    Row("ping", "ApiVersions, 8 connections", ("us_request",), mode="ping", connections=8,
        page_cache=(at_most("us_request", 3, B0),)),
    Row("one100", "one record of 100 bytes a request", ("requests_s", "us_request"), connections=8,
        page_cache=(at_most("us_request", 4, B0), at_least("requests_s", 120_000)),
        fsync=(at_least("requests_s", 60_000),)),
    Row("kb16", "16 records of 1 KiB a request", ("mb_s", "cpu_s_gb"), records=16,
        record_bytes=1024, page_cache=(at_most("cpu_s_gb", 1.3, B0),),
        fsync=(at_most("cpu_s_gb", 2.5, B2), at_least("mb_s", 400))),
    Row("fetch1M", "reading that, 1 MiB a request", ("mb_s", "cpu_s_gb"), mode="fetch",
        after="kb16", page_cache=(at_most("cpu_s_gb", 1.2, B0),),
        fsync=(at_most("cpu_s_gb", 1.2, B0),), not_for=(B2, "floor-sync64")),
    Row("kb900", "900 records of 1 KiB a request", ("mb_s", "cpu_s_gb"), window=2, records=900,
        record_bytes=1024, page_cache=(at_most("cpu_s_gb", 1.3, B0),),
        fsync=(at_most("cpu_s_gb", 2, B2), at_least("mb_s", 700))),
    Row("b100x9000", "9,000 records of 100 bytes a request", ("records_s", "cpu_s_gb"), window=2,
        records=9000, page_cache=(at_most("cpu_s_gb", 2, B0),),
        fsync=(at_most("cpu_s_gb", 2.5, B2),)),
    Row("wide64", "one record of 100 bytes a request, 64 partitions, a connection each",
        ("requests_s", "us_request", "p99_ms"), partitions=64, connections=64, window=4,
        page_cache=(at_least("requests_s", 120_000),),
        fsync=(at_least("requests_s", 75_000), at_most("us_request", 10), at_most("p99_ms", 8))),
    Row("lat2k", "2,000 requests a second of one record of 1 KiB", ("p50_ms", "p99_ms"),
        connections=8, window=64, record_bytes=1024, rate=2000,
        page_cache=(at_most("p99_ms", 1, KAFKA),), fsync=(at_most("p99_ms", 1.5, B2),)),
    Row("lat10k", "10,000 requests a second of one record of 1 KiB", ("p50_ms", "p99_ms"),
        connections=8, window=64, record_bytes=1024, rate=10_000,
        page_cache=(at_most("p99_ms", 1, KAFKA),), fsync=(at_most("p99_ms", 1.5, B2),)),
)  # fmt: skip

BY_NAME = {row.name: row for row in ROWS}

#: How a figure is written, and what it is called.
FORMATS = {
    "us_request": ("{:.1f}", "us of broker CPU a request"),
    "requests_s": ("{:,.0f}", "requests/s"),
    "mb_s": ("{:,.0f}", "MB/s"),
    "cpu_s_gb": ("{:.2f}", "CPU-s/GB"),
    "records_s": ("{:,.0f}", "records/s"),
    "p50_ms": ("{:.2f}", "p50 ms"),
    "p99_ms": ("{:.2f}", "p99 ms"),
}
