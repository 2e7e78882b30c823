"""Requests and responses of the Kafka protocol: plain values in, bytes out, and back, by kio.

A request is given as a mapping of field names to values, arrays of structs as lists of mappings,
in the newest version's terms. Fields that the negotiated version does not have are left out;
those not given take the schema's default, or zero, empty, null where it has none. A name that no
version knows is a bug of the caller and raises KeyError.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import io
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kbroker.client.errors import CorruptDataError

__all__ = ["VERSIONS", "Api", "decode_response", "encode_request"]


class Api(enum.IntEnum):
    """The API keys that this client calls."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_CLUSTER = 60


# Lowest and highest version of each API that this client is written for. The lowest are those of
# Kafka 2.4 to 2.6 (flexible headers everywhere); what a broker offers is met in ApiVersions.
VERSIONS: dict[Api, tuple[int, int]] = {
    Api.PRODUCE: (9, 13),
    Api.FETCH: (12, 17),
    Api.LIST_OFFSETS: (6, 10),
    Api.METADATA: (9, 13),
    Api.API_VERSIONS: (0, 4),
    Api.CREATE_TOPICS: (5, 7),
    Api.DELETE_TOPICS: (4, 6),
    Api.DELETE_RECORDS: (2, 2),
    Api.INIT_PRODUCER_ID: (3, 5),
    Api.DESCRIBE_CONFIGS: (3, 4),
    Api.DESCRIBE_LOG_DIRS: (2, 4),
    Api.CREATE_PARTITIONS: (2, 3),
    Api.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    Api.DESCRIBE_CLUSTER: (0, 2),
}

_CLIENT_ID = "kbroker"


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    """One field of a schema: how to turn a plain value into what kio writes."""

    name: str
    convert: Callable[[Any], Any]
    default: Any  # dataclasses.MISSING where kio's own default serves


def encode_request(
    api: Api, version: int, correlation_id: int, values: Mapping[str, Any], client_id: str | None
) -> bytes:
    """A whole request, header and body, without the length in front of it."""
    schema: Any = load_request_schema(api, version)
    unknown = set(values) - _names(load_request_schema(api, VERSIONS[api][1])) - _names(schema)
    if unknown:
        raise KeyError(f"{api.name} has no field {', '.join(sorted(unknown))}")
    out = io.BytesIO()
    header_fields: dict[str, Any] = {
        "request_api_key": int(api),
        "request_api_version": version,
        "correlation_id": correlation_id,
        "client_id": client_id if client_id is not None else _CLIENT_ID,
    }
    header = schema.__header_schema__
    entity_writer(header)(out, _fill(header, header_fields))
    entity_writer(schema)(out, _fill(schema, values))
    return out.getvalue()


def decode_response(api: Api, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and body (kio's dataclass) of a response frame."""
    schema: Any = load_response_schema(api, version)
    try:
        header, used = entity_reader(schema.__header_schema__)(frame, 0)
        body, more = entity_reader(schema)(frame, used)
    except Exception as error:  # kio raises several kinds for bytes that do not fit a schema
        raise CorruptDataError(f"{api.name} v{version} answer cannot be read: {error}") from error
    if used + more != len(frame):
        left = len(frame) - used - more
        raise CorruptDataError(f"{api.name} v{version} answer has {left} bytes too many")
    return int(header.correlation_id), body


def _fill(schema: Any, values: Mapping[str, Any]) -> Any:
    """A kio object of this schema, from plain values."""
    made = {}
    for slot in _slots(schema):
        if slot.name in values:
            made[slot.name] = slot.convert(values[slot.name])
        elif slot.default is not dataclasses.MISSING:
            made[slot.name] = slot.default
    return schema(**made)


@functools.cache
def _names(schema: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(schema))


@functools.cache
def _slots(schema: Any) -> tuple[_Slot, ...]:
    return tuple(_slot(field) for field in dataclasses.fields(schema))


def _slot(field: dataclasses.Field[Any]) -> _Slot:
    arms = list(_arms(field.type))
    optional = type(None) in arms
    (arm,) = (arm for arm in arms if arm is not type(None))
    convert = _converter(arm, field.metadata.get("kafka_type", ""))
    default: Any = dataclasses.MISSING
    if field.default is dataclasses.MISSING:
        default = None if optional else _zero(arm, convert)
    return _Slot(field.name, convert, default)


def _arms(hint: Any) -> Iterator[Any]:
    """The alternatives of `X | None`, or the one type itself."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        yield from typing.get_args(hint)
    else:
        yield hint


def _converter(arm: Any, kafka_type: str) -> Callable[[Any], Any]:
    if typing.get_origin(arm) is tuple:
        inner = _converter(typing.get_args(arm)[0], kafka_type)
        return lambda values: None if values is None else tuple(inner(v) for v in values)
    if dataclasses.is_dataclass(arm):
        return lambda values: None if values is None else _fill(arm, values)
    if kafka_type.startswith("timedelta"):
        return lambda ms: datetime.timedelta(milliseconds=ms)
    return lambda value: value


def _zero(arm: Any, convert: Callable[[Any], Any]) -> Any:
    """What an absent field without a default is sent as."""
    if typing.get_origin(arm) is tuple:
        return ()
    if dataclasses.is_dataclass(arm):
        return _fill(arm, {})
    for kind, zero in ((bool, False), (int, 0), (str, ""), (bytes, b"")):
        if issubclass(arm, kind):
            return zero
    return convert(0)
