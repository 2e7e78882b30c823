"""How far a stream is behind, from what Spark tells of its progress."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["behind_latest"]


def behind_latest(source: Any) -> dict[str, dict[str, int]]:
    """Offsets of each partition that were there and not read when a micro-batch was planned:
    {"topic": {"0": 23}}. source: one of a StreamingQueryProgress' `sources`.

    Spark takes metrics of a source only from those that are written in Java, such as the official
    connector's maxOffsetsBehindLatest; the offsets it tells of any.
    """
    latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
    return {
        topic: {
            index: max(offset - end.get(topic, {}).get(index, 0), 0)
            for index, offset in parts.items()
        }
        for topic, parts in latest.items()
    }


def _offsets(told: Any) -> Mapping[str, Mapping[str, int]]:
    """Text in a StreamingQueryProgress, which PySpark 4.1 writes as Python does; parsed already in
    its JSON."""
    found: Mapping[str, Mapping[str, int]] | None = told
    if isinstance(told, str):
        try:
            found = json.loads(told)
        except json.JSONDecodeError:
            found = ast.literal_eval(told)
    return found or {}
