"""The codecs against the libraries that others use, and against bytes that lie."""

import contextlib
import gzip
import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.ext import compression

CODECS = [name for name in compression.NAMES if compression.available(name)]
LEVELS = {
    "none": [None],
    "gzip": [None, -1, 1, 9],
    "snappy": [None],
    "lz4": [None, 1, 4, 9, 12, 17],
    "zstd": [None, -5, 1, 3, 9],
}
LIMIT = 1 << 24
PLENTY = random.Random(7)


def samples() -> dict[str, bytes]:
    words = [PLENTY.randbytes(PLENTY.randrange(3, 12)) for _ in range(300)]
    text = b" ".join(PLENTY.choice(words) for _ in range(40_000))
    return {
        "empty": b"",
        "one": b"a",
        "twelve": b"abcdabcdabcd",
        "thirteen": b"abcdabcdabcda",
        "zeros": bytes(300_000),
        "period3": b"abc" * 70_000,
        "noise": PLENTY.randbytes(200_000),
        "text": text,
        "batch-1": text[:511],
        "batch": text[:512],
        "small": text[:32768],
        "small+1": text[:32769],
        "block": text[:65536],
        "block+1": text[:65537],
        "mixed": PLENTY.randbytes(40_000) + text[:90_000] + bytes(5000) + text[500:9000],
    }


SAMPLES = samples()


def foreign_compress(name: str, data: bytes) -> list[bytes]:
    """What clients may send for `data`."""
    if name == "gzip":
        return [gzip.compress(data), gzip.compress(data[:9]) + gzip.compress(data[9:])]
    if name == "lz4":
        frames = [
            lz4.frame.compress(
                data, block_size=size, block_linked=linked, content_checksum=check,
                block_checksum=check, store_size=check,
            )
            for size in (4, 5, 7) for linked in (False, True) for check in (False, True)
        ]  # fmt: skip
        skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
        return [*frames, lz4.frame.compress(data[:7]) + skippable + lz4.frame.compress(data[7:])]
    if name == "snappy":
        raw = bytes(cramjam.snappy.compress_raw(data))
        return [raw, aiokafka_codec.snappy_encode(data, xerial_compatible=True)]
    if name == "zstd":
        stream = zstandard.ZstdCompressor().compressobj()
        streamed = stream.compress(data) + stream.flush()
        return [zstandard.ZstdCompressor(level=9).compress(data), streamed]
    return [data]


def foreign_decompress(name: str, data: bytes) -> bytes:
    """What clients make of our bytes."""
    if name == "gzip":
        return gzip.decompress(data)
    if name == "lz4":
        return bytes(lz4.frame.decompress(data))
    if name == "snappy":
        return bytes(aiokafka_codec.snappy_decode(data)) if len(data) > 16 else b""
    if name == "zstd":
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=LIMIT)
    return data


def test_this_machine_has_all_codecs() -> None:
    assert list(compression.NAMES) == CODECS


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_others_read_what_we_write(name: str, sample: str) -> None:
    data = SAMPLES[sample]
    for level in LEVELS[name]:
        packed = compression.compress(name, data, level)
        assert foreign_decompress(name, packed) == data
        assert compression.decompress(name, packed, len(data)) == data


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_we_read_what_others_write(name: str, sample: str) -> None:
    data = SAMPLES[sample]
    for packed in foreign_compress(name, data):
        assert compression.decompress(name, packed, len(data)) == data


def test_small_zstd_batches_are_packed_as_the_java_clients() -> None:
    data = SAMPLES["block"][:16384]
    packed = compression.compress("zstd", data)
    assert abs(len(packed) - len(foreign_compress("zstd", data)[1])) < 16
    assert zstandard.frame_content_size(packed) == -1
    assert zstandard.frame_content_size(compression.compress("zstd", data, 9)) == len(data)


