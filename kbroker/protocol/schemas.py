"""kio's schemas, imported one API and version at a time, and laid out as tables of fields.

kio defines a message as frozen dataclasses, about 5 ms of import for each API and version, so a
schema is imported when the first request of its kind arrives. Two imports of kio are kept away
from the broker process: hypothesis (where tests have installed it, kio pulls it in for its own
strategies: 150 ms and more) and asyncio (used in one type alias: 25 ms and 7 MB).
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    import dataclasses

_UNWANTED = ("asyncio", "hypothesis")

# Types of kio that are null for one value of the wire's: the zero uuid, the timestamp -1.
_NULL_IS_A_VALUE = ("uuid", "datetime_i64")


class Field(NamedTuple):
    """One field of a struct in the order of the wire; tagged fields come last, by tag.

    `kind` is kio's name of the type on the wire, or "struct" with its schema in `schema`.
    """

    name: str
    kind: str
    schema: Any
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any


@functools.cache
def entity_reader(schema: Any) -> Any:
    """kio's native reader: (bytes, offset) -> (entity, bytes read)."""
    return _kio_reader()(schema)


@functools.cache
def _kio_reader() -> Any:
    """kio.serial without what it drags in."""
    asyncio: Any = types.ModuleType("asyncio")
    asyncio.StreamWriter = object
    stand_ins: dict[str, Any] = {"asyncio": asyncio, "hypothesis": None}
    held = {name: stand_ins[name] for name in _UNWANTED if name not in sys.modules}
    sys.modules.update(held)
    try:
        return importlib.import_module("kio.serial").entity_reader
    finally:
        for name in held:
            del sys.modules[name]


@functools.cache
def request_schema(key: ApiKey, version: int) -> Any:
    """kio's class of this request."""
    return _schema(key, version, "Request")


@functools.cache
def response_schema(key: ApiKey, version: int) -> Any:
    """kio's class of this response."""
    return _schema(key, version, "Response")


def _schema(key: ApiKey, version: int, kind: str) -> Any:
    _kio_reader()
    name = key.name.lower()
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind.lower()}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")) + kind)


@functools.cache
def fields_of(schema: Any) -> tuple[Field, ...]:
    """The fields of one struct."""
    import dataclasses  # noqa: PLC0415  with kio, not at the start

    fields = [_field(field) for field in dataclasses.fields(schema)]
    plain = [field for field in fields if field.tag is None]
    tagged = [field for field in fields if field.tag is not None]
    return (*plain, *sorted(tagged, key=lambda field: field.tag or 0))


def _field(field: dataclasses.Field[Any]) -> Field:
    import dataclasses  # noqa: PLC0415

    hint, nullable = _strip_none(field.type)
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint, _ = _strip_none(typing.get_args(hint)[0])
    kind = field.metadata.get("kafka_type", "struct")
    default = field.default
    if default is dataclasses.MISSING:
        default = _zero(kind, hint, is_array, nullable)
    elif kind.startswith("timedelta"):
        default = round(default.total_seconds() * 1000)
    elif dataclasses.is_dataclass(default):
        default = {}
    if default is None and kind == "datetime_i64":
        default = -1
    return Field(
        field.name,
        kind,
        hint if kind == "struct" else None,
        is_array,
        nullable and kind not in _NULL_IS_A_VALUE,
        field.metadata.get("tag"),
        default,
    )


def _strip_none(hint: Any) -> tuple[Any, bool]:
    """X of `X | None`, and whether it was one."""
    if isinstance(hint, types.UnionType):
        (inner,) = (arm for arm in typing.get_args(hint) if arm is not type(None))
        return inner, True
    return hint, False


def _zero(kind: str, hint: Any, is_array: bool, nullable: bool) -> Any:
    """What an absent field without a default is, in the terms of the codec."""
    if is_array:
        return ()
    if nullable or kind == "uuid":
        return None
    if kind == "struct":
        return {}
    if kind == "string":
        return ""
    return b"" if kind in ("bytes", "records") else 0
