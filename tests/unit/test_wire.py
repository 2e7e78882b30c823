"""Cursor and Writer: each primitive type both ways, its bounds, and the error that sticks."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.ext import wire

LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uvarint": (0, 2**32 - 1),
    "varint": (-(2**31), 2**31 - 1),
    "varlong": (-(2**63), 2**63 - 1),
}
STRUCT = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}


def leb128(value: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def encode(kind: str, value: int) -> bytes:
    """The obvious encoder."""
    if kind in STRUCT:
        return struct.pack(STRUCT[kind], value)
    return leb128(value if kind == "uvarint" else zigzag(value))


@pytest.mark.parametrize("kind", LIMITS)
@given(data=st.data())
def test_integers_both_ways(kind: str, data: st.DataObject) -> None:
    value = data.draw(st.integers(*LIMITS[kind]))
    bytes_ = encode(kind, value)
    assert wire.write(kind, value) == bytes_
    reader = wire.Reader(bytes_)
    assert (reader.read(kind), reader.left, reader.bad) == (value, 0, False)


@pytest.mark.parametrize("kind", LIMITS)
def test_every_cut_of_an_integer_is_an_error(kind: str) -> None:
    bytes_ = encode(kind, LIMITS[kind][1])
    for n in range(len(bytes_)):
        reader = wire.Reader(bytes_[:n])
        assert (reader.read(kind), reader.bad, reader.left) == (0, True, 0)


@pytest.mark.parametrize("kind", LIMITS)
def test_writing_past_the_room_says_so(kind: str) -> None:
    bytes_ = encode(kind, LIMITS[kind][1])
    assert wire.write(kind, LIMITS[kind][1], room=len(bytes_)) == bytes_
    assert wire.write(kind, LIMITS[kind][1], room=len(bytes_) - 1) is None


def test_bits_beyond_the_type_are_dropped_as_kafka_does() -> None:
    assert wire.Reader(b"\xff\xff\xff\xff\x7f").read("uvarint") == 2**32 - 1


@pytest.mark.parametrize(("kind", "bytes_max"), [("uvarint", 5), ("varint", 5), ("varlong", 10)])
def test_endless_varint_is_an_error(kind: str, bytes_max: int) -> None:
    reader = wire.Reader(b"\x80" * bytes_max + b"\x01")
    assert reader.read(kind) == 0
    assert reader.bad


def test_error_sticks() -> None:
    reader = wire.Reader(b"\x00\x05ab")
    assert reader.read("string") == b""
    assert reader.bad
    for kind in [*wire.INTEGERS, *wire.SPANS, *wire.ARRAYS, "bool", "uuid", "tags"]:
        assert reader.read(kind) in (0, b"", None, False, -1)
        assert reader.bad
        assert reader.left == 0


def prefix(kind: str, n: int) -> bytes:
    """The length that stands before n bytes; -1 for null."""
    if kind.startswith("compact"):
        return leb128(n + 1)
    return struct.pack(">h" if kind.endswith("string") else ">i", n)


@pytest.mark.parametrize("kind", sorted(wire.SPANS))
@given(value=st.none() | st.binary(max_size=300))
def test_spans_both_ways(kind: str, value: bytes | None) -> None:
    bytes_ = prefix(kind, -1) if value is None else prefix(kind, len(value)) + value
    assert wire.write(kind, value) == bytes_
    reader = wire.Reader(bytes_ + b"rest")
    read = reader.read(kind)
    if value is None and "nullable" not in kind:
        assert (read, reader.bad) == (b"", True)
    else:
        assert (read, reader.bad, reader.left) == (value, False, 4)


@pytest.mark.parametrize("kind", sorted(wire.SPANS))
def test_span_longer_than_what_is_left(kind: str) -> None:
    for n in (5, 2**15 - 1):
        reader = wire.Reader(prefix(kind, n) + b"1234")
        assert (reader.read(kind), reader.bad) == (b"", True)


@pytest.mark.parametrize("kind", ["string", "nullable_string", "bytes", "nullable_bytes"])
def test_negative_length_other_than_null(kind: str) -> None:
    reader = wire.Reader(prefix(kind, -2) + b"1234")
    assert (reader.read(kind), reader.bad) == (b"", True)


def test_compact_string_has_the_bound_of_a_string() -> None:
    assert not (at := wire.Reader(leb128(32768) + bytes(32767))).bad
    assert len(at.read("compact_string")) == 32767  # type: ignore[arg-type]
    over = wire.Reader(leb128(32769) + bytes(32768))
    assert (over.read("compact_string"), over.bad) == (b"", True)
    assert wire.write("compact_string", bytes(32768)) is None
    assert wire.write("string", bytes(32768)) is None


@pytest.mark.parametrize("kind", sorted(wire.ARRAYS))
def test_array_count_is_bounded_by_what_is_left(kind: str) -> None:
    length = leb128 if kind.startswith("compact") else lambda n: struct.pack(">i", n - 1)
    reader = wire.Reader(length(4) + bytes(12))
    assert (reader.read(kind, 4), reader.bad) == (3, False)
    reader = wire.Reader(length(4) + bytes(11))
    assert (reader.read(kind, 4), reader.bad) == (0, True)
    reader = wire.Reader(length(0))
    nullable = "nullable" in kind
    assert (reader.read(kind), reader.bad) == (-1 if nullable else 0, not nullable)
    reader = wire.Reader(length(1_000_002) + bytes(1_000_001))
    assert (reader.read(kind), reader.bad) == (0, True)


def test_tags_are_skipped_and_counted() -> None:
    one = leb128(7) + leb128(3) + b"abc"
    reader = wire.Reader(leb128(2) + one * 2 + b"x")
    reader.read("tags")
    assert (reader.bad, reader.left) == (False, 1)
    most = wire.Reader(leb128(10_000) + bytes(20_000))
    most.read("tags")
    assert (most.bad, most.left) == (False, 0)
    for refused in (leb128(10_001) + bytes(20_002), leb128(1) + b"\x00\x05ab", leb128(3) + b"\x00"):
        reader = wire.Reader(refused)
        reader.read("tags")
        assert reader.bad


@given(st.binary(max_size=64), st.data())
def test_any_sequence_of_reads_stays_inside(data: bytes, plan: st.DataObject) -> None:
    """Invariant: what is left never grows, and after an error nothing is left."""
    kinds = sorted({*wire.INTEGERS, *wire.SPANS, *wire.ARRAYS, "bool", "uuid", "tags"})
    reader = wire.Reader(data)
    left = len(data)
    for kind in plan.draw(st.lists(st.sampled_from(kinds), max_size=12)):
        value = reader.read(kind)
        assert reader.left <= left
        left = reader.left
        if isinstance(value, bytes):
            assert value in data
        if reader.bad:
            assert left == 0
