"""What a measurement counts: records, bytes, latencies, processor time; and how it is shown."""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import click

from kbroker.cli.render import print_json

__all__ = ["Latencies", "Live", "Meter", "report"]

_STEPS = 6  # bits of a number that are kept: buckets are 1/64 of it wide at most
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_LIVE_S = 0.5


class Latencies:
    """How long things took, in nanoseconds: counts in buckets that grow with the number, so that
    memory does not depend on how many there are; the largest is exact. One thread adds."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ns = 0
        self._buckets: dict[tuple[int, int], int] = {}

    def add(self, ns: int, count: int = 1) -> None:
        """So many things took so long."""
        shift = max(ns.bit_length() - _STEPS - 1, 0)
        bucket = shift, ns >> shift
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += count
        self.max_ns = max(self.max_ns, ns)

    def at(self, share: float) -> float | None:
        """The time in ms that this share of them did not exceed; None where there is none."""
        wanted, seen = share * self.count, 0
        for (shift, head), count in sorted(self._buckets.copy().items(), key=_upper):
            seen += count
            if seen >= wanted:
                return min(((head + 1) << shift) - 1, self.max_ns) / 1e6
        return None

    def told(self) -> dict[str, float | None]:
        """Percentiles and the largest, in ms."""
        found = {name: _rounded(self.at(share)) for name, share in _PERCENTILES.items()}
        return {**found, "max": _rounded(self.max_ns / 1e6) if self.count else None}


def _upper(entry: tuple[tuple[int, int], int]) -> int:
    (shift, head), _ = entry
    return head << shift


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)


class Meter:
    """One measurement, from begin() to end(). Processor time is the whole process's."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.errors = 0
        self.first_error: BaseException | None = None
        self.stopped = False
        self.latencies = Latencies()
        self.recent = Latencies()  # since the live line was last written
        self.begun_ns = 0
        self.seconds = 0.0
        self._cpu_s = 0.0

    def begin(self) -> None:
        """All is connected and warm; a second time begins anew."""
        self.begun_ns, self._cpu_s = time.monotonic_ns(), _cpu_s()

    def end(self) -> None:
        """Done, or stopped; a second time does nothing."""
        if self.begun_ns and not self.seconds:
            self.seconds = (time.monotonic_ns() - self.begun_ns) / 1e9
            self._cpu_s = _cpu_s() - self._cpu_s

    def arrived(self, records: int, size: int) -> None:
        """So many records, and bytes of them, reached the other end; what comes late is not
        counted."""
        if not self.seconds:
            self.records += records
            self.bytes += size

    def took(self, ns: int, count: int = 1) -> None:
        """So many records, or looks, took so long."""
        if self.seconds:
            return
        self.latencies.add(ns, count)
        self.recent.add(ns, count)

    def failed(self, error: BaseException | None, count: int) -> None:
        """So many records did not arrive."""
        if self.seconds:
            return
        self.errors += count
        self.first_error = self.first_error or error

    def told(self) -> dict[str, Any]:
        """The figures, for programs."""
        seconds = self.seconds or float("inf")
        counted = self.records > 0 and self.seconds > 0
        per_million = round(self._cpu_s / self.records * 1e6, 3) if counted else None
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.records / seconds, 1),
            "mb_per_s": round(self.bytes / seconds / 1e6, 3),
            "latency_ms": self.latencies.told(),
            "cpu_s": round(self._cpu_s, 3) if self.seconds else 0.0,
            "cpu_s_per_million": per_million,
            "errors": self.errors,
            "error": None if self.first_error is None else str(self.first_error),
            "stopped": self.stopped,
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Live:
    """A line on the terminal that tells how it goes; nothing where stderr is no terminal."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._shown = sys.stderr.isatty()
        self._last = (0.0, 0, 0)
        self._width = 0

    @property
    def due(self) -> bool:
        """Whether tick() would write."""
        return self._shown and time.monotonic() - self._last[0] >= _LIVE_S

    def tick(self) -> None:
        """Writes the line anew when it is time."""
        if not self.due:
            return
        meter, now = self._meter, time.monotonic()
        (before, records, size), self._last = self._last, (now, meter.records, meter.bytes)
        if not before or not meter.begun_ns:
            return
        span = now - before
        recent, meter.recent = meter.recent, Latencies()
        worst = recent.at(0.99)
        text = (
            f"{(time.monotonic_ns() - meter.begun_ns) / 1e9:.0f} s  {meter.records:,} records"
            f"  {(meter.records - records) / span:,.0f}/s"
            f"  {(meter.bytes - size) / span / 1e6:,.1f} MB/s"
            + ("" if worst is None else f"  p99 {worst:.2f} ms")
        )
        click.echo(f"\r{text.ljust(self._width)}", err=True, nl=False)
        self._width = len(text)

    def clear(self) -> None:
        """Takes the line away."""
        if self._width:
            click.echo(f"\r{' ' * self._width}\r", err=True, nl=False)
            self._width = 0


def report(what: dict[str, Any], meter: Meter, latency_of: str, output: str) -> None:
    """Prints the figures. what: the work and its settings; latency_of: what took so long."""
    told = {**what, **meter.told()}
    if output == "json":
        print_json(told)
        return
    setting = ", ".join(f"{name} {value}" for name, value in what.items() if value)
    click.echo(setting + (", stopped early" if meter.stopped else ""))
    latency = [f"{name} {ms:,.3f}" for name, ms in told["latency_ms"].items() if ms is not None]
    cpu_s = told["cpu_s_per_million"]
    lines = {
        "records": f"{told['records']:,} in {told['seconds']:,.2f} s",
        "rate": f"{told['records_per_s']:,.0f} records/s, {told['mb_per_s']:,.2f} MB/s",
        latency_of: "  ".join(latency) + " ms" if latency else "-",
        "client CPU": "-" if cpu_s is None else f"{cpu_s:,.2f} s a million records",
        "errors": told["errors"] and f"{told['errors']:,}; the first: {told['error']}",
    }
    for name, text in lines.items():
        if text:
            click.echo(f"  {name:<12}{text}")
