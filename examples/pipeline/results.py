"""What the pipeline has left behind, in lines of JSON that can be compared: sorted, one a row.

Topics that are compacted are read as what they mean: of each key the last value. Dead letters are
told apart by where they came from, so that one that was written twice counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from examples.pipeline.plan import DELAYS, ENRICHED, INVALID, Plan
from kbroker.client import Consumer, Record, TopicPartition

#: Results by name, as people call them.
TITLES = {
    "invalid": "dead letters, in flights.invalid",
    "enriched": "flights with weather, airline, destination and plane, in flights.enriched",
    "delays": "delays by airport and hour, in delays",
    "lake": "the same in Parquet",
    "months": "the batch job, airports by month",
}


def line(row: dict[str, Any]) -> str:
    """A row as text; what is null is left out."""
    return json.dumps({name: value for name, value in row.items() if value is not None},
                      sort_keys=True)  # fmt: skip


def lines(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows as text, in an order of their own."""
    return sorted(line(row) for row in rows)


def read(bootstrap: str, topic: str) -> Iterator[Record]:
    """All that a topic holds now."""
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, info.index) for info in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        while any(consumer.position(place) < ends[place] for place in places):
            yield from consumer.poll(1.0)


def last(bootstrap: str, topic: str) -> Iterator[dict[str, Any]]:
    """The value of each key as it stands."""
    found = {record.key: record.value for record in read(bootstrap, topic)}
    return (json.loads(value) for value in found.values() if value is not None)


def dead_letters(bootstrap: str) -> Iterator[dict[str, Any]]:
    """Each faulty record once."""
    found = {}
    for record in read(bootstrap, INVALID):
        headers = {name: (value or b"").decode() for name, value in record.headers}
        found[headers["from"]] = (headers["fault"], record.key, record.value)
    for place, (fault, key, value) in found.items():
        shown = None if value is None else value.decode()
        yield {"from": place, "fault": fault, "key": (key or b"").decode(), "value": shown}


def lake(plan: Plan) -> pd.DataFrame:
    """The Parquet files; their folders tell `day` and `batch`."""
    return pd.read_parquet(plan.lake)


def lake_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """Rows of the Parquet files: every row that is in a file, not only each key once."""
    frame = lake(plan).drop(columns="batch")
    frame["hour"] = frame["hour"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    frame["day"] = frame["day"].astype(str)
    return rows_of(frame)


def rows_of(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows of a frame; what pandas has no value for is None, and whole numbers are whole."""
    whole = [name for name, kind in frame.dtypes.items() if kind == "float64" and name in WHOLE]
    frame = frame.astype(dict.fromkeys(whole, "Int64"))
    columns = [frame[name].astype(object).where(frame[name].notna(), None) for name in frame]
    for values in zip(*columns, strict=True):
        yield dict(zip(frame.columns, values, strict=True))


#: Columns that are whole numbers though pandas makes floats of them where some are missing.
WHOLE = frozenset({"dep_delay", "arr_delay", "seats", "delay_max"})


def without_place(letters: list[str]) -> list[str]:
    """Dead letters as what they hold, but for where they were."""
    return lines({k: v for k, v in json.loads(letter).items() if k != "from"} for letter in letters)


def found(plan: Plan) -> dict[str, list[str]]:
    """All results, by the names of TITLES."""
    months = json.loads(plan.summary.read_text())
    return {
        "invalid": lines(dead_letters(plan.bootstrap)),
        "enriched": lines(last(plan.bootstrap, ENRICHED)),
        "delays": lines(last(plan.bootstrap, DELAYS)),
        "lake": lines(lake_rows(plan)),
        "months": lines({"month": month, **row} for month, rows in months.items() for row in rows),
    }


def differences(found: dict[str, list[str]], wanted: dict[str, list[str]]) -> dict[str, list[str]]:
    """By name of the result: rows that are missing (-) or too many (+)."""
    told = {}
    for name, rows in wanted.items():
        got = without_place(found[name]) if name == "invalid" else found[name]
        if got == rows:
            continue
        missing = [f"- {row}" for row in sorted(set(rows) - set(got))]
        extra = [f"+ {row}" for row in sorted(set(got) - set(rows))]
        told[name] = missing + extra or [f"{len(got)} rows, {len(rows)} wanted: some twice"]
    return told
