"""Points in time, and spans of it, as a user writes them."""

from __future__ import annotations

import datetime
import re
import time

import click

__all__ = ["parse_duration_ms", "parse_time_ms"]

_NUMBER = r"(\d+(?:\.\d+)?)"
_ISO = re.compile(
    rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_SHORT = re.compile(rf"(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?")
_UNITS_MS = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000)


def parse_time_ms(text: str, option: str) -> int:
    """Milliseconds since 1970: a number of them, ISO 8601 (local time unless it says), now, or
    a span of time before now: `10m ago`, -10m."""
    if text.isascii() and text.isdigit():
        return int(text)
    if text == "now":
        return int(time.time() * 1000)
    span = text.removesuffix("ago").rstrip() if text.endswith("ago") else text.removeprefix("-")
    if span != text:
        return int(time.time() * 1000) - parse_duration_ms(span, option)
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: write ms since 1970, a time such as 2026-01-31T12:00:00Z, or 10m ago",
            param_hint=option,
        ) from None
    return int(when.timestamp() * 1000)


def parse_duration_ms(text: str, option: str) -> int:
    """Milliseconds of ISO 8601's P1DT2H30M, or of 1d2h30m."""
    found = (_ISO if text[:1] in ("P", "p") else _SHORT).fullmatch(text.upper())
    if found is None or not any(found.groups()):
        raise click.BadParameter(
            f"{text!r}: write a span such as 90s, 2h, 1d12h or P1DT12H", param_hint=option
        )
    parts = zip(found.groups(), _UNITS_MS, strict=True)
    return int(sum(float(number) * unit_ms for number, unit_ms in parts if number))
