"""Files of a partition, both ways: Kafka's own tools over what kbroker wrote, and the reverse."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kbroker.ext import records, testing_log
from tests.reference.log import decode_offset_index
from tests.support.kafka import KafkaProcess, dump_log, tool_output
from tests.support.logs import batch, marker, open_log, read_all

pytestmark = pytest.mark.long

SETTINGS = {"segment_bytes": 20_000, "index_interval_bytes": 500}


def lived_in(folder: Path) -> None:
    """A log with everything: rolls, codecs, producers, transactions, a crash, a truncation."""
    dice = random.Random(4)
    log = open_log(folder, **SETTINGS)
    sequences = dict.fromkeys(range(5), 0)
    for i in range(400):
        producer = dice.randrange(5)
        count = dice.randrange(1, 6)
        data = batch(
            count,
            dice.randrange(200),
            1_700_000_000_000 + dice.randrange(50_000),
            codec=dice.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            transactional=producer == 4,
        )
        assert testing_log.append(log, data, 0, 0)[0] == 0
        sequences[producer] += count
        if producer == 4 and i % 3 == 0:
            log.append(marker(4, 0, commit=i % 2 == 0), leader_epoch=i // 100)
        if i == 200:
            log.flush()
            log.close(clean=False)
            log = open_log(folder, clean=False, recovery_point=50, **SETTINGS)
        if i == 300:
            log.truncate_to(log.log_end_offset - 10)
            sequences = {p[0]: p[2] + 1 for p in log.producers()}
    log.close()


def test_dump_log_segments_passes_over_it(tmp_path):
    folder = tmp_path / "topic-0"
    lived_in(folder)
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 3
    told = dump_log(logs, "--deep-iteration", "--print-data-log")
    assert told.count("baseOffset:") == len(records.batches(read_all(open_log(folder))))
    told = dump_log(sorted(folder.glob("*.index")), "--index-sanity-check")
    assert told.count("passed sanity check.") == len(logs)
    dump_log([*folder.glob("*.index"), *folder.glob("*.timeindex")], "--verify-index-only")
    told = dump_log(sorted(folder.glob("*.snapshot")))
    assert "producerId: 4" in told
    told = dump_log(sorted(folder.glob("*.txnindex")))
    assert "producerId: 4" in told


def test_kbroker_opens_what_kafka_wrote(tmp_path):
    kafka = KafkaProcess(tmp_path / "kafka", {"log.segment.bytes": "1048576"})
    kafka.start()
    try:
        tool_output("topics", "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "perf")
        tool_output(
            "producer-perf", "--topic", "perf", "--num-records", "30000", "--record-size", "100",
            "--throughput", "-1", "--producer-props", f"bootstrap.servers={kafka.bootstrap}",
            "compression.type=lz4", "batch.size=2000",
        )  # fmt: skip
    finally:
        kafka.stop()
    (folder,) = (tmp_path / "kafka").rglob("perf-0")
    expected = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    log = open_log(folder)
    assert log.recovery["bytes_walked"] == 0
    assert log.log_end_offset == 30_000
    assert read_all(log) == expected
    assert log.producers()
    for base, size, _ in log.segments()[:-1]:
        entries = decode_offset_index((folder / f"{base:020}.index").read_bytes(), base)
        assert entries[-1][1] < size
        for offset, position in entries[::7]:
            assert testing_log.read(log, offset, 1, 0, True)[1:3] == (base, position)
    log.close()
    log = open_log(folder, clean=False)
    assert read_all(log) == expected
