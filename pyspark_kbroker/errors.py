"""What the data source raises beside the client's own errors (kbroker.client.errors)."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterable, Iterator

__all__ = [
    "DataLossError",
    "EpochError",
    "FetchTimeoutError",
    "MissingTopicError",
    "OptionError",
    "nearest",
]


class OptionError(ValueError):
    """An option that the user must correct."""


class MissingTopicError(LookupError):
    """A topic or a partition that is to be read or written is not there."""


class DataLossError(RuntimeError):
    """Offsets that were to be read are gone, and failOnDataLoss is true."""


class EpochError(RuntimeError):
    """An epoch cannot be committed as it was written, or not be written again; nothing of what was
    written just now will be seen."""


class FetchTimeoutError(TimeoutError):
    """An executor got nothing for kafkaConsumer.pollTimeoutMs."""


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Say which Python it is that lacks a module, and how Spark is told of another one: its workers
    start `python3` of the PATH, whatever the driver runs."""
    try:
        yield
    except ImportError as error:
        if error.name == "pyspark":  # a worker has it from Spark
            text = "pyspark is missing: pip install 'kbroker[spark]'"
            raise ImportError(text, name=error.name) from None
        raise ImportError(
            f"{sys.executable}, the Python that Spark runs here, cannot import {error.name or ''}"
            f" ({error}): pip install 'kbroker[spark]' for it, or set PYSPARK_PYTHON to the Python"
            " that has it before the session starts",
            name=error.name,
        ) from error


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` where something is near."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, 1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
