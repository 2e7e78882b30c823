"""The load of `__consumer_offsets`: compared with a slow fold, and on logs that are damaged."""

from __future__ import annotations

import random
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import DiskError
from kbroker.ext import compression, records
from kbroker.ext.offsets_load import OffsetsLoad
from kbroker.ext.offsets_rows import OffsetsFold
from kbroker.metadata.records import consumer_group
from kbroker.metadata.records.classic_group import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kbroker.metadata.records.frame import encode_key, encode_value
from tests.reference.offsets import Fold
from tests.support.logs import marker, open_log
from tests.support.tree import ROOT

NOW = 1_763_750_000_000
TOPIC_ID = bytes(range(16))

names = st.sampled_from(["a", "b", "group-with-a-name", "größe", "\U0001f40d" * 3])
texts = st.sampled_from(["", "m", "metadata, " * 20, "é"])
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
partitions = st.sampled_from([0, 1, -1, 2**31 - 1])


def key_of(group="g", topic="t", partition=0):
    return encode_key(OffsetCommitKey(group, topic, partition))


def value_of(offset=1, version=4, **fields):
    return encode_value(OffsetCommitValue(offset, commit_timestamp=NOW, **fields), version)


@st.composite
def commits(draw):
    key = key_of(draw(names), draw(names), draw(partitions))
    version = draw(st.integers(0, 4))
    value = OffsetCommitValue(draw(int64), metadata=draw(texts), commit_timestamp=draw(int64))
    if version == 1:
        value.expire_timestamp = draw(int64)
    if version >= 3:
        value.leader_epoch = draw(int32)
    if version >= 4:
        value.topic_id = draw(st.sampled_from([bytes(16), TOPIC_ID, TOPIC_ID[::-1]]))
        value.unknown_tags = draw(st.sampled_from([(), ((1, b""), (300, b"new"))]))
    return key, draw(st.sampled_from([None, encode_value(value, version)]))


@st.composite
def legacy_commits(draw):
    key = encode_key(LegacyOffsetCommitKey(draw(names), draw(names), draw(partitions)))
    value = encode_value(LegacyOffsetCommitValue(draw(int64), draw(texts), draw(int64)), 0)
    return key, draw(st.sampled_from([None, value]))


@st.composite
def damaged_commits(draw):
    """Bytes changed, taken out or put in; of few, so that lengths stay small."""
    pair = [bytearray(part or b"") for part in draw(st.one_of(commits(), legacy_commits()))]
    for part in pair:
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(part)))
            if draw(st.booleans()):
                del part[at : at + draw(st.integers(1, 9))]
            else:
                part[at:at] = draw(st.binary(min_size=1, max_size=3))
    return bytes(pair[0]), bytes(pair[1])


others = st.tuples(
    st.sampled_from([encode_key(GroupMetadataKey("g")), b"\0\3key", b"\7\7", b"\0", b"", None]),
    st.sampled_from([None, b"", b"value"]),
)
pairs = st.one_of(commits(), commits(), legacy_commits(), damaged_commits(), others)


@st.composite
def logs(draw):
    """Batches one behind the other: of commits, of transactions and their markers."""
    data, offset = b"", draw(st.sampled_from([0, 1 << 40]))
    for _ in range(draw(st.integers(0, 12))):
        producer = draw(st.sampled_from([-1, -1, 7, 8]))
        if producer != -1 and draw(st.booleans()):
            batch = bytearray(marker(producer, 0, commit=draw(st.booleans())))
            count = 1
        else:
            rows = [(NOW, *pair) for pair in draw(st.lists(pairs, min_size=1, max_size=6))]
            batch = bytearray(
                records.build(
                    rows,
                    codec=draw(st.sampled_from(compression.NAMES)),
                    producer_id=producer,
                    transactional=producer != -1,
                )
            )
            count = len(rows)
        records.assign(batch, offset, 0)
        data += batch
        offset += count + draw(st.integers(0, 2))
    return data


def all_rows(folded, most=1000):
    found = []
    while got := folded.packed(most):
        assert len(got) <= most
        found += got
    return found


def offset_of(packed):
    return struct.unpack_from(">q", packed)[0]


def damaged_offsets(folded):
    return [offset for offset, _ in folded.problems]


@given(logs())
def test_agrees_with_a_slow_fold(data):
    expected, found = Fold(), OffsetsFold()
    expected.feed(data)
    assert found.feed(data) == expected.others
    assert sorted(all_rows(found, 3)) == expected.packed()
    assert found.pending() == expected.pending()
    assert damaged_offsets(found) == expected.problems
    assert found.problem_count == len(expected.problems)


@given(st.lists(damaged_commits(), min_size=1, max_size=40))
def test_agrees_on_what_is_damaged(damaged):
    data = records.build([(NOW, *pair) for pair in damaged])
    expected, found = Fold(), OffsetsFold()
    expected.feed(data)
    found.feed(data)
    assert damaged_offsets(found) == expected.problems
    assert sorted(all_rows(found)) == expected.packed()


