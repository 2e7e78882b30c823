"""Error codes in answers, counted as Apache Kafka counts them for its ErrorsPerSec: each one that
an answer tells, of the whole and of every part, NONE too."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kbroker.protocol.api_keys import ApiKey
from kbroker.protocol.schemas import fields_of, response_schema

Counts = dict[int, int]
_Walk = Callable[[Counts, Mapping[str, Any]], None]


class Answered:
    """How often each API has answered with each error code. Any thread may call."""

    def __init__(self) -> None:
        self._counts: dict[ApiKey, Counts] = {}
        self._lock = threading.Lock()

    def add(self, key: ApiKey, version: int, response: Mapping[str, Any]) -> None:
        """Count the codes of an answer."""
        walk = _walk_of(response_schema(key, version))
        if walk is None:
            return
        added: Counts = {}
        walk(added, response)
        with self._lock:
            counts = self._counts.setdefault(key, {})
            for code, count in added.items():
                counts[code] = counts.get(code, 0) + count

    def copy(self) -> dict[ApiKey, Counts]:
        """Return the counts as they are now."""
        with self._lock:
            return {key: counts.copy() for key, counts in self._counts.items()}


@functools.cache
def _walk_of(schema: Any) -> _Walk | None:
    """What counts the codes in one struct; None where there is none in it."""
    fields = fields_of(schema)
    codes = [field.name for field in fields if field.kind == "error_code"]
    below = [
        (field.name, field.is_array, walk)
        for field in fields
        if field.kind == "struct" and (walk := _walk_of(field.schema)) is not None
    ]
    if not codes and not below:
        return None

    def walk_struct(counts: Counts, value: Mapping[str, Any]) -> None:
        get = value.get
        for name in codes:
            code = int(get(name, 0))
            counts[code] = counts.get(code, 0) + 1
        for name, is_array, walk in below:
            found = get(name)
            if not found:
                continue
            for one in found if is_array else (found,):
                walk(counts, one)

    return walk_struct
