"""The page of what clients pushed (KIP-714): OpenTelemetry's MetricsData, version 1, as samples.

A push is protobuf: MetricsData 1: ResourceMetrics 2: ScopeMetrics 2: Metric (name 1, gauge 5 or sum
7) 1: NumberDataPoint (double 4, sfixed64 6, attributes 7: KeyValue). Other kinds of metrics and all
other fields are passed over. Its bytes are a client's: what is malformed is left out, and bounds
hold for what it becomes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kbroker.ext.compression import decompress
from kbroker.limits import TELEMETRY_PLAIN_MAX_BYTES, TELEMETRY_POINTS_MAX_COUNT
from kbroker.metrics.family import GAUGE, Family, Samples, labels_text
from kbroker.telemetry import Push
from kbroker.uuids import uuid_text

NAME: Final = "kbroker_client_metric"
UNREADABLE: Final = "kbroker_client_pushes_unreadable"
FAMILIES: Final = (
    Family(NAME, GAUGE, "A number that a client pushed last.",
           ("client_id", "instance", "metric", "attributes")),
    Family(UNREADABLE, GAUGE, "Pushes that are no metrics, or too much when decompressed."),
)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GAUGE, _SUM = 5, 7
_VARINT_BITS_MAX: Final = 63


class Point(NamedTuple):
    """One number."""

    metric: str
    attributes: str
    value: float


def collect(pushes: Iterable[Push]) -> Samples:
    """The samples of the page."""
    samples = Samples(FAMILIES)
    unreadable = 0
    left = TELEMETRY_POINTS_MAX_COUNT
    for push in pushes:
        try:
            points = list(_some(read(plain(push)), left))
        except (ValueError, struct.error):
            unreadable += 1
            continue
        left -= len(points)
        for point in points:
            labels = labels_text(
                client_id=push.client_id,
                instance=uuid_text(push.instance.bytes),
                metric=point.metric,
                attributes=point.attributes,
            )
            samples.add(NAME, point.value, labels)
    samples.add(UNREADABLE, unreadable)
    return samples


def _some(points: Iterator[Point], most: int) -> Iterator[Point]:
    for _, point in zip(range(most), points, strict=False):
        yield point


def plain(push: Push) -> bytes:
    """A push as it was before it was compressed. Raises ValueError."""
    if push.codec == "none":
        return push.data
    return decompress(push.codec, push.data, TELEMETRY_PLAIN_MAX_BYTES)


def read(data: bytes) -> Iterator[Point]:
    """The numbers in a MetricsData. Raises ValueError or struct.error for what is none."""
    for resource in _parts(data, 1):
        for scope in _parts(resource, 2):
            for metric in _parts(scope, 2):
                yield from _points(metric)


def _points(metric: bytes) -> Iterator[Point]:
    fields = list(_fields(metric))
    name = next((_text(value) for number, value in fields if number == 1), "")
    for number, value in fields:
        if number in (_GAUGE, _SUM):
            for point in _parts(_piece(value), 1):
                yield _point(name, point)


def _point(name: str, data: bytes) -> Point:
    value, attributes = 0.0, []
    for number, raw in _fields(data):
        if number == 4:
            (value,) = struct.unpack("<d", _piece(raw))
        elif number == 6:
            (value,) = struct.unpack("<q", _piece(raw))
        elif number == 7:
            attributes.append(_attribute(_piece(raw)))
    return Point(name, ",".join(sorted(attributes)), value)


def _attribute(data: bytes) -> str:
    key, told = "", ""
    for number, value in _fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            for kind, inner in _fields(_piece(value)):
                told = _told(kind, inner)
    return f"{key}={told}"


def _told(kind: int, value: int | bytes) -> str:
    """A string, an int64 (which stands as its two's complement) or a boolean, 0 or 1."""
    if kind == 1:
        return _text(value)
    return str((value + 2**63) % 2**64 - 2**63) if isinstance(value, int) else ""


# ---- protobuf


def _parts(data: bytes, wanted: int) -> Iterator[bytes]:
    """The messages of a repeated field."""
    for number, value in _fields(data):
        if number == wanted:
            yield _piece(value)


def _piece(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ValueError("a number where a message is due")


def _text(value: Any) -> str:
    return _piece(value).decode("utf-8", "replace")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message's fields: varints as int, all else as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size = 8 if kind == _FIXED64 else 4
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind not in (_FIXED64, _FIXED32):
            raise ValueError(f"a field of kind {kind}")
        if size > len(data) - at:
            raise ValueError("a field is longer than its message")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= _VARINT_BITS_MAX:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number without an end")
