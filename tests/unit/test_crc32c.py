"""CRC-32C: every way that this CPU can go against the definition and the crc32c package."""

import random

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.ext import crc32c
from tests.reference import crc as reference

WAYS = crc32c.implementations()
NOISE = random.Random(20).randbytes(1 << 17)

# RFC 3720 appendix B.4, and the check value of the CRC catalogues.
KNOWN = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


def test_the_quickest_way_is_used_and_the_table_is_always_there() -> None:
    assert crc32c.implementation() == WAYS[0]
    assert WAYS[-1] == "table"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("data", "value"), KNOWN)
def test_known_values(way: str, data: bytes, value: int) -> None:
    assert reference.crc32c(data) == value
    assert crc32c.checksum_by(way, data) == value


@pytest.mark.parametrize("way", WAYS)
def test_every_length_around_the_block_sizes(way: str) -> None:
    edges = [0, 64, 512, 1024, 3 * 256, 3 * 2048, 9 * 2048, 65536]
    lengths = {n for edge in edges for n in range(max(0, edge - 17), edge + 18)}
    for n in sorted(lengths):
        start = n % 61
        data = NOISE[start : start + n]
        assert crc32c.checksum_by(way, data) == package.crc32c(data), n


@given(st.binary(max_size=600))
def test_against_the_definition(data: bytes) -> None:
    want = reference.crc32c(data)
    assert [crc32c.checksum_by(way, data) for way in WAYS] == [want] * len(WAYS)


@given(st.integers(0, len(NOISE)), st.integers(0, len(NOISE)))
def test_extend_and_combine(start: int, cut: int) -> None:
    data = NOISE[start:]
    left, right = data[:cut], data[cut:]
    want = package.crc32c(data)
    assert crc32c.checksum(right, crc32c.checksum(left)) == want
    assert crc32c.combine(crc32c.checksum(left), crc32c.checksum(right), len(right)) == want


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=20), st.integers(0, 90_000))
def test_patch_is_the_checksum_of_the_changed_message(
    head: bytes, before: bytes, tail: int
) -> None:
    after = bytes(byte ^ 0x5A for byte in before)
    rest = NOISE[:tail]
    old = crc32c.checksum(head + before + rest)
    assert crc32c.patch(old, before, after, tail) == crc32c.checksum(head + after + rest)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_takes_any_buffer(kind: type) -> None:
    assert crc32c.checksum(kind(NOISE)) == package.crc32c(NOISE)


def test_refuses_a_patch_that_changes_the_length() -> None:
    with pytest.raises(ValueError, match="length"):
        crc32c.patch(0, b"ab", b"abc", 0)


def test_refuses_an_unknown_way() -> None:
    with pytest.raises(ValueError, match="no abacus"):
        crc32c.checksum_by("abacus", b"")
