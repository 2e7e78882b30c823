"""What the HTTP listener of a broker tells: metrics for `kbroker top`, and what of
the coordinators' topics is damaged for `kbroker status` and `check`."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kbroker import runfile
from kbroker.cli.places import default_data_dir
from kbroker.errors import OperatorError

_TIMEOUT_S = 10.0
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")

Labels = tuple[tuple[str, str], ...]


class Scrape(NamedTuple):
    """Samples by name and labels, and when they were taken (monotonic)."""

    at_s: float
    samples: Mapping[str, Mapping[Labels, float]]

    def value(self, name: str, **labels: str) -> float | None:
        """One sample, None where there is none."""
        return self.samples.get(name, {}).get(tuple(labels.items()))

    def total(self, name: str, **labels: str) -> float:
        """All samples of a name that have these labels, added up."""
        wanted = set(labels.items())
        return sum(value for at, value in self.samples.get(name, {}).items() if wanted <= set(at))

    def by(self, name: str, label: str) -> dict[str, float]:
        """Samples of a name added up by one label."""
        found: dict[str, float] = {}
        for at, value in self.samples.get(name, {}).items():
            key = dict(at).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found


def metrics_url(data_dir: Path | None) -> str:
    """Where the broker of a data directory serves its metrics. Raises OperatorError."""
    place = data_dir or default_data_dir()
    info = runfile.running(place)
    if info is None:
        raise OperatorError(f"no broker runs on {place}; name one with --url http://HOST:PORT")
    if not info.http:
        raise OperatorError(
            "this broker serves no metrics; start it with kbroker.http.listeners=HTTP://HOST:PORT"
        )
    return _reachable(info.http[0])


def _reachable(url: str) -> str:
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def scrape(url: str) -> Scrape:
    """Read /metrics once. Raises OperatorError where nobody answers."""
    return Scrape(time.monotonic(), parse(_get(url, "/metrics")))


_STATE = {
    "groups": ("group", "__consumer_offsets", "groups"),
    "transactions": ("transaction", "__transaction_state", "transactional ids"),
}
"""Each coordinator's topic: its kind in /status, its name, and what is in it."""


def state_troubles(info: runfile.RunInfo) -> dict[str, str | None]:
    """What of each coordinator's topic a broker could not read, in words; None where that is
    nothing, or where it has no HTTP listener that answers."""
    try:
        told = json.loads(_get(_reachable(info.http[0]), "/status")) if info.http else {}
    except (OperatorError, ValueError):
        told = {}
    return {name: _state_trouble(told, *state) for name, state in _STATE.items()}


def lives(info: runfile.RunInfo) -> bool:
    """Whether the broker says so itself: both of its planes move."""
    try:
        return bool(info.http) and bool(_get(_reachable(info.http[0]), "/livez"))
    except OperatorError:
        return False


def beyond_looking(info: runfile.RunInfo, address: str) -> str | None:
    """Of a broker that asks who one is and takes connections: why nothing else can be told of it,
    and what to do; None where it has an HTTP listener that could tell."""
    if info.http or not _takes_connections(address):
        return None
    return (
        f"cannot be looked into: {address} asks who one is, and it has no HTTP listener that says"
        " whether it lives; `kbroker cluster health` with -X or --profile asks it, or"
        " kbroker.http.listeners=HTTP://127.0.0.1:9308 gives it one"
    )


def _takes_connections(address: str) -> bool:
    import socket

    from kbroker.client.address import parse_address

    try:
        at = parse_address(address)
        socket.create_connection((at.host, at.port), _TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def _state_trouble(told: Mapping[str, int], kind: str, topic: str, holds: str) -> str | None:
    found = []
    if failed := told.get(f"{kind}_partitions_failed"):
        found.append(f"{failed} partitions of {topic} cannot be read, their {holds} are not"
                     " served; the log names the error")  # fmt: skip
    if places := told.get(f"{kind}_state_passed_over"):
        found.append(f"{places} damaged places of {topic} were passed over; stop the broker and"
                     " `kbroker log repair --drop` takes them out")  # fmt: skip
    return "; ".join(found) or None


def _get(url: str, page: str) -> str:
    import http.client
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        path = parts.path.rstrip("/")
        connection = http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", path if path.endswith(page) else f"{path}{page}")
            answer = connection.getresponse()
            text = answer.read().decode()
    # no address, or no port, that there can be is a ValueError or OverflowError
    except (OSError, http.client.HTTPException, ValueError, OverflowError) as error:
        raise OperatorError(f"{url} does not answer: {error}") from None
    if answer.status != 200:
        raise OperatorError(f"{url} answers {answer.status}: {text.strip()[:200]}")
    return text


def parse(text: str) -> dict[str, dict[Labels, float]]:
    """Prometheus' text format: samples by name and labels, in the order in which they are told."""
    found: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        at, _, value = line.rpartition(" ")
        name, _, labels = at.partition("{")
        pairs = tuple((key, _ESCAPE.sub(_plain, told)) for key, told in _LABEL.findall(labels))
        found.setdefault(name, {})[pairs] = float(value)
    return found


def _plain(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
