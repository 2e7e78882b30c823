"""Records and columns out of the bytes of a Fetch answer, against `kbroker.ext.records`."""

import gc
import itertools
import pickle
import random
import struct
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker.ext import compression, debug, records
from kbroker.ext.client_columns import BinaryColumn
from kbroker.ext.client_record import FetchedBatchError, restored
from kbroker.ext.testing_client import Answer, scanned
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import response_schema

NOW = 1_700_000_000_000
COMMIT = b"\0\0\0\1"
ABORT = b"\0\0\0\0"


def random_batches(seed: int, codec: str = "none") -> bytes:
    chosen = random.Random(seed)
    out, base = b"", chosen.randrange(100)
    for _ in range(chosen.randrange(1, 9)):
        made = [
            (
                NOW + chosen.randrange(-9, 10_000),
                chosen.choice([None, b"", chosen.randbytes(chosen.randrange(40))]),
                chosen.choice([None, b"", chosen.randbytes(chosen.randrange(400))]),
                [
                    (f"näme{i}", chosen.choice([None, b"", b"x" * i]))
                    for i in range(chosen.choice([0, 0, 0, 1, 5]))
                ],
            )
            for _ in range(chosen.randrange(1, 60))
        ]
        out += records.build(made, codec=codec, base_offset=base, leader_epoch=7)
        base += len(made) + chosen.randrange(3)
    return out


def taken(found: list) -> list[tuple]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found]