def test_gzip_in_all_its_wrappings() -> None:
    """What no client writes and the format allows: libdeflate is not asked, or not believed."""
    data = SAMPLES["mixed"]
    packed = gzip.compress(data)
    body, trailer = packed[10:-8], packed[-8:]
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + body + trailer
    checked = b"\x1f\x8b\x08\x02" + bytes(6)
    checked += struct.pack("<H", zlib.crc32(checked) & 0xFFFF) + body + trailer
    for whole in (named, checked, packed + b"no member", packed + gzip.compress(b"")):
        assert compression.decompress("gzip", whole, LIMIT) == data
    lies = (
        checked[:10] + b"\0\0" + checked[12:],
        packed[:-8] + bytes(4) + trailer[4:],
        packed[:-4] + struct.pack("<I", len(data) - 1),
        packed[:-4] + struct.pack("<I", len(data) + 1),
    )
    for lie in lies:
        with pytest.raises(compression.CodecError, match="codec writes"):
            compression.decompress("gzip", lie, LIMIT)


WITHOUT_LIBDEFLATE = """
import sys, pytest
from pathlib import Path
from kbroker.ext import compression
assert "libdeflate" not in Path("/proc/self/maps").read_text()
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[1], "-k", "gzip and not lacks"]))
"""


@pytest.mark.long
def test_gzip_where_the_machine_lacks_libdeflate(tmp_path: Path) -> None:
    """An empty file of that name on LD_LIBRARY_PATH is found first and is no library."""
    (tmp_path / "libdeflate.so.0").touch()
    command = [sys.executable, "-c", WITHOUT_LIBDEFLATE, __file__]
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize("name", CODECS)
def test_output_is_bounded(name: str) -> None:
    data = SAMPLES["zeros"]
    for packed in (*foreign_compress(name, data), compression.compress(name, data)):
        for limit in (0, 1, 65536, len(data) - 1):
            with pytest.raises(compression.CodecError, match="limit"):
                compression.decompress(name, packed, limit)


@pytest.mark.parametrize("name", [name for name in CODECS if name != "none"])
def test_every_cut_is_refused(name: str) -> None:
    data = SAMPLES["mixed"][39_000:42_000]
    packed = compression.compress(name, data)
    for n in range(len(packed)):
        try:
            assert compression.decompress(name, packed[:n], LIMIT) != data
        except compression.CodecError as error:
            assert "codec writes" in str(error)


@pytest.mark.parametrize("name", [name for name in CODECS if name != "none"])
@given(st.data())
@settings(max_examples=300)
def test_flipped_bytes_never_crash(name: str, data: st.DataObject) -> None:
    """Invariant tested: whatever the bytes, an answer within the limit or a CodecError."""
    plain = SAMPLES["text"][:700] + bytes(200)
    packed = bytearray(data.draw(st.sampled_from(foreign_compress(name, plain))))
    for at in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=5)):
        packed[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(compression.CodecError):
        assert len(compression.decompress(name, bytes(packed), 4096)) <= 4096


@pytest.mark.parametrize("name", [name for name in CODECS if name != "none"])
@given(data=st.binary(max_size=200))
def test_noise_never_crashes(name: str, data: bytes) -> None:
    with contextlib.suppress(compression.CodecError):
        compression.decompress(name, data, 4096)


@given(data=st.lists(st.binary(min_size=1, max_size=5), max_size=60), seed=st.integers(0, 99))
def test_repetitions_of_all_kinds(data: list[bytes], seed: int) -> None:
    chosen = random.Random(seed)
    plain = b"".join(chosen.choice(data) * chosen.choice([1, 2, 30]) for _ in range(len(data)))
    for name in ("lz4", "snappy"):
        for level in LEVELS[name]:
            packed = compression.compress(name, plain, level)
            assert foreign_decompress(name, packed) == plain
            assert compression.decompress(name, packed, len(plain)) == plain


def test_higher_lz4_levels_pack_tighter() -> None:
    quick, *sizes = (
        len(compression.compress("lz4", SAMPLES["text"], level)) for level in (9, 1, 4, 12)
    )
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < quick < len(SAMPLES["text"])


def test_snappy_that_claims_more_than_it_can_hold() -> None:
    with pytest.raises(compression.CodecError, match="codec writes"):
        compression.decompress("snappy", b"\xff\xff\xff\xff\x0f" + b"\0a", 1 << 40)


def test_joined_java_streams_of_snappy() -> None:
    one = compression.compress("snappy", b"first ")
    two = compression.compress("snappy", b"second")
    assert compression.decompress("snappy", one + two, 100) == b"first second"


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF),
     (b"Nobody inspects the spammish repetition", 0xE2293B2F)],
)  # fmt: skip
def test_xxhash32(data: bytes, value: int) -> None:
    assert compression.xxhash32(data) == value