def test_transactions_as_kafka_replays_them():
    def commit(offset, producer=-1, key=None, value=b""):
        row = (NOW, key or key_of(), value_of(offset) if value == b"" else value)
        return records.build([row], producer_id=producer, transactional=producer != -1)

    cases = [
        ([commit(1, 7), marker(7, 0, commit=True)], {1}, set()),
        ([commit(1, 7), marker(7, 0, commit=False)], set(), set()),
        ([commit(1, 7)], set(), {(1, True)}),
        ([commit(1, 7), commit(2)], {2}, {(1, False)}),
        ([commit(2), commit(1, 7)], {2}, {(1, True)}),
        ([commit(1, 7), commit(2), marker(7, 0, commit=True)], {2}, set()),
        ([commit(2), commit(1, 7), marker(7, 0, commit=True)], {1}, set()),
        ([commit(1, 7), commit(9, value=None), marker(7, 0, commit=True)], set(), set()),
        ([commit(1, 7), commit(9, 8, value=None), marker(7, 0, commit=True)], set(), set()),
        ([commit(1, 7), commit(2, 7), marker(7, 0, commit=True)], {2}, set()),
        ([commit(1, 7), commit(2, 8), marker(8, 0, commit=True)], {2}, {(1, False)}),
        ([commit(1, 7), marker(7, 0, commit=True), commit(2, 7)], {1}, {(2, True)}),
        ([commit(1, 7), marker(8, 0, commit=True)], set(), {(1, True)}),
    ]
    for batches, held, pending in cases:
        folded = OffsetsFold()
        for offset, batch in enumerate(map(bytearray, batches)):
            records.assign(batch, offset, 0)
            folded.feed(batch)
        assert {offset_of(row[3]) for row in all_rows(folded)} == held
        assert {(offset_of(row[-1]), row[1]) for row in folded.pending()} == pending


def test_strings_are_shared():
    folded = OffsetsFold()
    pairs = [
        (NOW, key_of(f"group {i % 3}", f"topic {i % 5}", i), value_of()) for i in range(300)
    ]
    folded.feed(records.build(pairs))
    rows = all_rows(folded)
    assert len(rows) == 300
    for column, distinct in ((0, 3), (1, 5)):
        assert len({id(row[column]) for row in rows}) == distinct


def test_rows_come_when_all_was_read(tmp_path):
    log = open_log(tmp_path / "offsets-0")
    load = OffsetsLoad(log)
    with pytest.raises(RuntimeError):
        load.packed()
    with pytest.raises(RuntimeError):
        load.pending()
    assert load.step() == []
    assert load.done
    assert load.packed() == load.pending() == load.step() == []
    log.close()


# ---- logs


def fill(log, seed=1, batches=200):
    """Random commits and other records, in every codec; the slow fold of them."""
    chosen, expected = random.Random(seed), Fold()
    for i in range(batches):
        rows = []
        for _ in range(chosen.randrange(1, 30)):
            if chosen.random() < 0.2:
                key = encode_key(consumer_group.ConsumerGroupMetadataKey(f"group {i}"))
                rows.append((NOW, key, chosen.randbytes(30)))
            else:
                key = key_of(f"group {chosen.randrange(9)}", "topic", chosen.randrange(9))
                value = value_of(i, topic_id=TOPIC_ID) if chosen.random() < 0.9 else None
                rows.append((NOW, key, value))
        codec = chosen.choice(compression.NAMES)
        first, _ = log.append(records.build(rows, codec=codec), leader_epoch=0)
        batch = bytearray(records.build(rows, codec=codec))
        records.assign(batch, first, 0)
        expected.feed(batch)
    return expected


def loaded(log, **options):
    load, others = OffsetsLoad(log, **options), []
    while not load.done:
        others += load.step()
    return load, others


@pytest.mark.parametrize("step_bytes", [1, 5000, 1 << 20])
def test_loads_a_log_of_several_segments(tmp_path, step_bytes):
    log = open_log(tmp_path / "offsets-0", segment_bytes=20_000)
    expected = fill(log)
    load, others = loaded(log, step_bytes=step_bytes)
    assert others == expected.others
    assert sorted(all_rows(load)) == expected.packed()
    assert load.problem_count == 0
    assert load.position == load.end_offset == log.log_end_offset
    assert load.records_read == log.log_end_offset
    assert load.bytes_read >= log.size_bytes
    log.close()


def test_ends_where_it_is_told_and_begins_where_the_log_does(tmp_path):
    log = open_log(tmp_path / "offsets-0", segment_bytes=1000)
    for i in range(100):
        log.append(records.build([(NOW, key_of("g", "t", i), value_of(i))]), leader_epoch=0)
    log.set_log_start_offset(40)
    load, _ = loaded(log, end_offset=60)
    assert [row[2] for row in all_rows(load)] == list(range(40, 60))
    load = OffsetsLoad(log)
    log.set_log_start_offset(90)
    while not load.done:
        load.step()
    assert [row[2] for row in all_rows(load)] == list(range(90, 100))
    log.close()


