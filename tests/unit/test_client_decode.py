"""Records and columns out of the bytes of a Fetch answer, against `kbroker.ext.records`."""

import gc
import pickle
import random

import pytest

from kbroker.ext import compression, debug, records
from kbroker.ext.client_record import FetchedBatchError, restored
from kbroker.ext.testing_client import Answer

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
    empty = Answer(b"").columns().to_arrow()
    empty.validate(full=True)
    assert empty.num_rows == 0


def test_nothing_is_left() -> None:
    before = debug.live_objects()
    data = random_batches(1, "zstd")
    kept = (Answer(data).records(), Answer(data).columns())
    assert kept
    del kept
    gc.collect()
    assert debug.live_objects() == before