@pytest.mark.parametrize("codec", compression.NAMES)
def test_records_and_columns_are_what_was_built(codec: str) -> None:
    for seed in range(20):
        data = random_batches(seed, codec)
        expected = [tuple(record) for record in records.read(data)]
        assert taken(Answer(data).records()) == expected
        start = expected[len(expected) // 2][0]
        wanted = [row for row in expected if row[0] >= start]
        answer = Answer(data, start)
        pieces = []
        while piece := answer.records(7):
            pieces += piece
        assert taken(pieces) == wanted
        answer, rows = Answer(data, start), []
        while len(columns := answer.columns(11)):
            rows += zip(
                columns.offsets.tolist(),
                columns.timestamps.tolist(),
                columns.keys,
                columns.values,
                columns.headers,
                strict=True,
            )
        assert rows == wanted


def test_a_record_tells_where_it_is_from_and_outlives_its_answer() -> None:
    data = records.build([(NOW, b"k", None, [("h", b"1")])], base_offset=9, leader_epoch=4)
    (record,) = Answer(bytearray(data)).records()
    assert (record.topic, record.partition, record.offset) == ("topic", 3, 9)
    assert (record.leader_epoch, record.timestamp_type, record.key_size) == (4, 0, 1)
    assert record.value is None
    assert record.value_size == -1
    assert record.key is record.key
    copy = pickle.loads(pickle.dumps(record))
    assert repr(copy) == repr(record)
    assert repr(record.detach()) == repr(copy)
    record.replace(value={"a": 1})
    assert record.value == {"a": 1}
    with pytest.raises(TypeError):
        type(record)()
    assert restored("t", 0, 1, 2, b"k", b"v", ()).value_size == 1


def transaction(base: int, producer: int, count: int) -> bytes:
    made = [(NOW, b"%d" % producer, b"%d" % (base + i)) for i in range(count)]
    return records.build(
        made,
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(base: int, producer: int, key: bytes) -> bytes:
    return records.build(
        [(NOW, key, b"\0\0\0\0\0\0")],
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def test_aborted_transactions_are_left_out_where_only_committed_ones_are_read() -> None:
    data = b"".join(
        [
            transaction(0, 1, 2),
            transaction(2, 2, 2),
            marker(4, 1, ABORT),
            transaction(5, 1, 2),
            marker(7, 2, COMMIT),
            marker(8, 1, COMMIT),
            transaction(9, 2, 1),
            marker(10, 2, ABORT),
            records.build([(NOW, None, b"plain")], base_offset=11),
        ]
    )
    answer = Answer(data, aborted=((1, 0), (2, 9)), read_committed=True)
    assert [record.offset for record in answer.records()] == [2, 3, 5, 6, 11]
    everything = Answer(data, aborted=((1, 0), (2, 9)))
    assert [r.offset for r in everything.records()] == [0, 1, 2, 3, 5, 6, 9, 11]
    # A position inside: the markers still count.
    later = Answer(data, 5, aborted=((2, 9), (1, 0)), read_committed=True)
    assert [record.offset for record in later.records()] == [5, 6, 11]


def test_a_control_batch_at_the_end_moves_the_position() -> None:
    answer = Answer(
        transaction(0, 1, 2) + marker(2, 1, ABORT), aborted=((1, 0),), read_committed=True
    )
    assert answer.records() == []
    assert answer.position == 3


def test_a_position_goes_over_offsets_that_compaction_took() -> None:
    data = bytearray(records.build([(NOW, None, b"x")] * 4))
    answer = Answer(data)
    answer.records()
    assert answer.position == 4


def error_of(data: bytes, **rules: object) -> str:
    with pytest.raises(FetchedBatchError) as caught:
        Answer(data, **rules).records()
    with pytest.raises(FetchedBatchError) as by_columns:
        Answer(data, **rules).columns()
    assert str(by_columns.value) == str(caught.value)
    return str(caught.value)


def test_damage_is_told_with_its_place() -> None:
    whole = records.build([(NOW, b"k", b"v" * 30)] * 3, base_offset=5)
    bad = bytearray(whole)
    bad[-3] ^= 1
    assert error_of(bytes(bad)).startswith("topic-3 at offset 5: ")
    assert len(Answer(bytes(bad), check_crcs=False).records()) == 3
    assert "no whole one" in error_of(whole[:-1])
    assert len(Answer(whole + whole[:70]).records()) == 3, "a cut last batch comes again"
    assert "ends before the offset" in error_of(whole, position=8)
    assert error_of(whole[:16] + b"\1" + whole[17:])
    lying = bytearray(whole)
    lying[57:61] = (9).to_bytes(4, "big")
    answer = Answer(bytes(lying), check_crcs=False)
    assert len(answer.records(3)) == 3
    with pytest.raises(FetchedBatchError, match="lengths"):
        answer.records()


def test_a_decompression_bomb_is_refused() -> None:
    for codec in compression.NAMES[1:]:
        bomb = records.build([(NOW, None, bytes(1 << 20))] * 4, codec=codec)
        assert "at offset 0: " in error_of(bomb, limit=1 << 20)
        assert len(Answer(bomb, limit=5 << 20).records()) == 4


def test_columns_are_buffers() -> None:
    data = records.build([(NOW + i, None if i % 3 else b"k", b"v" * i) for i in range(20)])
    columns = Answer(data).columns()
    assert columns.topics == ("topic",)
    assert (columns.offsets.format, columns.offsets.readonly) == ("q", True)
    assert columns.partitions.tolist() == [3] * 20
    assert columns.topic_indexes.tolist() == [0] * 20
    assert columns.keys.null_count == 13
    assert columns.values.validity is None
    assert bytes(columns.values.data) == b"".join(b"v" * i for i in range(20))
    assert columns.values.offsets.tolist()[-1] == sum(range(20))
    assert columns.values[-1] == b"v" * 19
    with pytest.raises(IndexError):
        columns.values[20]
    offsets = columns.offsets
    del columns
    gc.collect()
    assert offsets.tolist() == list(range(20))


def packed(column: BinaryColumn) -> list[bytes | None]:
    """By offsets and data, as Arrow's `binary` has it."""
    bits = column.validity
    found = []
    for i, (start, end) in enumerate(itertools.pairwise(column.offsets)):
        null = bits is not None and not bits[i // 8] >> i % 8 & 1
        found.append(None if null else bytes(column.data[start:end]))
    return found


def viewed(column: BinaryColumn) -> list[bytes | None]:
    """By views and buffers."""
    bits, found = column.validity, []
    views = column.views.tolist()
    for i, n in enumerate(column.lengths):
        length, _, piece, at = views[4 * i : 4 * i + 4]
        assert n == length
        inline = struct.pack("=3i", *views[4 * i + 1 : 4 * i + 4])
        assert n > 12 or inline[n:] == bytes(12 - n), "the rest is zero"
        value = inline[:n] if n <= 12 else bytes(column.buffers[piece][at : at + n])
        assert value[:4] == inline[: min(n, 4)]
        null = bits is not None and not bits[i // 8] >> i % 8 & 1
        found.append(None if null else value)
    return found


@pytest.mark.parametrize("codec", compression.NAMES)
def test_columns_are_the_same_by_views_and_packed(codec: str) -> None:
    for seed in range(20):
        data = random_batches(seed, codec)
        expected = [tuple(record) for record in records.read(data)]
        kinds = [viewed, packed, list]
        for turn in range(3):
            columns = Answer(data).columns()
            for kind in kinds[turn:] + kinds[:turn]:
                assert kind(columns.keys) == [row[2] for row in expected]
                assert kind(columns.values) == [row[3] for row in expected]
            assert columns.values.nbytes == sum(len(row[3] or b"") for row in expected)
            assert columns.keys.null_count == sum(row[2] is None for row in expected)


def test_nulls_begin_and_end_anywhere() -> None:
    """Also in memory that earlier columns left."""
    for first in range(20):
        for count in range(20):
            keys = [None] * first + [b"k" * (5 * i) for i in range(count)] + [None] * 3
            data = records.build([(NOW, key, b"") for key in keys])
            columns = Answer(data).columns()
            assert columns.keys.null_count == first + 3
            assert list(columns.keys) == viewed(columns.keys) == packed(columns.keys) == keys
            assert columns.values.validity is None


def test_sizes_of_every_kind() -> None:
    values = [b"", b"v", b"x" * 12, b"y" * 13, random.Random(1).randbytes(3_000_000), None]
    for codec in compression.NAMES:
        data = records.build([(NOW, value, value) for value in values], codec=codec)
        columns = Answer(data, limit=10_000_000).columns()
        for column in (columns.keys, columns.values):
            assert list(column) == viewed(column) == packed(column) == values


def test_columns_outlive_their_answer() -> None:
    data = bytearray(random_batches(3, "lz4") + random_batches(4))
    expected = [record.value for record in Answer(bytes(data)).records()]
    answer = Answer(data)
    columns = answer.columns()
    kept = columns.values.views, columns.values.buffers, columns.values.lengths
    columns = columns.values
    del answer, data
    gc.collect()
    assert viewed(columns) == expected
    assert len(kept[2]) == len(expected)
    with pytest.raises(TypeError):
        kept[0][0] = 1


@pytest.mark.parametrize("codec", compression.NAMES)
def test_columns_that_are_detached_are_the_same_in_memory_of_their_own(codec: str) -> None:
    for seed in range(20):
        data = bytearray(random_batches(seed, codec))
        records.set_timestamps(data, True, NOW)  # of the first batch
        expected = [tuple(record) for record in records.read(bytes(data))]
        columns = Answer(bytes(data)).columns()
        before = columns.values.views, columns.values.buffers
        kept, types = columns.values, columns.timestamp_types.tolist()
        assert columns.detach() is columns
        assert columns.topics == ("topic",)
        for column, at in ((columns.keys, 2), (columns.values, 3)):
            assert list(column) == viewed(column) == packed(column) == [row[at] for row in expected]
        assert list(columns.headers) == [row[4] for row in expected]
        assert columns.offsets.tolist() == [row[0] for row in expected]
        assert columns.timestamps.tolist() == [row[1] for row in expected]
        assert columns.timestamp_types.tolist() == types
        assert columns.partitions.tolist() == [3] * len(expected)
        sizes = [len(value or b"") for row in expected for value in row[2:4]]
        assert sum(map(len, columns.values.buffers)) == sum(n for n in sizes if n > 12)
        assert viewed(kept) == [row[3] for row in expected], "what was there before stays"
        assert before[0].tolist() == kept.views.tolist() and len(before[1]) == len(kept.buffers)
    empty = Answer(b"").columns().detach()
    assert len(empty) == 0 and list(empty.values) == []


def test_columns_are_packed_once_by_many_threads() -> None:
    values = [random.Random(i).randbytes(500) for i in range(4000)]
    for _ in range(5):
        columns = Answer(records.build([(NOW, None, value) for value in values])).columns()
        with ThreadPoolExecutor(4) as pool:
            runs = list(pool.map(lambda _: bytes(columns.values.data), range(8)))  # noqa: B023
        assert set(runs) == {b"".join(values)}


def test_columns_are_an_arrow_record_batch() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for seed in range(10):
        data = random_batches(seed)
        batch = pyarrow.record_batch(Answer(data).columns())
        batch.validate(full=True)
        assert [field.name for field in batch.schema] == [
            "topic",
            "partition",
            "offset",
            "timestamp",
            "key",
            "value",
            "headers",
        ]
        rows = [
            (
                row["offset"],
                int(row["timestamp"].timestamp() * 1000 + 0.5),
                row["key"],
                row["value"],
                tuple((h["key"], h["value"]) for h in row["headers"]),
            )
            for row in batch.to_pylist()
        ]
        assert rows == [tuple(record) for record in records.read(data)]
        views = Answer(data).columns().to_arrow(views=True)
        views.validate(full=True)
        assert views.schema.field("value").type == pyarrow.binary_view()
        assert views.to_pylist() == batch.to_pylist()
        wanted = batch.schema.set(5, pyarrow.field("value", pyarrow.binary_view()))
        assert pyarrow.record_batch(Answer(data).columns(), schema=wanted).equals(
            views.set_column(4, "key", batch.column("key"))
        )
    assert Answer(b"").columns().to_arrow(views=True).num_rows == 0
    empty = Answer(b"").columns().to_arrow()
    empty.validate(full=True)
    assert empty.num_rows == 0


def fetch_answer(version: int, parts: list[list[bytes | None]]) -> bytes:
    """A topic for each list of its partitions' records; the correlation id in front."""
    out = bytearray(b"corr" + b"\0" * (version >= 12))
    named = "topic_id" if version > 12 else "topic"
    told = [
        {
            named: uuid.UUID(int=i + 1) if version > 12 else f"topic{i}",
            "partitions": [
                {"partition_index": k, "records": data} for k, data in enumerate(topic)
            ],
        }
        for i, topic in enumerate(parts)
    ]
    struct_writer(response_schema(ApiKey.FETCH, version))(out, {"responses": told})
    return bytes(out)


@pytest.mark.parametrize("version", range(4, 18))
def test_batches_are_summed_as_they_arrive(version: int) -> None:
    first, second, third = (random_batches(seed, "lz4") for seed in (1, 2, 3))
    parts = [[first, None, b"", second + first[:40]], [], [third], [b""]]
    data = fetch_answer(version, parts)
    whole = data.index(third) + len(third)
    for step in (1, 7, 64, 1000, len(data)):
        ends = [*range(step, len(data), step), len(data)]
        assert scanned(data, version, ends) == whole
    for end in range(0, len(data), 11):
        found = scanned(data, version, [end])
        assert found <= end
    # Behind the first bad batch nothing is noted.
    for at, end in ((data.index(second) + 30, data.index(first) + len(first)),
                    (data.index(first) + 30, 0)):  # fmt: skip
        bad = bytearray(data)
        bad[at] ^= 1
        assert scanned(bad, version, [len(data) // 2, len(data)]) == end


def test_nothing_is_left() -> None:
    before = debug.live_objects()
    data = random_batches(1, "zstd")
    kept = (Answer(data).records(), Answer(data).columns())
    assert kept
    del kept
    gc.collect()
    assert debug.live_objects() == before
