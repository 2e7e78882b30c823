"""The end of a run for people: a table and a plot."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from examples.pipeline.plan import LATE_MINUTES, ORIGINS, STRONG_WIND


def table(months: list[str]) -> Table:
    """A line for each airport and one for all, from the rows of the batch job."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for line in months:
        row: dict[str, Any] = json.loads(line)
        for airport in (row.pop("origin"), "all"):
            for name, value in row.items():
                if name != "month":
                    sums[airport][name] += value
    made = Table(
        title="Departures from New York City in 2013, mean delays in minutes",
        title_justify="left", box=SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    made.add_column("airport")
    headings = ("flights", "cancelled", f"over {LATE_MINUTES} min late", "delay",
                f"in wind of {STRONG_WIND:.0f} mph")  # fmt: skip
    for heading in headings:
        made.add_column(heading, justify="right")
    for airport in (*ORIGINS, "all"):
        of = sums[airport]
        flights, departed = max(1, of["flights"]), max(1, of["departed"])
        made.add_row(
            airport,
            f"{of['flights']:,}",
            f"{of['cancelled'] / flights:.1%}",
            f"{of['late'] / departed:.1%}",
            f"{of['delay_sum'] / departed:+.1f}",
            f"{of['in_wind_sum'] / max(1, of['in_wind']):+.1f}",
        )
    return made


def mean_delay(rows: pd.DataFrame, by: Any) -> pd.DataFrame:
    """Mean delay by something and airport."""
    sums = rows.groupby([by, "origin"])[["delay_sum", "departed"]].sum()
    return (sums["delay_sum"] / sums["departed"]).unstack("origin")


def plot(lake: pd.DataFrame, path: Path) -> None:
    """Mean delays day by day, and by the hour of the day, from the Parquet files."""
    there = lake.assign(local=lake["hour"].dt.tz_convert("America/New_York"))
    daily = mean_delay(there, there["local"].dt.tz_localize(None).dt.normalize().rename("day"))
    hourly = mean_delay(there, there["local"].dt.hour.rename("hour"))
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(10, 6.5), height_ratios=(3, 2), layout="constrained"
    )
    for number, airport in enumerate(daily.columns):
        color = f"C{number}"
        above.plot(daily.index, daily[airport], color=color, alpha=0.25, linewidth=0.8)
        week = daily[airport].rolling(7, center=True, min_periods=1).mean()
        above.plot(daily.index, week, color=color, label=airport)
        below.plot(hourly.index, hourly[airport], color=color, marker="o", markersize=3)
    below.set_xticks(range(5, 24, 2))
    above.set_title("Departure delay from New York City, 2013 (day, and mean of 7 days)")
    below.set_xlabel("hour of the scheduled departure, New York")
    for axes in (above, below):
        axes.set_ylabel("minutes")
        axes.grid(alpha=0.3)
    above.legend(frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)
