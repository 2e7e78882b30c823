"""A small mutation fuzzer whose inputs end where memory ends.

Each input lies right before a page that may not be touched: a decoder that reads one byte too
many does not come back, and the process that ran it is the verdict. An input is given whole,
then byte by byte: every beginning of it, each again right before the forbidden page.

    python -m tests.fuzz TARGET SEED ITERATIONS

runs one target; what it prints before it dies repeats the failure.
"""

import ctypes
import mmap
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

INTERESTING = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
INPUT_BYTES_MAX = 1 << 16

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Target:
    """`run` takes an input and raises AssertionError when its invariant does not hold. `seal`
    makes a mutated input pass the checks that a mutation always breaks, such as a checksum. Of
    a longer input than `cuts_max` not every beginning is tried."""

    invariant: str
    corpus: Callable[[], Sequence[bytes]]
    run: Callable[[memoryview], None]
    seal: Callable[[bytes], bytes] = bytes
    cuts_max: int = 64


class Guarded:
    """Memory that ends at a page without access."""

    def __init__(self) -> None:
        page = mmap.PAGESIZE
        self.room = (INPUT_BYTES_MAX // page + 1) * page
        self.memory = mmap.mmap(-1, self.room + page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        if libc.mprotect(ctypes.c_void_p(address + self.room), page, 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data: bytes) -> memoryview:
        start = self.room - len(data)
        self.memory[start : self.room] = data
        return memoryview(self.memory)[start : self.room]


def mutate(data: bytes, other: bytes, chosen: random.Random) -> bytes:
    """Some of: a byte changed, bits flipped, a stretch taken out, doubled, or spliced in."""
    out = bytearray(data)
    for _ in range(chosen.choice((0, 1, 1, 1, 2, 3, 5, 8))):
        at = chosen.randrange(len(out) + 1)
        size = min(chosen.choice((1, 1, 2, 4, 8, 61)), len(out) - at)
        kind = chosen.randrange(6)
        if kind == 0 and at < len(out):
            out[at] = chosen.choice(INTERESTING)
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << chosen.randrange(8)
        elif kind == 2:
            del out[at : at + size]
        elif kind == 3:
            out[at:at] = out[at : at + size]
        elif kind == 4:
            start = chosen.randrange(len(other) + 1)
            out[at:at] = other[start : start + chosen.randrange(1, 80)]
        elif at < len(out):
            out[at : at + size] = chosen.randbytes(size)
    return bytes(out[:INPUT_BYTES_MAX])


def beginnings(data: bytes, cuts_max: int, chosen: random.Random) -> Iterator[bytes]:
    """Byte by byte; of a long input the first and last cuts and some between."""
    lengths = range(len(data))
    if len(data) > cuts_max:
        ends = (*lengths[: cuts_max // 4], *lengths[-cuts_max // 4 :])
        lengths = sorted({*ends, *chosen.sample(lengths, cuts_max // 2)})  # type: ignore[assignment]
    for n in lengths:
        yield data[:n]


def fuzz(target: Target, seed: int, iterations: int) -> None:
    """Run; on a broken invariant say which input broke it."""
    chosen = random.Random(seed)
    corpus = target.corpus()
    guarded = Guarded()
    for turn in range(iterations):
        data = mutate(chosen.choice(corpus), chosen.choice(corpus), chosen)
        if chosen.random() < 0.8:
            data = target.seal(data)
        try:
            target.run(guarded.place(data))
            for beginning in beginnings(data, target.cuts_max, chosen):
                target.run(guarded.place(beginning))
        except AssertionError:
            print(f"turn {turn}: {target.invariant}: broken by {data.hex()}", file=sys.stderr)
            raise
