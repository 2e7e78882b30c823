"""Batches built, read and put in another codec through Python's face of them."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from kbroker.ext import compression, records
from tests.reference import records as reference

CODECS = compression.NAMES
New = tuple[Any, ...]
NOW = 1_700_000_000_000

names = st.text(max_size=6)
new_records = st.lists(
    st.tuples(
        st.integers(NOW - 10**6, NOW + 10**6),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(names, st.none() | st.binary(max_size=9)), max_size=3),
    ),
    min_size=1,
    max_size=80,
)


def plain(found: list[records.Record]) -> list[tuple[object, ...]]:
    return [(r.timestamp, r.key, r.value, list(r.headers)) for r in found]


@pytest.mark.parametrize("codec", CODECS)
@given(given_records=new_records)
def test_what_is_built_is_read(codec: str, given_records: list[New]) -> None:
    data = records.build(given_records, codec=codec, base_offset=77, leader_epoch=3)
    (batch,) = records.batches(data)
    assert (batch.base_offset, batch.leader_epoch, batch.length) == (77, 3, len(data))
    assert batch.compression == CODECS.index(codec)
    assert (batch.count, batch.last_offset_delta) == (len(given_records), len(given_records) - 1)
    assert batch.base_timestamp == given_records[0][0]
    assert batch.max_timestamp == max(r[0] for r in given_records)
    found = records.records(data)
    assert plain(found) == [tuple(r) for r in given_records]
    assert [r.offset for r in found] == list(range(77, 77 + len(given_records)))


@given(new_records)
def test_a_plain_batch_is_what_the_reference_writes(given_records: list[New]) -> None:
    slow = [
        reference.Record(r[1], r[2], [(name.encode(), value) for name, value in r[3]], r[0])
        for r in given_records
    ]
    assert records.build(given_records) == reference.Batch(slow).encode()


@given(new_records)
def test_a_clients_library_reads_ours_and_we_read_its(given_records: list[New]) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        theirs = DefaultRecordBatch(bytearray(records.build(given_records, codec=codec)))
        assert theirs.validate_crc()
        assert [(r.timestamp, r.key, r.value, r.headers) for r in theirs] == [
            tuple(r) for r in given_records
        ]
        builder = DefaultRecordBatchBuilder(2, CODECS.index(codec), False, -1, -1, -1, 1 << 20)
        for i, record in enumerate(given_records):
            builder.append(i, *record)
        assert plain(records.read(bytes(builder.build()))) == [tuple(r) for r in given_records]


def test_producer_fields() -> None:
    data = records.build(
        [(NOW, b"k", b"v")], producer_id=9, producer_epoch=2, base_sequence=41, transactional=True
    )
    batch = records.validate(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 41)
    assert batch.transactional
    assert not batch.control


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recompress_keeps_all_but_the_codec(source: str, target: str) -> None:
    given_records: list[New] = [
        (NOW + i, b"key%d" % (i % 7), b"value" * (i % 50), [("h", b"x")]) for i in range(200)
    ]
    before = records.build(
        given_records, codec=source, base_offset=5, producer_id=3, producer_epoch=0,
        base_sequence=8, transactional=True,
    )  # fmt: skip
    after = records.recompress(before, target)
    (batch,) = records.batches(after)
    want = records.batches(before)[0]
    same = {"length": batch.length, "crc": batch.crc, "attributes": batch.attributes,
            "compression": CODECS.index(target)}  # fmt: skip
    assert batch == want._replace(**same)
    assert batch.attributes & ~7 == want.attributes & ~7
    assert records.records(after) == records.records(before)


def test_read_leaves_out_what_a_consumer_does_not_want() -> None:
    first = records.build([(NOW, None, b"%d" % i) for i in range(5)])
    marker = records.build([(NOW, b"\0\0\0\1", b"")], base_offset=5, control=True)
    last = records.build([(NOW, None, b"%d" % i) for i in range(6, 9)], base_offset=6, codec="lz4")
    data = first + marker + last
    assert [r.offset for r in records.read(data)] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert [r.value for r in records.read(data, 3)] == [b"3", b"4", b"6", b"7", b"8"]
    assert [r.offset for r in records.read(data[:-1], 7)] == []
    assert records.read(data, 9) == []


def test_log_append_time_is_every_records_timestamp() -> None:
    data = bytearray(records.build([(NOW, None, b"a"), (NOW + 1, None, b"b")]))
    records.set_timestamps(data, True, NOW + 99)
    assert [r.timestamp for r in records.read(data)] == [NOW + 99] * 2


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_records_are_judged_once_they_are_plain(codec: str) -> None:
    good = records.build([(NOW + i, b"k", b"v") for i in range(30)], codec=codec)
    assert records.validate_records(good, compacted=True).count == 30
    keyless = records.build([(NOW, b"k", b"v"), (NOW, None, b"v")], codec=codec)
    with pytest.raises(records.BatchError, match="key") as caught:
        records.validate_records(keyless, compacted=True)
    assert (caught.value.error_code, caught.value.record) == (87, 1)
    late = records.build([(NOW, b"k", b"v"), (NOW + 9, b"k", b"v")], codec=codec)
    with pytest.raises(records.BatchError, match="timestamp"):
        records.validate_records(late, now_ms=NOW, timestamp_after_max_ms=8)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_an_error(codec: str) -> None:
    bomb = records.build([(NOW, None, bytes(1 << 20))], codec=codec)
    assert len(bomb) < 1 << 17
    with pytest.raises(records.BatchError, match="allowed") as caught:
        records.records(bomb, limit=1 << 16)
    assert caught.value.error_code == 87


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_pythons_libraries_take_over_where_the_systems_lack(codec: str) -> None:
    number = CODECS.index(codec)
    before = records.build([(NOW + i, b"k", b"v" * i) for i in range(99)])
    after = records.python_wrap(before[:61], number, before[61:], None)
    assert records.batches(after)[0].compression == number
    assert records.records(after) == records.records(before)
    assert records.python_decompress(number, after[61:], 1 << 20) == before[61:]
    with pytest.raises(records.BatchError, match="allowed"):
        records.python_decompress(number, after[61:], len(before) - 62)
    with pytest.raises(records.BatchError, match="decompress"):
        records.python_decompress(number, b"\x1f\x8bnothing", 1 << 20)


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(records.BatchError, match="count"):
        records.build([])


@pytest.mark.parametrize(
    "record",
    [
        (NOW, "text", b"v"),
        (NOW, b"k", 5),
        (NOW, b"k"),
        (NOW,),
        (),
        5,
        ("now", b"k", b"v"),
        (2**63, b"k", b"v"),
        (NOW, b"k", b"v", [], []),
        (NOW, b"k", b"v", 5),
        (NOW, b"k", b"v", [5]),
        (NOW, b"k", b"v", [(5, b"")]),
        (NOW, b"k", b"v", [("h", "")]),
        (NOW, b"k", b"v", [("h",)]),
    ],
)
def test_wrong_types_are_errors(record: object) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        records.build([record])  # type: ignore[list-item]


def test_a_header_name_that_is_no_utf8_comes_back_as_it_was() -> None:
    data = records.build([(NOW, None, None, [(b"\xff\xfe", b"1")])])
    name = records.records(data)[0].headers[0][0]
    assert records.build([(NOW, None, None, [(name, b"1")])]) == data
