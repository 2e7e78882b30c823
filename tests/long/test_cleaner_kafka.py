"""Apache Kafka's cleaner, its loader and its tools beside ours, on the same folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbroker.ext.cleaner import Cleaner, Throttle, survey
from tests.reference import cleaner as oracle
from tests.reference.cleaner_history import (
    RETENTION_MS,
    START_MS,
    UNLIMITED,
    Clean,
    History,
    Roll,
    random_steps,
    read_committed,
)
from tests.support.kafka import dump_log
from tests.support.logs import open_log
from tests.support.tool_jvm import program_output
from tests.unit.test_cleaner_crash import SHORT, crash

pytestmark = pytest.mark.long

SEGMENT_BYTES, INTERVAL_BYTES, MAP_BYTES = 4000, 300, 24 * 500
SETTINGS = {"cleanup_compact": 1, "cleanup_delete": 0, "delete_retention_ms": RETENTION_MS,
            "segment_bytes": SEGMENT_BYTES, "index_interval_bytes": INTERVAL_BYTES}  # fmt: skip
KAFKA_SETTINGS = (
    f"internal.segment.bytes={SEGMENT_BYTES}",
    f"index.interval.bytes={INTERVAL_BYTES}",
    f"delete.retention.ms={RETENTION_MS}",
)


def kafka(*arguments: str) -> list[str]:
    return program_output("CompactLog", *arguments).splitlines()


def files(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in sorted(folder.iterdir())
            if one.suffix in suffixes}  # fmt: skip


def clean(folder: Path, now_ms: int) -> int:
    log = open_log(folder, clean=False, **SETTINGS)
    found = survey(log, 0, now_ms)
    assert found is not None
    hands = Cleaner(Throttle(UNLIMITED), map_bytes=MAP_BYTES, load_factor=0.9, io_bytes=1 << 18)
    done = hands.clean(log, found, now_ms)
    log.unlink_deleted(at_once=True)
    log.close()
    return done.end_offset


@pytest.mark.parametrize("seed", range(20))
def test_kafkas_cleaner_leaves_the_same(tmp_path: Path, seed: int) -> None:
    """Batch for batch, byte for byte where no codec is in it; indexes and transactions too."""
    ours, theirs = tmp_path / "ours" / "topic-0", tmp_path / "theirs" / "topic-0"
    ours.parent.mkdir()
    log = open_log(ours, **SETTINGS)
    history = History(log, ours, bumps=seed % 4 >= 2)
    steps = [one for one in random_steps(seed, 250) if not isinstance(one, Clean)]
    if seed % 2:
        steps = [one._replace(codec="none") if hasattr(one, "codec") else one for one in steps]
    history.run([*steps, Roll()])
    wanted = read_committed(log)
    log.close()
    shutil.copytree(ours, theirs)
    for now_ms in (START_MS, START_MS + 2 * RETENTION_MS, START_MS + 4 * RETENTION_MS):
        for snapshot in [*ours.glob("*.snapshot"), *theirs.glob("*.snapshot")]:
            snapshot.unlink()  # both know of producers what is in the log
        end = clean(ours, now_ms)
        told = kafka("clean", str(now_ms), "0", str(MAP_BYTES), str(theirs), *KAFKA_SETTINGS)
        assert int(told[0]) == end
        mine, others = files(ours, ".log"), files(theirs, ".log")
        assert list(mine) == list(others)
        for name, data in mine.items():
            assert oracle.content(data) == oracle.content(others[name]), name
            if seed % 2:
                assert data == others[name]
        assert files(ours, ".txnindex") == files(theirs, ".txnindex")
        if seed % 2:
            active = max(mine)[:20]
            for suffix in (".index", ".timeindex"):
                kept = files(ours, suffix)
                other = files(theirs, suffix)
                for name in kept:
                    assert name.startswith(active) or kept[name] == other[name], name
        for folder in (ours, theirs):
            log = open_log(folder, clean=False, **SETTINGS)
            assert read_committed(log) == wanted
            log.close()
    dump_log(sorted(ours.glob("*.log")), "--deep-iteration", "--print-data-log")
    dump_log([*ours.glob("*.index"), *ours.glob("*.timeindex")], "--verify-index-only")
    dump_log(sorted(ours.glob("*.index")), "--index-sanity-check")


@pytest.mark.parametrize("seed", [8, 9, 11])
def test_kafkas_loader_completes_what_we_left(tmp_path: Path, seed: int) -> None:
    """Each folder as a death left it, opened by Kafka and by us: the same segments."""
    states = tmp_path / "states"
    crash(tmp_path, seed, SHORT, 0, states)
    theirs = tmp_path / "theirs"
    shutil.copytree(states, theirs)
    ours = sorted(states.iterdir())
    end = open_log(tmp_path / "log" / "topic-0", clean=False, **SETTINGS).log_end_offset
    kafka("load", str(end), *(str(theirs / one.name) for one in ours))
    for one in ours:
        log = open_log(one, clean=False, recovery_point=end, **SETTINGS)
        log.close(clean=False)
        other = files(theirs / one.name, ".log", ".txnindex")
        assert files(one, ".log", ".txnindex") == other, one.name
