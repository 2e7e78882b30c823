"""What a record batch costs before it is appended, beside its checksum alone.

    python -m perf.batch [ROUNDS]

One row a shape: microseconds of `validate` (checksum and record walk), of the checksum by the
quickest way and by SSE4.2, and nanoseconds of the walk a record. The batches are warm in the
cache, and so large that Python's part, a microsecond a call, is lost in it. Then each codec on
something like text. Processor time, medians of ROUNDS (21 unless told), each long enough for
the clock; neighbours that use the cache still show.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable

from kbroker.ext import compression, crc32c, records

NOW = 1_700_000_000_000
ROUND_S = 0.01

SHAPES = {
    "b100x9000": [(NOW + i // 3, None, b"v" * 90) for i in range(9000)],
    "kb900": [(NOW + i // 3, None, b"v" * 1024) for i in range(900)],
    "keyed": [(NOW + i // 3, b"key%05d" % i, b"v" * 80) for i in range(9000)],
    "headers": [
        (NOW, b"key", b"v" * 100, [("id", b"0123456789abcdef"), ("n", b"1")]) for _ in range(5000)
    ],
}


def median_s(call: Callable[[], object], rounds: int) -> float:
    """Seconds that one call takes."""
    start = time.thread_time()
    call()
    times = max(1, int(ROUND_S / max(time.thread_time() - start, 1e-7)))
    found = []
    for _ in range(rounds):
        start = time.thread_time()
        for _ in range(times):
            call()
        found.append((time.thread_time() - start) / times)
    return statistics.median(found)


def batch_row(name: str, rounds: int) -> str:
    """A shape's line of the first table."""
    data = records.build(SHAPES[name])
    whole = median_s(lambda: records.validate(data), rounds)
    crc = median_s(lambda: crc32c.checksum(data), rounds)
    ways = crc32c.implementations()
    plain = "sse42" if "sse42" in ways else ways[-1]
    sse42 = median_s(lambda: crc32c.checksum_by(plain, data), rounds)
    walk_ns = (whole - crc) / len(SHAPES[name]) * 1e9
    return (
        f"{name:10} {len(data):8} {whole * 1e6:9.1f} {crc * 1e6:9.1f} {sse42 * 1e6:9.1f} "
        f"{whole / crc:8.1f} {walk_ns:9.1f}"
    )


def words() -> bytes:
    """Half a megabyte that compresses as text does."""
    chosen = random.Random(5)
    known = [chosen.randbytes(chosen.randrange(3, 12)) for _ in range(500)]
    return b" ".join(chosen.choice(known) for _ in range(70_000))


def codec_row(name: str, data: bytes, rounds: int) -> str:
    """A codec's line of the second table."""
    packed = compression.compress(name, data)
    down = median_s(lambda: compression.compress(name, data), rounds)
    up = median_s(lambda: compression.decompress(name, packed, len(data)), rounds)
    share = len(packed) / len(data)
    return f"{name:10} {share:8.2f} {len(data) / down / 1e6:9.0f} {len(data) / up / 1e6:9.0f}"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    print(f"checksum by {crc32c.implementation()}")
    print("batch         bytes  validate  checksum    sse4.2    ratio ns/record")
    for name in SHAPES:
        print(batch_row(name, rounds))
    print("\ncodec       packed  in, MB/s out, MB/s")
    data = words()
    for name in compression.NAMES[1:]:
        print(codec_row(name, data, rounds))


if __name__ == "__main__":
    main()
