"""What is fuzzed, and what must hold for any input."""

import ctypes
import random
import struct
import uuid
from collections.abc import Callable, Sequence

from kbroker.ext import compression, crc32c, records, testing_client, wire
from kbroker.ext.client_record import FetchedBatchError
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import fields_of, response_schema
from tests.fuzz.engine import Target

NOW = 1_700_000_000_000
LIMIT = 1 << 16
KINDS = sorted({*wire.INTEGERS, *wire.SPANS, *wire.ARRAYS, "bool", "uuid", "tags"})


# ---- wire


def wire_corpus() -> Sequence[bytes]:
    """The first byte of an input says how many of the next name what is read from the rest."""
    chosen = random.Random(1)
    found = []
    for _ in range(50):
        kinds = [chosen.choice(KINDS) for _ in range(chosen.randrange(1, 9))]
        body = b"".join(
            wire.write("compact_string", chosen.randbytes(chosen.randrange(9))) or b""
            for _ in kinds
        )
        found.append(bytes([len(kinds), *map(KINDS.index, kinds)]) + body)
    return found


def wire_run(data: memoryview) -> None:
    n = data[0] % 16 if data else 0
    reader = wire.Reader(data[1 + n :])
    left = reader.left
    for kind in data[1 : 1 + n]:
        value = reader.read(KINDS[kind % len(KINDS)])
        assert reader.left <= left
        assert not reader.bad or reader.left == 0
        left = reader.left
        if isinstance(value, bytes):
            assert value in bytes(data)


# ---- record batches


def batch_corpus() -> Sequence[bytes]:
    return [
        records.build([(NOW, None, b"value")]),
        records.build([(NOW + i, b"key%d" % i, b"v" * i) for i in range(70)]),
        records.build([(NOW, b"k", None, [("name", b"1"), ("other", None)])] * 4),
        records.build([(NOW, b"k", b"w" * 9000)] * 2),
        records.build([(NOW, b"\0\0\0\1", b"")], control=True),
        *(records.build([(NOW, b"k", b"v" * 50)] * 9, codec=codec) for codec in compression.NAMES),
    ]


def batch_seal(data: bytes) -> bytes:
    """Length and checksum of what the bytes are."""
    if len(data) < 61:
        return data
    head = data[:8] + struct.pack(">i", len(data) - 12) + data[12:17]
    return head + struct.pack(">I", crc32c.checksum(data[21:])) + data[21:]


def validate_run(data: memoryview) -> None:
    rules = {"now_ms": NOW, "timestamp_after_max_ms": 3_600_000}
    try:
        batch = records.validate(data, **rules)
    except records.BatchError as error:
        assert error.error_code in (2, 10, 32, 76, 87)
        assert error.record < max(1, len(data))
        return
    assert batch.length == len(data)
    assert 0 < batch.count == batch.last_offset_delta + 1
    if batch.compression == 0:
        found = records.records(data)
        assert [record.offset for record in found] == list(range(batch.count))
        assert batch.max_timestamp == max(-1, *(record.timestamp for record in found))


def records_run(data: memoryview) -> None:
    try:
        found = records.records(data, 0, LIMIT)
    except records.BatchError as error:
        assert error.error_code in (2, 76, 87)
        return
    taken = sum(len(record.key or b"") + len(record.value or b"") for record in found)
    assert taken <= LIMIT + len(data)


def read_run(data: memoryview) -> None:
    try:
        batches = records.batches(data)
    except records.BatchError as error:
        assert error.error_code in (2, 87)
        return
    assert sum(batch.length for batch in batches) <= len(data)


def consumed_corpus() -> Sequence[bytes]:
    """Transactions as well: the consumer's reader drops the aborted ones."""
    written = [(NOW, b"k", b"v" * 20)] * 3
    open_one = records.build(written, producer_id=5, producer_epoch=0, transactional=True)
    end = records.build([(NOW, b"\0\0\0\0", b"")], base_offset=3, producer_id=5, control=True)
    behind = records.build(written, base_offset=4, producer_id=5, transactional=True)
    return [*batch_corpus(), open_one + end + behind, behind]


