"""Record batches: Kafka's own classes judge, read and write them beside ours."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from kbroker.ext import compression, crc32c, records
from tests.reference import records as reference
from tests.reference.records import Batch, Record
from tests.support.tool_jvm import program_output

NOW = 1_700_000_000_000
FOREVER = 2**63 - 1
CASES = 4000

#: Codes with which ext refuses what Kafka takes, or names otherwise; why: ARCHITECTURE.md.
STRICTER = {
    -6: "bytes behind the batch",
    -9: "an unknown codec: Kafka answers UNKNOWN_SERVER_ERROR",
    -22: "LogAppendTime from a producer",
}


def kafka(command: str, path: Path) -> list[str]:
    return program_output("Batches", command, str(path)).splitlines()


def record(chosen: random.Random) -> Record:
    names = [(b"name", b"value"), (b"", None), (b"n" * 70, b"")]
    return Record(
        chosen.choice([None, b"", b"key", b"k" * 64]),
        chosen.choice([None, b"", b"value", b"v" * 200]),
        [chosen.choice(names) for _ in range(chosen.choice([0, 0, 0, 1, 3]))],
        chosen.choice([NOW, NOW + 1, NOW - 5000, NOW + 5000, -1, 0, -2, 2**62, -(2**63)]),
    )


LIES = {
    "base_offset": [1, -1],
    "length": [0, 13, 14, 48, 49, 2**31 - 1, -(2**31)],
    "magic": [0, 1, 3, -1],
    "crc": [0],
    "attributes": [5, 7, 8, 0x10, 0x20, 0x40, 0x7F00],
    "last_offset_delta": [-1, 0, 5, 2**31 - 1],
    "count": [-1, 0, 1, 6, 2**31 - 1],
    "base_timestamp": [-1, 0, FOREVER, NOW + 9000],
    "max_timestamp": [-1, 0, FOREVER, NOW + 9000],
    "producer_id": [0, 7, -2],
    "producer_epoch": [0, 3],
    "base_sequence": [0, -2, 2**31 - 1],
}


def case(chosen: random.Random) -> tuple[bytes, dict[str, int]]:
    """A batch, sound or with lies in it, and the rules that it is judged by."""
    batch = Batch([record(chosen) for _ in range(chosen.choice([1, 1, 2, 3, 70]))])
    kind = chosen.randrange(4)
    for name in chosen.sample(sorted(LIES), chosen.choice([1, 1, 2])) if kind == 1 else ():
        setattr(batch, name, chosen.choice(LIES[name]))
    data = bytearray(batch.encode())
    if kind == 2 and len(data) > 61:
        for _ in range(chosen.choice([1, 1, 2])):
            at = chosen.randrange(61, len(data))
            flipped = data[at] ^ 1 << chosen.randrange(8)
            data[at] = chosen.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, flipped])
        data[17:21] = struct.pack(">I", crc32c.checksum(bytes(data[21:])))
    elif kind == 3:
        del data[chosen.randrange(len(data)) :]
    rules = {
        "now_ms": NOW,
        "timestamp_before_max_ms": chosen.choice([FOREVER, 3000]),
        "timestamp_after_max_ms": chosen.choice([FOREVER, 3_600_000, 3000]),
        "max_message_bytes": chosen.choice([2**31 - 1, 2**31 - 1, 150]),
        "compacted": chosen.randrange(2),
    }
    return bytes(data), rules


def ours(data: bytes, rules: dict[str, int]) -> tuple[int, str]:
    """ext's own code, and the line that Kafka would print for the same verdict."""
    try:
        return 0, f"0 {records.validate(data, **rules).max_timestamp} -1"
    except records.BatchError as error:
        listed = error.record if error.code in (-20, -21) else -1
        return error.code, f"{error.error_code} 0 {listed}"


def is_explained(code: int, theirs: str, data: bytes, rules: dict[str, int]) -> bool:
    """Whether ext is right to differ."""
    if code in STRICTER:
        return True
    length = struct.unpack_from(">i", data, 8)[0] if len(data) >= 12 else 0
    if code == -4:  # Kafka's sum of length and prefix overflows
        return theirs.startswith("-1 ") and length > 2**31 - 13
    if code == -1:  # what stands behind too short a batch decides between Kafka's two answers
        return len(data) > length + 12
    if code not in (-17, -19):
        return False
    try:  # lengths below -1, offset deltas that are not the record's place
        return theirs == f"0 {reference.judge(data, reference.Rules(**rules))} -1"
    except reference.RefusedError as refused:
        return theirs == f"{refused.error_code} 0 {refused.record}"


def test_kafka_judges_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference.Reader, "lenient", True)
    chosen = random.Random(43)
    cases = [case(chosen) for _ in range(CASES)]
    path = tmp_path / "cases"
    with path.open("wb") as out:
        for data, rules in cases:
            out.write(struct.pack(">qqqiii", *rules.values(), len(data)) + data)
    differ = []
    verdicts = kafka("judge", path)
    assert len(verdicts) == CASES
    for (data, rules), theirs in zip(cases, verdicts, strict=True):
        code, line = ours(data, rules)
        if line != theirs and not is_explained(code, theirs, data, rules):
            differ.append((code, line, theirs, data.hex()))
    assert differ == []
    codes = [line.split()[0] for line in verdicts]
    assert {"0", "2", "10", "32", "87"} <= set(codes)


def test_kafka_reads_what_we_write(tmp_path: Path) -> None:
    chosen = random.Random(44)
    data = b""
    want = []
    for codec in compression.NAMES:
        for level in (None, 1, 4, 9) if codec in ("gzip", "lz4", "zstd") else (None,):
            rows = [
                (NOW + i, b"k%d" % i, chosen.choice([None, b"text " * 400, chosen.randbytes(3000)]))
                for i in range(60)
            ]
            data += records.build(rows, codec=codec, level=level, base_offset=len(want))
            want += rows
    path = tmp_path / "batches"
    path.write_bytes(data)
    lines = [
        f"{offset} {timestamp} x{key.hex()} {'null' if value is None else 'x' + value.hex()} 0"
        for offset, (timestamp, key, value) in enumerate(want)
    ]
    assert kafka("read", path) == lines


def test_we_read_what_kafka_writes(tmp_path: Path) -> None:
    path = tmp_path / "batches"
    kafka("write", path)
    data = path.read_bytes()
    assert [batch.compression for batch in records.batches(data)] == [i // 3 for i in range(15)]
    found = records.read(data)
    assert [record.offset for record in found] == list(range(75))
    sizes = [1, 100, 70_000] * 5
    assert [record.value for record in found] == [
        bytes([97 + i]) * size for size in sizes for i in range(5)
    ]
