"""Deserializers: (topic, bytes) -> object, for `key_deserializer` and `value_deserializer`.

One of these by its name (`bytes`, `str`, `json`), or any callable that needs one argument (the
bytes) or two (topic and bytes). None, a null key or a tombstone, is never given to them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from kbroker.client.errors import ConfigError, DeserializationError
from kbroker.ext.client_record import Record

__all__ = ["DESERIALIZERS", "Deserializer", "converter", "deserializer_of"]

Deserializer = Callable[[str, bytes], Any]


def _bytes(_: str, data: bytes) -> bytes:
    return data


def _str(_: str, data: bytes) -> str:
    return data.decode()


def _json(_: str, data: bytes) -> Any:
    return json.loads(data)


DESERIALIZERS: dict[str, Deserializer] = {"bytes": _bytes, "str": _str, "json": _json}


def deserializer_of(given: Any, field: str) -> Deserializer | None:
    """What a setting says; None: bytes as they are. Raises ConfigError naming the field."""
    if given is None or given == "bytes":
        return None
    if isinstance(given, str):
        if given not in DESERIALIZERS:
            known = ", ".join(DESERIALIZERS)
            raise ConfigError(f"{field}: {given!r} is none of {known}, nor a callable")
        return DESERIALIZERS[given]
    if not callable(given):
        raise ConfigError(f"{field}: {type(given).__name__} cannot be called")
    if _must_have(given) < 2:
        return lambda _, data: given(data)
    wanted: Deserializer = given
    return wanted


def _must_have(function: Callable[..., Any]) -> int:
    """How many arguments it has to be given; an optional second one is none of ours."""
    try:
        told = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that tells no signature
        return 1
    every = [one for one in told.parameters.values() if one.default is one.empty]
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in every)


def converter(
    key: Deserializer | None, value: Deserializer | None
) -> Callable[[Record], None] | None:
    """Puts objects in the place of a record's bytes; None: nothing to be done.

    It raises DeserializationError, naming topic, partition and offset.
    """
    if key is None and value is None:
        return None

    def convert(record: Record) -> None:
        part = "key"
        try:
            if key is not None and record.key is not None:
                record.replace(key=key(record.topic, record.key))
            part = "value"
            if value is not None and record.value is not None:
                record.replace(value=value(record.topic, record.value))
        except Exception as error:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            raise DeserializationError(
                f"{where}: the {part} deserializer failed ({type(error).__name__}: {error});"
                f" seek to {record.offset + 1} to pass over the record",
                record.topic,
                record.partition,
                record.offset,
            ) from error

    return convert
