"""Which APIs the broker answers, in which versions, and by what.

Every handler's file registers itself with one line; the dispatch table, the ApiVersions answer
and what the data plane is told are all derived from those lines. A key that is registered twice,
or with a version that has no schema, fails at import.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kbroker.operations import Completion, Steps
from kbroker.protocol import ApiKey

Response = Mapping[str, Any]
Outcome = Response | Completion[Response] | Steps[Response | Completion[Response]]
Handler = Callable[[Any, Any], Outcome]
"""(request, context) -> the response, its Completion, or the steps of an operation that return
either (kbroker.operations)."""
Failure = Callable[[Any, int, str], Response]
Left = Callable[[Any, Any], None]
Timeout = Callable[[Any, Any], int]


def top_level_error(request: Any, code: int, message: str) -> Response:
    """The answer to a request that failed as a whole, where it has one place for that."""
    return {"error_code": code, "error_message": message}


class Registration(NamedTuple):
    """Versions that are served, the lowest that is advertised, and what answers.

    handler: None where the data plane answers by itself.
    failed:  makes the answer to a request whose handler raised: (request, error code, message) ->
             response.
    parks:   the answer may be long in coming; such requests are bounded in number and bytes.
    left:    takes what the data plane leaves to the control thread: (request, services).
    timeout: how long the client waits (ms), from (request, context): REQUEST_TIMED_OUT is answered
             then, and at once where it is 0 or less, as Apache Kafka's controller does. None:
             without end.
    changes: the handler's steps run alone among changes of the metadata.
    """

    key: ApiKey
    low: int
    high: int
    advertised_low: int
    handler: Handler | None
    failed: Failure = top_level_error
    parks: bool = False
    left: Left | None = None
    timeout: Timeout | None = None
    changes: bool = False


Table = Mapping[ApiKey, Registration]

_TABLE: Final[dict[ApiKey, Registration]] = {}
_INNER: Final[dict[tuple[int, int], Left]] = {}


def register(
    key: ApiKey,
    low: int,
    high: int,
    *,
    failed: Failure = top_level_error,
    parks: bool = False,
    timeout: Timeout | None = None,
    changes: bool = False,
) -> Callable[[Handler], Handler]:
    """Decorator: the function answers this key in versions `low` to `high`. A change without a
    timeout of the client's has `request.timeout.ms`."""
    if changes and timeout is None:
        timeout = request_timeout

    def add(handler: Handler) -> Handler:
        _add(Registration(key, low, high, low, handler, failed, parks, None, timeout, changes))
        return handler

    return add


def request_timeout(_: Any, context: Any) -> int:
    """The broker's request.timeout.ms."""
    timeout_ms: int = context.config.integer("request.timeout.ms")
    return timeout_ms


def register_data_plane(
    key: ApiKey,
    low: int,
    high: int,
    *,
    advertised_low: int | None = None,
    left: Left | None = None,
) -> None:
    """The data plane answers this key; only what it leaves for `left` comes to the control thread.
    """
    lowest = low if advertised_low is None else advertised_low
    _add(Registration(key, low, high, lowest, None, left=left))


def register_inner(key: int, version: int) -> Callable[[Left], Left]:
    """Decorator: the function, of (request, services), takes what the data plane asks under a key
    and version that no client can send."""

    def add(take: Left) -> Left:
        if _INNER.setdefault((key, version), take) is not take:
            raise RuntimeError(f"key {key}, version {version} is registered twice")
        return take

    return add


def inner_table() -> dict[tuple[int, int], Left]:
    """What was registered by `register_inner`, once `table` was asked for."""
    return dict(_INNER)


def _add(entry: Registration) -> None:
    if entry.key in _TABLE:
        raise RuntimeError(f"{entry.key.name} is registered twice")
    if not 0 <= entry.advertised_low <= entry.low <= entry.high:
        raise RuntimeError(f"{entry.key.name}: versions {entry.low} to {entry.high}")
    _TABLE[entry.key] = entry


def table() -> Table:
    """All registrations in the order of their keys; imports the handlers' files."""
    import kbroker.api as room  # noqa: PLC0415  the room imports this module's neighbours

    for file in sorted(os.listdir(room.__path__[0])):
        name, _, kind = file.partition(".")
        if kind == "py" and name[:1] == "k" and name[1:3].isdigit():
            importlib.import_module(f"{room.__name__}.{name}")
    return dict(sorted(_TABLE.items()))
