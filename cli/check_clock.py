"""Whether the machine's clock can be right: `kbroker check`'s row of it."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kbroker.cli.finding import OK, WARNING, Finding
from kbroker.cli.render import human_time

__all__ = ["RELEASED", "clock"]

RELEASED: Final = datetime.date(2026, 11, 22)
_BEHIND_S = 60.0
_WHY = "retention and the timestamps of records go by it; `timedatectl` shows who sets it"


def clock(place: Path) -> Finding:
    """It is not before this version was made, nor before what a broker has written there."""
    now = datetime.datetime.now(datetime.UTC)
    text = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now.date() < RELEASED:
        return Finding("clock", WARNING, f"{text} is before this version was made; {_WHY}")
    behind_s, path = max(_written(place), default=(0.0, place))
    behind_s -= time.time()
    if behind_s > _BEHIND_S:
        text += f" is {human_time(behind_s)} before {path} was written; {_WHY}"
        return Finding("clock", WARNING, text)
    return Finding("clock", OK, text)


def _written(place: Path) -> Iterator[tuple[float, Path]]:
    """When each log file of a data directory was written last."""
    from kbroker.metadata.directories import further

    for folder in (place, *further(place)):
        for path in folder.glob("*/*.log"):
            try:
                yield path.stat().st_mtime, path
            except OSError:  # deleted meanwhile
                continue
