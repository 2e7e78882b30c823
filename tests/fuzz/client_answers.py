"""Fuzzed: what a client's link takes for answers, and what its heartbeats read of one."""

import random
import struct
from collections.abc import Sequence

from kbroker.ext import client_heartbeat, testing_link, wire
from tests.fuzz.engine import Target

FRAME_MAX = 256 << 20
OK, BROKEN, CORRUPT = 0, -1, -3
CALLS = 3


# ---- the frames of a link


def framed_corpus() -> Sequence[bytes]:
    """A flag for flexible headers and two places to cut at, each a byte, in front of the answers
    to three calls."""
    chosen = random.Random(4)
    found = []
    for number in range(24):
        flexible = number % 2
        tags = b"\1\7\3abc" if number % 3 == 0 else b"\0"
        out = bytes([flexible, chosen.randrange(90), chosen.randrange(90)])
        for correlation in range(1, CALLS + 1):
            body = chosen.randbytes(chosen.choice((0, 1, 9, 60, 20_000 if number == 5 else 3)))
            frame = struct.pack(">i", correlation) + (tags if flexible else b"") + body
            out += struct.pack(">i", len(frame)) + frame
        found.append(out)
    return found


def framed_run(data: memoryview) -> None:
    head = bytes(data[:3]).ljust(3, b"\0")
    stream = bytes(data[3:])
    flexible = bool(head[0] & 1)
    cuts = [min(at, len(stream)) for at in head[1:]]
    told = testing_link.answers(stream, cuts, CALLS, flexible)
    assert told == expected_answers(stream, flexible)


def expected_answers(stream: bytes, flexible: bool) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    left = stream
    while len(found) < CALLS:
        length = int.from_bytes(left[:4], "big")
        if len(left) >= 4 and not 4 <= length <= FRAME_MAX:
            return found + [(CORRUPT, b"")] * (CALLS - len(found))
        if len(left) < 4 + length or len(left) < 4:
            return found + [(BROKEN, b"")] * (CALLS - len(found))
        frame, left = left[4 : 4 + length], left[4 + length :]
        reader = wire.Reader(frame[4:])
        if flexible:
            reader.read("tags")
        if reader.bad or int.from_bytes(frame[:4], "big") != len(found) + 1:
            return found + [(CORRUPT, b"")] * (CALLS - len(found))
        found.append((OK, frame[len(frame) - reader.left :]))
    return found


# ---- heartbeats


def beaten_corpus() -> Sequence[bytes]:
    """A byte in front says which of the two APIs."""
    old = [struct.pack(">bihb", 0, 0, error, 0) for error in (0, 14, 25, 27)]
    new = []
    for error, epoch, interval_ms, assigned in (
        (0, 4, 5000, b"\xff"), (0, -1, 1 << 30, b"\1\1\0"), (110, 0, 0, b"\xff"),
        (0, 7, -5, b"\1\1\0"),
    ):  # fmt: skip
        told = b"\0\5name" if epoch == 4 else b"\5text\5name"
        new.append(
            struct.pack(">bih", 1, 0, error) + told + struct.pack(">ii", epoch, interval_ms)
            + assigned + b"\0"
        )  # fmt: skip
    return [*old, *new]


def beaten_run(data: memoryview) -> None:
    with_epoch = bool(data[0] & 1) if len(data) else False
    told = client_heartbeat.read_heartbeat(data[1:], with_epoch)
    reader = wire.Reader(data[1:])
    reader.read("int32")
    error = reader.read("int16")
    epoch = interval_ms = -1
    assigned = False
    if with_epoch and error == 0 and not reader.bad:
        for _ in range(2):
            reader.read("compact_nullable_string")
        epoch, interval_ms = reader.read("int32"), reader.read("int32")
        assigned = int(reader.read("int8")) >= 0
    assert told == (None if reader.bad else (error, epoch, interval_ms, assigned))


TARGETS = {
    "framed": Target("calls are done once, in order, with their own bytes", framed_corpus,
                     framed_run),
    "beaten": Target("a heartbeat's answer is read inside its bytes", beaten_corpus, beaten_run),
}  # fmt: skip
