"""Points in time, and spans of it, as a user writes them."""

from __future__ import annotations

import datetime
import re
import time

import click

__all__ = ["TIME_FORMS", "parse_duration_ms", "parse_time_ms"]

#: What help says of TIME.
TIME_FORMS = "ms since 1970, ISO 8601 (local time unless it ends with Z or an offset), or 10m ago"

_TIME_MAX_MS = 2**63 - 1  # the protocol's int64
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_SECONDS = range(10**9, 10**11)  # as seconds the years from 2001 on, as ms those up to 1973
_DIGITS_MAX = 19  # of 2**63; Python refuses to read some thousands
_NUMBER = r"(\d+(?:\.\d+)?)"
_ISO = re.compile(
    rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_SHORT = re.compile(rf"(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?")
_UNITS_MS = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000)


def parse_time_ms(text: str, option: str) -> int:
    """Milliseconds since 1970: a number of them, ISO 8601 (local time unless it says), now, or
    a span of time before now: `10m ago`, -10m.

    Raises click.BadParameter, also for a time before 1970: to a broker a negative number is no time
    but a place, -1 the end of the log.
    """
    at_ms = _time_ms(text, option)
    if at_ms < 0:
        raise click.BadParameter(f"{text!r} is before 1970", param_hint=option)
    if at_ms > _TIME_MAX_MS:
        raise click.BadParameter(f"{text!r} is later than times go", param_hint=option)
    return at_ms


def _time_ms(text: str, option: str) -> int:
    if text.isascii() and text.isdigit():
        if int(text[:_DIGITS_MAX]) in _SECONDS:
            raise click.BadParameter(
                f"{text!r} ms would be a time in the years 1970 to 1973; of seconds since 1970 make"
                f" ms: {text}000, or write a date such as 1970-01-31",
                param_hint=option,
            )
        return int(text) if len(text.lstrip("0")) <= _DIGITS_MAX else _TIME_MAX_MS + 1
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
    try:
        return ((when if when.tzinfo else when.astimezone()) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):  # a local time at either end of the calendar
        return -1 if when < datetime.datetime(1970, 1, 1) else _TIME_MAX_MS + 1


def parse_duration_ms(text: str, option: str) -> int:
    """Milliseconds of ISO 8601's P1DT2H30M, or of 1d2h30m. Raises click.BadParameter."""
    found = (_ISO if text[:1] in ("P", "p") else _SHORT).fullmatch(text.upper())
    if found is None or not any(found.groups()):
        raise click.BadParameter(
            f"{text!r}: write a span such as 90s, 2h, 1d12h or P1DT12H", param_hint=option
        )
    parts = zip(found.groups(), _UNITS_MS, strict=True)
    span_ms = sum(float(number) * unit_ms for number, unit_ms in parts if number)
    if span_ms > _TIME_MAX_MS:
        raise click.BadParameter(f"{text!r} is longer than times go", param_hint=option)
    return int(span_ms)
