"""Hash tables whose keys clients choose: none can be filled with keys that collide."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.ext import testing, testing_log
from tests.support.logs import batch, open_log

PRODUCERS = 4096
#: A table that is half full at the most has searches of about 30 steps, by chance.
STEPS_MAX = 200
MULTIPLIER = 0x9E3779B97F4A7C15


def chosen_ids() -> list[int]:
    """Ids that a multiplication by the golden ratio, as the table once used, puts in one slot."""
    inverse = pow(MULTIPLIER, -1, 1 << 64)
    found: list[int] = []
    number = 0
    while len(found) < PRODUCERS:
        number += 1
        producer_id = number * inverse % (1 << 64)
        if producer_id < 1 << 63:
            found.append(producer_id)
    return found


@pytest.mark.parametrize("kind", ["chosen", "in sequence", "far apart"])
def test_producer_ids_do_not_collide(tmp_path: Path, kind: str) -> None:
    ids = {
        "chosen": chosen_ids(),
        "in sequence": list(range(PRODUCERS)),
        "far apart": [number << 40 for number in range(PRODUCERS)],
    }[kind]
    log = open_log(tmp_path / "topic-0")
    try:
        for producer_id in ids:
            data = batch(1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
            assert testing_log.append(log, data, 0, 0)[0] == 0
        assert testing_log.longest_search(log) < STEPS_MAX
    finally:
        log.close()


def test_siphash_empty_input_has_published_value() -> None:
    """The first of the vectors for the key 00 01 .. 0f, as Rust's core library has them."""
    keys = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
    assert testing.siphash(*keys, b"") == 0xABAC0158050FC4DC


def reference(key0: int, key1: int, data: bytes) -> int:
    """SipHash with one round a word and three at the end, after the paper."""
    mask = (1 << 64) - 1
    v = [key0 ^ 0x736F6D6570736575, key1 ^ 0x646F72616E646F6D,
         key0 ^ 0x6C7967656E657261, key1 ^ 0x7465646279746573]  # fmt: skip

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> 64 - bits) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, bits, turned in ((0, 1, 13, True), (2, 3, 16, False),
                                       (2, 1, 17, True), (0, 3, 21, False)):  # fmt: skip
                v[a] = (v[a] + v[b]) & mask
                v[b] = rotate(v[b], bits) ^ v[a]
                if turned:
                    v[a] = rotate(v[a], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(3)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_siphash_equals_reference_at_every_length() -> None:
    data = bytes(range(256)) * 2
    for length in (*range(70), 255, 256, 300):
        for keys in ((0, 0), (1, 2**64 - 1), (MULTIPLIER, 77)):
            assert testing.siphash(*keys, data[:length]) == reference(*keys, data[:length])
