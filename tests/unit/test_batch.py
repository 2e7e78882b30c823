"""Record batches: ext's quick judgement against the slow one, field by field and lie by lie."""

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.ext import crc32c, records
from tests.reference import records as reference
from tests.reference.records import Batch, Record, Rules

NOW = 1_700_000_000_000

timestamps = st.integers(NOW - 5000, NOW + 5000) | st.sampled_from(
    [-1, 0, -2, NOW, 2**63 - 1, -(2**63), 2**62, -(2**62)]
)
blobs = st.none() | st.binary(max_size=12) | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8200])
record_lists = st.lists(
    st.builds(
        Record,
        key=blobs,
        value=blobs,
        headers=st.lists(
            st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
        ),
        timestamp=timestamps,
    ),
    min_size=1,
    max_size=70,
)
rules_sets = st.builds(
    Rules,
    now_ms=st.just(NOW),
    timestamp_before_max_ms=st.sampled_from([2**63 - 1, 3000]),
    timestamp_after_max_ms=st.sampled_from([2**63 - 1, 3_600_000, 3000]),
    max_message_bytes=st.sampled_from([2**31 - 1, 1000]),
    log_append_time=st.booleans(),
    compacted=st.booleans(),
    zstd_allowed=st.booleans(),
)


def verdict(data: bytes, rules: Rules) -> tuple[int, int]:
    """(0, max timestamp) or (error code, first bad record), by ext."""
    try:
        return 0, records.validate(data, **vars(rules)).max_timestamp
    except records.BatchError as bad:
        return bad.error_code, bad.record


def slow_verdict(data: bytes, rules: Rules) -> tuple[int, int]:
    try:
        return 0, reference.judge(data, rules)
    except reference.RefusedError as bad:
        return bad.error_code, bad.record


def reseal(data: bytes) -> bytes:
    """With the checksum of what the bytes are now."""
    return data[:17] + struct.pack(">I", crc32c.checksum(data[21:])) + data[21:]


@given(record_lists, rules_sets)
def test_batch_of_sound_structure(given_records: list[Record], rules: Rules) -> None:
    data = Batch(given_records).encode()
    assert verdict(data, rules) == slow_verdict(data, rules)


LIES: dict[str, list[Any]] = {
    "base_offset": [1, -1, 2**40],
    "length": [-1, 0, 13, 14, 48, 49, 2**31 - 1, -(2**31)],
    "magic": [0, 1, 3, 127, -1],
    "crc": [0, 0xFFFFFFFF],
    "attributes": [1, 2, 3, 4, 5, 6, 7, 8, 0x10, 0x20, 0x40, 0x28, 0x7F00],
    "last_offset_delta": [-1, 0, 5, 2**31 - 1, -(2**31)],
    "count": [-1, 0, 1, 6, 2**31 - 1, -(2**31)],
    "base_timestamp": [-1, 0, 2**63 - 1, -(2**63), NOW + 9000],
    "max_timestamp": [-1, 0, 2**63 - 1, NOW + 9000],
    "producer_id": [0, 7, -2],
    "producer_epoch": [0, -2],
    "base_sequence": [0, -2, 2**31 - 1],
}


@given(st.data(), rules_sets)
@settings(max_examples=400)
def test_lies_in_the_header(data: st.DataObject, rules: Rules) -> None:
    batch = Batch([Record(b"k", b"v", (), NOW), Record(None, b"w" * 70, (), NOW + 1)])
    for name in data.draw(st.lists(st.sampled_from(sorted(LIES)), min_size=1, max_size=3)):
        setattr(batch, name, data.draw(st.sampled_from(LIES[name])))
    encoded = batch.encode() + data.draw(st.sampled_from([b"", b"", b"\0", b"\0" * 70]))
    assert verdict(encoded, rules) == slow_verdict(encoded, rules)


@given(record_lists, st.data(), rules_sets)
@settings(max_examples=300)
def test_changed_bytes_behind_a_good_checksum(
    given_records: list[Record], data: st.DataObject, rules: Rules
) -> None:
    """Invariant: whatever the records hold, both judges agree on error and place."""
    encoded = bytearray(Batch(given_records[:9]).encode())
    body = range(61, len(encoded))
    for at in data.draw(st.lists(st.sampled_from(body), min_size=1, max_size=4)):
        encoded[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    sealed = reseal(bytes(encoded))
    assert verdict(sealed, rules) == slow_verdict(sealed, rules)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8191, 8192, 8193])
