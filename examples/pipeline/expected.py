"""What the pipeline has to find, computed with pandas from the source files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from examples.nycflights import data_folder
from examples.pipeline import source
from examples.pipeline.months import first_ms, months
from examples.pipeline.plan import DAY_MS, LATE_MINUTES, STRONG_WIND, Plan
from examples.pipeline.results import lines, rows_of


def table(name: str) -> pd.DataFrame:
    """One of the source files."""
    path = data_folder() / name
    return pd.read_csv(path, keep_default_na=False, na_values=["NA", ""],
                       float_precision="round_trip")  # fmt: skip


def flights(plan: Plan) -> pd.DataFrame:
    """The flights of the plan's days with `time`, `id` and `cancelled`."""
    frame = table("flights.csv.zip")
    frame["time"] = pd.to_datetime(frame["time_hour"], utc=True)
    over = pd.Timestamp(first_ms(1) + plan.days * DAY_MS, unit="ms", tz="UTC")
    frame = frame[frame["time"] < over]
    frame["id"] = frame["time_hour"] + "/" + frame["carrier"] + "/" + frame["flight"].astype(str)
    frame["cancelled"] = frame["dep_delay"].isna()
    return frame.drop(columns=["year", "month", "day", "hour", "minute", "dep_time", "arr_time",
                               "sched_dep_time", "sched_arr_time", "air_time"])  # fmt: skip


def with_weather(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Flights with columns of the weather at their airport in their hour."""
    weather = table("weather.csv")[["origin", "time_hour", *columns]]
    return frame.merge(weather, on=["origin", "time_hour"], how="left")


def enriched(frame: pd.DataFrame) -> pd.DataFrame:
    """Flights with their weather and what the dimension tables say."""
    airlines = table("airlines.csv").rename(columns={"name": "airline"})
    airports = table("airports.csv")[["faa", "name"]].rename(
        columns={"faa": "dest", "name": "destination"}
    )
    planes = table("planes.csv")[["tailnum", "manufacturer", "model", "seats"]]
    return (
        with_weather(frame, "temp", "wind_speed", "precip", "visib")
        .merge(airlines, on="carrier", how="left")
        .merge(airports, on="dest", how="left")
        .merge(planes, on="tailnum", how="left")
        .drop(columns="time")
    )


def delays(frame: pd.DataFrame) -> pd.DataFrame:
    """Departures of each airport in each hour."""
    told = frame.assign(late=frame["dep_delay"] > LATE_MINUTES)
    found = told.groupby(["origin", "time_hour"], as_index=False).agg(
        flights=("id", "count"),
        cancelled=("cancelled", "sum"),
        departed=("dep_delay", "count"),
        delay_sum=("dep_delay", "sum"),
        delay_max=("dep_delay", "max"),
        late=("late", "sum"),
    )
    found["delay_sum"] = found["delay_sum"].astype(int)
    return found.rename(columns={"time_hour": "hour"})


def summary(frame: pd.DataFrame, plan: Plan) -> Iterator[dict[str, Any]]:
    """Month by month, airport by airport."""
    joined = with_weather(frame, "wind_speed")
    joined["windy"] = joined["dep_delay"].where(joined["wind_speed"] >= STRONG_WIND)
    joined["late"] = joined["dep_delay"] > LATE_MINUTES
    for month, bounds in months(plan.days).items():
        start, end = (pd.Timestamp(bound, unit="ms", tz="UTC") for bound in bounds)
        within = joined[(joined["time"] >= start) & (joined["time"] < end)]
        found = within.groupby("origin", as_index=False).agg(
            flights=("id", "count"),
            cancelled=("cancelled", "sum"),
            departed=("dep_delay", "count"),
            delay_sum=("dep_delay", "sum"),
            late=("late", "sum"),
            in_wind=("windy", "count"),
            in_wind_sum=("windy", "sum"),
        )
        found = found.astype({"delay_sum": int, "in_wind_sum": int})
        yield from ({"month": month, **row} for row in rows_of(found))


def dead_letters(plan: Plan) -> Iterator[dict[str, Any]]:
    """The faulty records of the replay, but for the offsets that they got."""
    for event, fault in source.flights(plan.days):
        if fault:
            value = None if event.value is None else event.value.decode()
            yield {"fault": fault, "key": event.key.decode(), "value": value}


def expected(plan: Plan) -> dict[str, list[str]]:
    """All results, by the names of results.TITLES."""
    frame = flights(plan)
    by_hour = delays(frame)
    return {
        "invalid": lines(dead_letters(plan)),
        "enriched": lines(rows_of(enriched(frame))),
        "delays": lines(rows_of(by_hour)),
        "lake": lines(rows_of(by_hour.assign(day=by_hour["hour"].str[:10]))),
        "months": lines(summary(frame, plan)),
    }
