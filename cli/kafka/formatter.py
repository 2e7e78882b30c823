"""How kafka-console-consumer shows a record: columns by formatter properties, a line each.

The formatters for the broker's own topics (offsets, groups, transactions) are not here: see
`kbroker group describe`, or kafka-consumer-groups.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from kbroker.cli.kafka.options import Given, UsageError, key_values
from kbroker.cli.kafka.tool import read_properties, say, warn

__all__ = ["Formatter", "formatter_of"]

_PACKAGE = "org.apache.kafka.tools.consumer."
_DESERIALIZERS = "org.apache.kafka.common.serialization."
_TIMES = ("CreateTime", "LogAppendTime")

Reader = Callable[[bytes], bytes]


def formatter_of(given: Given) -> Formatter:
    """The formatter of --formatter with its properties. Raises UsageError."""
    name = given.needed("formatter").removeprefix(_PACKAGE)
    if given.needed("formatter") == name or name not in _FORMATTERS:
        raise UsageError(
            f"--formatter {given.value('formatter')} is not served; there are"
            f" {', '.join(_PACKAGE + known for known in _FORMATTERS)}"
        )
    if given.has("property") and given.has("formatter-property"):
        raise UsageError(
            "Options --property and --formatter-property cannot be specified together."
        )
    if given.has("property"):
        say("Option --property is deprecated and will be removed in a future version. Use"
            " --formatter-property instead.")  # fmt: skip
    told = read_properties(given.value("formatter-config"))
    for part in ("key", "value"):
        if given.value(f"{part}-deserializer"):
            told[f"{part}.deserializer"] = given.needed(f"{part}-deserializer")
    told |= key_values(given.values("formatter-property") + given.values("property"))
    return _FORMATTERS[name](told)


class Formatter:
    """Kafka's DefaultMessageFormatter."""

    def __init__(self, told: Mapping[str, str]) -> None:
        def on(name: str, default: str = "false") -> bool:
            return told.get(f"print.{name}", default).strip().lower() == "true"

        def part(name: str, default: str) -> bytes:
            return told.get(name, default).encode()

        self._between = part("key.separator", "\t")
        self._end = part("line.separator", "\n")
        self._null = part("null.literal", "null")
        headers_between = part("headers.separator", ",")
        key, value, header = (_reader(told, name) for name in ("key", "value", "headers"))

        def shown(data: bytes | None, read: Reader) -> bytes:
            return read(self._null if data is None else data)

        def headers(record: Any) -> bytes:
            return headers_between.join(
                f"{name}:".encode() + shown(data, header) for name, data in record.headers
            ) or b"NO_HEADERS"

        columns: list[tuple[bool, Callable[[Any], bytes]]] = [
            (on("timestamp"), _timestamp),
            (on("partition"), lambda record: f"Partition:{record.partition}".encode()),
            (on("offset"), lambda record: f"Offset:{record.offset}".encode()),
            (on("delivery"), lambda _: b"Delivery:NOT_PRESENT"),  # only share groups count
            (on("epoch"), lambda _: b"Epoch:NOT_PRESENT"),  # as Kafka's, which drops it
            (on("headers"), headers),
            (on("key"), lambda record: shown(record.key, key)),
            (on("value", "true"), lambda record: shown(record.value, value)),
        ]
        self._columns = [show for wanted, show in columns if wanted]

    def line(self, record: Any) -> bytes:
        """What is printed of a record. Raises ValueError where a part cannot be read."""
        if not self._columns:
            return b""
        return self._between.join([show(record) for show in self._columns]) + self._end


class LoggingFormatter(Formatter):
    """The same, and the record once more on standard error."""

    def line(self, record: Any) -> bytes:
        """What is printed."""

        def shown(data: bytes | None) -> str:
            return "null" if data is None else data.decode("utf-8", "replace")

        key = "null " if record.key is None else f"{shown(record.key)}, "
        warn(f"INFO {_timestamp(record).decode()}, key:{key}value:{shown(record.value)}")
        return super().line(record)


class SilentFormatter(Formatter):
    """Shows nothing; records are counted."""

    def line(self, record: Any) -> bytes:
        """Nothing."""
        del record
        return b""


_FORMATTERS: dict[str, type[Formatter]] = {
    "DefaultMessageFormatter": Formatter,
    "LoggingMessageFormatter": LoggingFormatter,
    "NoOpMessageFormatter": SilentFormatter,
}


def _timestamp(record: Any) -> bytes:
    return f"{_TIMES[record.timestamp_type]}:{record.timestamp}".encode()


def _reader(told: Mapping[str, str], part: str) -> Reader:
    """What a deserializer's object is as text; without one the bytes as they are."""
    name = told.get(f"{part}.deserializer")
    more = [key for key in told if key.startswith(f"{part}.deserializer.")]
    if more:
        raise UsageError(f"{more[0]}: settings of deserializers are not served")
    if name is None:
        return lambda data: data
    short = name.removeprefix(_DESERIALIZERS).removesuffix("Deserializer")
    if name != f"{_DESERIALIZERS}{short}Deserializer" or short not in _READERS:
        raise UsageError(
            f"{part}.deserializer={name}: a class of Java's cannot run here; there are"
            f" {', '.join(f'{known}Deserializer' for known in _READERS)} of {_DESERIALIZERS[:-1]}"
        )
    return _READERS[short]


def _number(name: str, form: str, show: Callable[[Any], str] = str) -> Reader:
    size = struct.calcsize(form)

    def read(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError(f"Size of data received by {name}Deserializer is not {size}")
        return show(struct.unpack(form, data)[0]).encode()

    return read


def _float(value: float) -> str:
    from kbroker.cli.kafka.java import float_text

    return float_text(value)


def _double(value: float) -> str:
    from kbroker.cli.kafka.java import double_text

    return double_text(value)


def _boolean(value: int) -> str:
    if value not in (0, 1):
        raise ValueError(f"Unexpected byte received by BooleanDeserializer: {value}")
    return "true" if value else "false"


def _uuid(data: bytes) -> bytes:
    import uuid

    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError:
        raise ValueError("Error parsing data into UUID") from None


def _bytes(data: bytes) -> bytes:
    """Bytes.toString: what is not printable as \\xHH."""
    return "".join(
        chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x5C else f"\\x{byte:02X}" for byte in data
    ).encode()


_READERS: dict[str, Reader] = {
    "String": lambda data: data.decode("utf-8", "replace").encode(),
    "Integer": _number("Integer", ">i"),
    "Long": _number("Long", ">q"),
    "Short": _number("Short", ">h"),
    "Float": _number("Float", ">f", _float),
    "Double": _number("Double", ">d", _double),
    "Boolean": _number("Boolean", ">b", _boolean),
    "UUID": _uuid,
    "Bytes": _bytes,
}
