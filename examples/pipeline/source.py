"""What is replayed: the source files as records in the order of their time, and some faulty ones.

Between the flights come broken records (one after every 500 flights, six kinds in turn), as any
real topic has them; and the dimension tables come as a history of changes: some rows are announced
with something that is corrected later, and a carrier appears that is deleted again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain

from examples.nycflights import Value, data_folder, hour_ms, plain, rows
from examples.pipeline.plan import (
    AIRLINES,
    AIRPORTS,
    DAY_MS,
    FLIGHTS,
    PLANES,
    WEATHER,
    Event,
    Plan,
)

_FAULT_EVERY = 500
_BEGIN_MS = hour_ms("2013-01-01T05:00:00Z")  # midnight in New York
_KEYS = {AIRLINES: "carrier", AIRPORTS: "faa", PLANES: "tailnum"}

Fields = dict[str, Value]


def in_json(fields: Fields) -> bytes:
    """A record's value."""
    return json.dumps(fields, separators=(",", ":")).encode()


def dimensions() -> Iterator[Event]:
    """The tables of airlines, airports and planes, as they came to be."""
    yield Event(AIRLINES, b"ZZ", in_json({"carrier": "ZZ", "name": "Nobody's"}), _BEGIN_MS)
    for topic, key in _KEYS.items():
        table = [
            {name: plain(name, text) for name, text in row.items()}
            for row in rows(data_folder() / f"{topic}.csv")
        ]
        corrected = table[::10]
        for row in corrected:
            told = row | {"name": "to be announced", "model": "to be announced"}
            yield Event(topic, str(row[key]).encode(), in_json(told), _BEGIN_MS)
        for row in table:
            yield Event(topic, str(row[key]).encode(), in_json(row), _BEGIN_MS)
    yield Event(AIRLINES, b"ZZ", None, _BEGIN_MS)


def flights(days: int) -> Iterator[tuple[Event, str]]:
    """The flights of the first days in their order in time, and faulty records between them, each
    with what is wrong with it ("": nothing)."""
    found = []
    for row in rows(data_folder() / "flights.csv.zip"):
        time_ms = hour_ms(row["time_hour"])
        if time_ms < _BEGIN_MS + days * DAY_MS:
            found.append((time_ms, row))
    found.sort(key=lambda item: item[0])
    for number, (time_ms, row) in enumerate(found, 1):
        fields = {name: plain(name, text) for name, text in row.items()}
        key = (row["carrier"] + row["flight"]).encode()
        yield Event(FLIGHTS, key, in_json(fields), time_ms), ""
        if number % _FAULT_EVERY == 0:
            fault, value = spoiled(fields, number // _FAULT_EVERY)
            yield Event(FLIGHTS, key, value, time_ms), fault


def spoiled(fields: Fields, number: int) -> tuple[str, bytes | None]:
    """A flight with a fault, of each kind in turn."""
    match number % 6:
        case 0:
            return "not a flight in JSON", in_json(fields)[:100]
        case 1:
            return "not a flight in JSON", in_json(fields | {"distance": "far"})
        case 2:
            return "no time", in_json(fields | {"time_hour": "soon"})
        case 3:
            return "not from New York", in_json(fields | {"origin": "QQQ"})
        case 4:
            return "no distance", in_json(fields | {"distance": -1})
    return "no value", None


def weather(days: int) -> Iterator[Event]:
    """The weather of the same days."""
    found = []
    for row in rows(data_folder() / "weather.csv"):
        time_ms = hour_ms(row["time_hour"])
        if time_ms < _BEGIN_MS + days * DAY_MS:
            fields = {name: plain(name, text) for name, text in row.items()}
            found.append(Event(WEATHER, row["origin"].encode(), in_json(fields), time_ms))
    return iter(sorted(found, key=lambda event: event.timestamp_ms))


def events(plan: Plan) -> list[Event]:
    """Flights and weather in the order of their time."""
    both = chain(weather(plan.days), (event for event, _ in flights(plan.days)))
    return sorted(both, key=lambda event: event.timestamp_ms)


def ticks(plan: Plan, last_ms: int) -> list[Event]:
    """The last records: nothing but a time, so late that every window is over by the watermark.
    Without them the end of a stream would wait for records that never come. The weather's has an
    airport, though there is none of that name: Spark drops what cannot be joined before it looks at
    its time."""
    time_ms = last_ms + 2 * plan.lateness_days * DAY_MS
    tick: Fields = {"time_hour": in_iso(time_ms), "tick": True}
    return [
        Event(FLIGHTS, b"tick", in_json(tick), time_ms),
        Event(WEATHER, b"tick", in_json(tick | {"origin": "-"}), time_ms),
    ]


def in_iso(time_ms: int) -> str:
    """A time as the source files write it."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
