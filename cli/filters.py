"""What `kbroker topic browse` looks for in records."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbroker.client import Record

__all__ = ["filter_of"]

Test = Callable[["Record"], bool]


def filter_of(
    *,
    key: str | None,
    headers: tuple[str, ...],
    contains: tuple[str, ...],
    regex: str | None,
    since_ms: int | None,
    until_ms: int | None,
) -> Test:
    """True for records that all of these fit. Raises click.BadParameter."""
    tests: list[Test] = []
    if since_ms is not None:
        tests.append(lambda record: record.timestamp >= since_ms)
    if until_ms is not None:
        tests.append(lambda record: record.timestamp < until_ms)
    if key is not None:
        tests.append(_key(key))
    tests += [_header(text) for text in headers]
    tests += [_contains(text) for text in contains]
    if regex is not None:
        tests.append(_regex(regex))
    return lambda record: all(test(record) for test in tests)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _key(text: str) -> Test:
    wanted = _raw(text)
    return lambda record: record.key == wanted


def _header(text: str) -> Test:
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r}: write NAME or NAME=VALUE", param_hint="--header")
    if not equals:
        return lambda record: any(found == name for found, _ in record.headers)
    entry = (name, _raw(value))
    return lambda record: entry in record.headers


def _contains(text: str) -> Test:
    wanted = _raw(text)

    def test(record: Record) -> bool:
        return wanted in (record.value or b"") or wanted in (record.key or b"")

    return test


def _regex(text: str) -> Test:
    try:
        pattern = re.compile(_raw(text))
    except (re.error, RecursionError) as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--regex") from error
    return lambda record: pattern.search(record.value or b"") is not None
