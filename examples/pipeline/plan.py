"""What all parts of the pipeline agree on: names of topics, places of files, times."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from kbroker.client import NewTopic

FLIGHTS, WEATHER = "flights", "weather"
AIRLINES, AIRPORTS, PLANES = "airlines", "airports", "planes"
VALID, INVALID = "flights.valid", "flights.invalid"
ENRICHED, DELAYS = "flights.enriched", "delays"

ORIGINS = ("EWR", "JFK", "LGA")
DAY_MS = 86_400_000
#: More than this many minutes behind its schedule, a flight is late.
LATE_MINUTES = 15
#: At least so many miles an hour are a strong wind.
STRONG_WIND = 20.0

_FOREVER_MS = str(10 * 365 * DAY_MS)
#: The records are of 2013: no age may delete them, nor cut the log into weeks.
_KEPT = {"retention.ms": "-1", "segment.ms": _FOREVER_MS}
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": _FOREVER_MS}

TOPICS = (
    NewTopic(FLIGHTS, 4, 1, _KEPT),
    NewTopic(WEATHER, 2, 1, _KEPT),
    *(NewTopic(name, 1, 1, _COMPACTED) for name in (AIRLINES, AIRPORTS, PLANES)),
    NewTopic(VALID, 4, 1, _KEPT),
    NewTopic(INVALID, 1, 1, _KEPT),
    NewTopic(ENRICHED, 4, 1, _COMPACTED),
    NewTopic(DELAYS, 2, 1, _COMPACTED),
)


class Event(NamedTuple):
    """A record of the replay; its timestamp is when it happened, not when it is sent."""

    topic: str
    key: bytes
    value: bytes | None
    timestamp_ms: int


@dataclass(frozen=True)
class Plan:
    """One run. It crosses to the Spark process as JSON."""

    bootstrap: str
    home: Path
    format: str = "kbroker"
    days: int = 366
    #: Watermarks: how far behind the newest flight seen one may still come. In the time of the
    #: flights, of which a replay lets days pass in a second; see jobs.py for what needs it.
    lateness_days: int = 30
    #: Records of a topic that a micro-batch takes at most.
    batch_records: int = 10_000

    @property
    def lake(self) -> Path:
        """Parquet, by day and micro-batch."""
        return self.home / "lake"

    @property
    def checkpoints(self) -> Path:
        """Spark's, a folder for each job."""
        return self.home / "checkpoints"

    @property
    def replayed(self) -> Path:
        """This file is there once the replay is over, with the time of the last record in ms: the
        jobs work off what is left, and end."""
        return self.home / "replayed"

    @property
    def summary(self) -> Path:
        """What the batch job found."""
        return self.home / "summary.json"

    def to_json(self) -> str:
        """All of it, in one line."""
        return json.dumps(asdict(self) | {"home": str(self.home)})

    @staticmethod
    def from_json(text: str) -> Plan:
        """The way back."""
        told = json.loads(text)
        return Plan(**(told | {"home": Path(told["home"])}))