def test_counts_around_the_widths_of_a_varint(count: int) -> None:
    data = Batch([Record(None, b"v" * (i % 3), (), NOW + i) for i in range(count)]).encode()
    assert records.validate(data).count == count
    assert records.validate(data).max_timestamp == NOW + count - 1


def test_every_cut_and_every_flip_is_refused() -> None:
    data = Batch([Record(b"key", b"value", ((b"h", b"1"),), NOW)] * 3).encode()
    assert verdict(data, Rules()) == (0, NOW)
    for n in range(len(data)):
        assert verdict(data[:n], Rules())[0] in (2, 87)
    for at in range(8, len(data)):
        if 12 <= at < 16:
            continue
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            assert verdict(bytes(flipped), Rules())[0] in (2, 87), (at, bit)


def test_overlong_varints_are_refused_wherever_they_stand() -> None:
    good = [Record(b"k", b"v", (), NOW)] * 40
    plain = Batch(good).encode()
    record = len(reference.encode_record(good[0], 0, NOW))
    for place in (61, 61 + 2, 61 + 3, 61 + 4, 61 + 6, 61 + 8):
        longer = plain[place] | 0x80
        for more in range(1, 11):
            body = plain[61:place] + bytes([longer]) + b"\x80" * (more - 1) + b"\0"
            body += plain[place + 1 :]
            if place > 61:
                body = reference.varint(record - 1 + more) + body[1:]
            data = Batch(good, body=body).encode()
            assert verdict(data, Rules()) == slow_verdict(data, Rules()), (place, more)


def test_all_bad_records_are_listed() -> None:
    data = Batch([Record(b"k" if i % 3 else None, b"v", (), NOW + i) for i in range(8)]).encode()
    rules = {"compacted": True, "now_ms": NOW, "timestamp_after_max_ms": 5}
    found = [index for index, _ in records.bad_records(data, **rules)]
    assert found == [0, 3, 6, 7]
    with pytest.raises(records.BatchError, match="timestamp") as caught:
        records.validate(data, **rules)
    assert (caught.value.error_code, caught.value.record) == (32, 0)


def test_the_brokers_own_batches_may_be_control_batches() -> None:
    data = Batch([Record(b"k", b"v")], attributes=0x20).encode()
    with pytest.raises(records.BatchError, match="control"):
        records.validate(data)
    assert records.validate(data, from_client=False).control


def test_assign_keeps_the_checksum() -> None:
    data = bytearray(Batch([Record(b"k", b"v")] * 2).encode())
    records.assign(data, 123456789012, 7)
    (batch,) = records.batches(data)
    assert (batch.base_offset, batch.leader_epoch, batch.count) == (123456789012, 7, 2)


@given(st.booleans(), st.integers(-1, 2**62), st.integers(0, 3000))
def test_set_timestamps_keeps_the_checksum_right(append: bool, latest: int, size: int) -> None:
    data = bytearray(Batch([Record(b"k", random.Random(size).randbytes(size), (), NOW)]).encode())
    records.set_timestamps(data, append, latest)
    (batch,) = records.batches(data)
    assert (batch.log_append_time, batch.max_timestamp) == (append, latest)


def test_batches_leaves_out_the_part_at_the_end() -> None:
    one = Batch([Record(b"k", b"v")] * 2).encode()
    three = one * 3
    for n in range(len(three)):
        assert len(records.batches(three[:n])) == n // len(one)
    assert [b.position for b in records.batches(three)] == [0, len(one), 2 * len(one)]


def test_batches_refuses_what_is_none() -> None:
    one = Batch([Record(b"k", b"v")]).encode()
    with pytest.raises(records.BatchError, match="checksum"):
        records.batches(one[:-1] + b"!")
    with pytest.raises(records.BatchError, match="magic"):
        records.batches(one + Batch([Record()], magic=3).encode())
    with pytest.raises(records.BatchError, match="length"):
        records.batches(Batch([Record()], length=48).encode())


def test_unknown_rule_is_an_error() -> None:
    with pytest.raises(TypeError, match="nosuch"):
        records.validate(b"", nosuch=1)


def test_a_batch_of_bad_records_only_is_judged_in_one_pass() -> None:
    """Walking from the start for each of them would take minutes."""
    data = records.build([(NOW + i % 2, None, None) for i in range(100_000)])
    with pytest.raises(records.BatchError, match="key"):
        records.validate(data, compacted=True)
    with pytest.raises(records.BatchError, match="timestamp") as caught:
        records.validate(data, now_ms=NOW, timestamp_after_max_ms=0)
    assert caught.value.record == 1
    assert len(records.bad_records(data, compacted=True)) == 100_000