def consumed_run(data: memoryview) -> None:
    """By records and by columns: the same ones, or the same error."""
    told = []
    for way in ("records", "columns"):
        rules = {"aborted": ((5, 0), (9, 1)), "read_committed": True, "limit": LIMIT}
        answer = testing_client.Answer(data, 1, **rules)
        try:
            if way == "records":
                found = answer.records()
                told.append([(r.offset, r.timestamp, r.key, r.value) for r in found])
            else:
                columns = answer.columns()
                parts = columns.offsets, columns.timestamps, columns.keys, columns.values
                told.append(list(zip(*parts, strict=True)))
                assert sum(map(len, columns.headers)) <= LIMIT
        except FetchedBatchError as error:
            told.append(str(error))
        assert answer.position >= 1
    # Headers are looked at when a record is asked for them, and at once for columns.
    assert told[0] == told[1] or isinstance(told[1], str)


def fetched_corpus() -> Sequence[bytes]:
    """Answers of each form that versions have, one byte for the version in front."""
    part = {
        "partition_index": 3, "high_watermark": 9, "records": batch_corpus()[1] + b"r" * 200,
        "preferred_read_replica": 2,
        "aborted_transactions": [{"producer_id": 5, "first_offset": 1}] * 2,
        "current_leader": {"leader_id": 4, "leader_epoch": 7},
    }  # fmt: skip
    found = []
    for version in range(4, 18):
        schema = response_schema(ApiKey.FETCH, version)
        named = {"topic_id": uuid.UUID(int=7)} if version > 12 else {"topic": "name"}
        names = {field.name for field in fields_of(part_schema(schema))}
        told = {name: value for name, value in part.items() if name in names}
        out = bytearray([version - 4])
        struct_writer(schema)(out, {"responses": [{**named, "partitions": [told] * 2}]})
        found.append(bytes(out))
    return found


def part_schema(schema: type) -> type:
    for name in ("responses", "partitions"):
        schema = next(field.schema for field in fields_of(schema) if field.name == name)
    return schema


def fetched_run(data: memoryview) -> None:
    version = 4 + data[0] % 14 if data else 4
    found = testing_client.fetch_answer(data[1:], version)
    assert sum(max(0, size) for _, _, _, size, _, _ in found or ()) <= len(data)
    framed = b"corr" + b"\0" * (version >= 12) + data[1:]
    ends = sorted(random.Random(len(data)).randrange(len(framed) + 1) for _ in range(9))
    assert testing_client.scanned(framed, version, [*ends, len(framed)]) <= len(framed)


# ---- codecs


def codec_target(name: str) -> Target:
    def corpus() -> Sequence[bytes]:
        text = b"the quick brown fox jumps over the lazy dog " * 40
        noise = random.Random(3).randbytes(300)
        return [compression.compress(name, data) for data in (b"a", text, noise, text + noise)]

    def run(data: memoryview) -> None:
        try:
            assert len(compression.decompress(name, data, LIMIT)) <= LIMIT
        except compression.CodecError as error:
            assert error.code in (-1, -2)

    return Target("decompressing ends within the limit or says what is wrong", corpus, run)


# ---- canaries: they must fail


def liar_run(data: memoryview) -> None:
    assert b"key7" in data or len(data) < 600, "a canary's invariant"


def trespasser_run(data: memoryview) -> None:
    """Reads one byte too many, where an input looks like it wants that."""
    if len(data) > 20 and data[16] == 2:
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        ctypes.string_at(address, len(data) + 1)


def batch_target(invariant: str, run: Callable[[memoryview], None]) -> Target:
    return Target(invariant, batch_corpus, run, batch_seal)


TARGETS = {
    "wire": Target("reads stay inside; an error leaves nothing", wire_corpus, wire_run),
    "validate": batch_target("what is accepted reads back whole", validate_run),
    "records": batch_target("records stay inside their batch", records_run),
    "batches": batch_target("batches stay inside the buffer", read_run),
    "consumed": Target(
        "records and columns of an answer agree", consumed_corpus, consumed_run, batch_seal
    ),
    "fetched": Target("a Fetch answer is read inside its bytes", fetched_corpus, fetched_run),
    **{name: codec_target(name) for name in compression.NAMES[1:]},
}
CANARIES = {
    "canary_liar": batch_target("must fail by its invariant", liar_run),
    "canary_trespasser": batch_target("must die of the forbidden page", trespasser_run),
}