def test_gives_other_records_a_thousand_at_a_time(tmp_path):
    log = open_log(tmp_path / "offsets-0")
    rows = [(NOW, b"\0\3%d" % i, b"v") for i in range(2500)]
    log.append(records.build([*rows, (NOW, key_of(), value_of())]), leader_epoch=0)
    large = [(NOW, b"\0\3large %d" % i, bytes(400_000)) for i in range(10)]
    log.append(records.build(large), leader_epoch=0)
    load, steps = OffsetsLoad(log), []
    while not load.done:
        steps.append(load.step())
        assert sum(len(value) for _, _, value in steps[-1]) <= (1 << 20) + 400_000
    assert max(map(len, steps)) == 1000
    expected = [key for _, key, _ in rows + large]
    assert [key for step in steps for _, key, _ in step] == expected
    assert len(load.packed()) == 1
    log.close()


NO_MEMORY = """
import resource, sys
from pathlib import Path
from kbroker.ext.offsets_load import OffsetsLoad
from tests.support.logs import open_log

log = open_log(Path(sys.argv[1]))
load, (_, most) = OffsetsLoad(log), resource.getrlimit(resource.RLIMIT_AS)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (30 << 20), most))
try:
    while not load.done:
        load.step()
except MemoryError:
    print("no memory")
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    while not load.done:
        load.step()
except RuntimeError as error:
    print(error)
load = OffsetsLoad(log)
while not load.done:
    load.step()
print(len(load.packed()))
log.close()
"""


def test_load_without_memory_is_not_continued(tmp_path):
    """The batch that did not fit in memory would be missing without a problem being reported."""
    log = open_log(tmp_path / "offsets-0")
    rows = [(NOW, key_of(), value_of(7)), (NOW, b"\0\3key", bytes(90 << 20))]
    log.append(records.build(rows, codec="gzip"), leader_epoch=0)
    log.close()
    command = [sys.executable, "-c", NO_MEMORY, str(tmp_path / "offsets-0")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert done.stdout.splitlines() == [
        "no memory", "the load failed before; load the log again from its start", "1",
    ], done.stderr  # fmt: skip


def damaged_log(folder, damage, batches=60):
    """A log whose bytes were changed by `damage` behind its back; each batch is one commit of the
    partition with its offset's number."""
    log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=500)
    for i in range(batches):
        log.append(records.build([(NOW, key_of("g", "t", i), value_of(i))]), leader_epoch=0)
    path = next(folder.glob("*.log"))
    data = bytearray(path.read_bytes()[: log.size_bytes])
    damage(data, [batch.position for batch in records.batches(data)])
    with path.open("r+b") as file:
        file.write(data)
    return log


def field(offset, fmt, value):
    def damage(data, at):
        struct.pack_into(fmt, data, at[30] + offset, value)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        field(80, "B", 0xFF),
        field(17, ">I", 1),
        field(0, ">q", 1 << 50),
        field(0, ">q", 3),
        field(8, ">i", 1 << 30),
        field(8, ">i", 3),
        field(8, ">i", -1),
        field(16, "B", 1),
        field(23, ">i", 1 << 30),
        field(23, ">i", -5),
        field(21, ">h", 7),
    ],
    ids=lambda damage: "",
)
def test_a_damaged_batch_costs_itself_and_what_the_index_cannot_reach(tmp_path, damage):
    log = damaged_log(tmp_path / "offsets-0", damage)
    load, _ = loaded(log)
    found = [row[2] for row in all_rows(load)]
    assert found == sorted(found)
    assert found[:30] == list(range(30))
    assert 30 not in found
    assert found[-20:] == list(range(40, 60))
    assert load.problem_count == 1
    assert damaged_offsets(load) == [30]
    log.close()


def test_a_damaged_end_and_a_log_of_noise(tmp_path):
    def cut_out(data, at):
        data[at[30] :] = random.Random(1).randbytes(len(data) - at[30])

    def noise(data, at):
        data[:] = random.Random(2).randbytes(len(data))

    log = damaged_log(tmp_path / "a-0", cut_out)
    load, _ = loaded(log)
    assert [row[2] for row in all_rows(load)] == list(range(30))
    assert load.problem_count >= 1
    log.close()
    log = damaged_log(tmp_path / "b-0", noise)
    load, _ = loaded(log)
    assert all_rows(load) == []
    assert load.problem_count >= 1
    log.close()


def test_only_so_many_problems_are_told(tmp_path):
    log = open_log(tmp_path / "offsets-0")
    log.append(records.build([(NOW, b"\0\1bad", b"")] * 300), leader_epoch=0)
    load, _ = loaded(log)
    assert load.problem_count == 300
    assert [offset for offset, _ in load.problems] == list(range(100))
    assert load.problems[0][1] == "the key of a commit ends too early"
    log.close()


def test_a_closed_log_ends_the_load(tmp_path):
    log = open_log(tmp_path / "offsets-0")
    fill(log, batches=3)
    load, read = OffsetsLoad(log), OffsetsLoad(log)
    read.step()
    assert read.bytes_read == log.size_bytes
    log.close()
    for one in (load, read):
        with pytest.raises(DiskError):
            while not one.done:
                one.step()
