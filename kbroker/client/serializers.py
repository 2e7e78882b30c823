"""Serializers: (topic, object) -> bytes or None, and the deserializers that undo them.

`key_serializer` and `value_serializer` of a producer take one of these by its name (`bytes`,
`str`, `json`), or any callable with one argument (the object) or two (topic and object). None, a
null key or a tombstone, is never given to them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from kbroker.client.errors import ConfigError

__all__ = [
    "SERIALIZERS",
    "Serializer",
    "bytes_serializer",
    "json_serializer",
    "serializer_of",
    "str_serializer",
]

Serializer = Callable[[str, Any], bytes | None]


def bytes_serializer(_: str, given: Any) -> bytes:
    """Anything with a buffer."""
    if isinstance(given, str):
        raise TypeError("str is not bytes; encode it, or use the serializer 'str'")
    return bytes(memoryview(given))


def str_serializer(_: str, given: Any) -> bytes:
    """Text as UTF-8."""
    if not isinstance(given, str):
        raise TypeError(f"{type(given).__name__} is not str")
    return given.encode()


def json_serializer(_: str, given: Any) -> bytes:
    """What `json` can say, without blanks, as UTF-8."""
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False).encode()


SERIALIZERS: dict[str, Serializer] = {
    "bytes": bytes_serializer,
    "str": str_serializer,
    "json": json_serializer,
}


def serializer_of(given: Any, field: str) -> Serializer | None:
    """What a setting says; None: bytes as they are. One that has another for keys (`of_key`) is
    asked for it where the setting is that of keys."""
    if given is None:
        return None
    if field == "key.serializer" and hasattr(given, "of_key"):
        given = given.of_key()
    if isinstance(given, str):
        if given not in SERIALIZERS:
            raise ConfigError(
                f"{field}: {given!r} is none of {', '.join(SERIALIZERS)}, and no callable"
            )
        return SERIALIZERS[given]
    if not callable(given):
        raise ConfigError(f"{field}: {type(given).__name__} is neither a name nor a callable")
    if _arguments(given) >= 2:
        return given  # type: ignore[no-any-return]
    return lambda _, value: given(value)


def _arguments(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in places and p.default is p.empty for p in parameters)
