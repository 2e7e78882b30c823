"""Points in time as a user writes them."""

from __future__ import annotations

import datetime

import click

__all__ = ["parse_time_ms"]


def parse_time_ms(text: str, option: str) -> int:
    """Milliseconds since 1970: a number of them, or ISO 8601 (local time unless it says)."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: write ms since 1970, or a time such as 2026-01-31T12:00:00Z",
            param_hint=option,
        ) from None
    return int(when.timestamp() * 1000)
