"""One name for time limits: `timeout_s`, in all that applications call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import kbroker.client
import kbroker.testing
from kbroker.client.schema_registry import SchemaRegistry

LIKE_FUTURES = {"result", "exception"}
"""Of deliveries, whose parameter is named as by concurrent.futures.Future: what takes futures takes
them as well."""


def _callables() -> Iterator[tuple[str, object]]:
    kinds = [getattr(kbroker.client, name) for name in kbroker.client.__all__]
    kinds += [getattr(kbroker.testing, name) for name in kbroker.testing.__all__]
    for kind in [*filter(callable, kinds), SchemaRegistry]:
        yield kind.__name__, kind
        if inspect.isclass(kind) and not issubclass(kind, BaseException):
            for name in dir(kind):
                if not name.startswith("_") and callable(getattr(kind, name)):
                    yield f"{kind.__name__}.{name}", getattr(kind, name)


def _parameters(call: object) -> set[str]:
    try:
        return set(inspect.signature(call).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # what C makes of builtin types
        return set()


def test_time_limits_have_one_name() -> None:
    every = {name: _parameters(call) for name, call in _callables()}
    named = {name for name, parameters in every.items() if "timeout" in parameters}
    kinds = {name.split(".")[0] for name in named}
    assert named == {f"{kind}.{name}" for kind in kinds for name in LIKE_FUTURES}
    assert kinds == {"Delivery", "BatchDelivery"}
    bounded = ["Producer.flush", "Producer.commit", "AsyncProducer.close", "Consumer.poll"]
    bounded += ["Admin.close", "AsyncAdmin.close", "Delivery.wait", "BatchDelivery.wait"]
    for name in bounded:
        assert "timeout_s" in every[name], name
