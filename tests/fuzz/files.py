"""Files that ext reads back after a crash: segments, what stands beside them, the journal."""

import functools
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbroker.errors import KbrokerError
from kbroker.ext import crc32c, journal_reader, records, testing_journal
from tests.fuzz.engine import Target
from tests.support.logs import TOPIC_ID, batch, marker, open_log

NAME = "00000000000000000000"
SIDE_FILES = (
    f"{NAME}.index",
    f"{NAME}.timeindex",
    f"{NAME}.txnindex",
    "leader-epoch-checkpoint",
    "snapshot",
)
READS_MAX = 200


MEMORY = "/dev/shm"  # a file system on which a sync costs nothing


@contextmanager
def new_folder() -> Iterator[Path]:
    where = MEMORY if os.path.isdir(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="kbroker-fuzz-", dir=where) as parent:
        folder = Path(parent, "topic-0")
        folder.mkdir()
        yield folder


@functools.cache
def sound_log() -> dict[str, bytes]:
    """The files of a log that was closed properly."""
    with new_folder() as folder:
        log = open_log(folder, index_interval_bytes=100)
        for i in range(6):
            log.append(batch(3, 60, 1000 * i), leader_epoch=i // 2)
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * i}
            log.append(batch(2, 20, 1000 * i + 500, transactional=True, **fields), leader_epoch=3)
        log.append(marker(7, 0, commit=False), leader_epoch=3)
        log.append(batch(40, 10, 9000, codec="lz4"), leader_epoch=3)
        log.close()
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def reseal(data: bytes) -> bytes:
    """Good checksums wherever the lengths still lead to a batch."""
    out = bytearray(data)
    at = 0
    while at + 61 <= len(out):
        (length,) = struct.unpack_from(">i", out, at + 8)
        end = at + 12 + length
        if length < 49 or end > len(out):
            break
        struct.pack_into(">I", out, at + 17, crc32c.checksum(bytes(out[at + 21 : end])))
        at = end
    return bytes(out)


def check_log(folder: Path, clean: bool) -> None:
    """It opens, or says why not; it serves whole batches in order; it takes another."""
    try:
        log = open_log(folder, clean=clean)
    except KbrokerError:
        return
    try:
        at = log.log_start_offset
        for _ in range(READS_MAX):
            piece = log.read(at, 1 << 16)
            found = records.batches(piece, check_crc=not clean)
            if not found:
                break
            last = found[-1]
            assert last.base_offset + last.last_offset_delta >= at, "reading goes on"
            at = last.base_offset + last.last_offset_delta + 1
        assert clean or at == log.log_end_offset, "the log is read to its end"
        base, _ = log.append(batch(2), leader_epoch=max(log.leader_epoch, 9))
        (added,) = records.batches(log.read(base, 1 << 16))
        assert added.base_offset == base
        log.close()
    except KbrokerError:
        assert clean, "a recovered log serves and takes"


def segment_run(data: memoryview) -> None:
    with new_folder() as folder:
        (folder / f"{NAME}.log").write_bytes(data)
        check_log(folder, clean=False)


def side_files_corpus() -> Sequence[bytes]:
    """Which file, whether the broker was stopped properly, the file."""
    found = []
    for which, name in enumerate(SIDE_FILES):
        for path, content in sound_log().items():
            if path == name or path.endswith(f".{name}"):
                found += [bytes([which, clean]) + content for clean in (0, 1)]
    return found


def side_files_run(data: memoryview) -> None:
    if len(data) < 2:
        return
    wanted = SIDE_FILES[data[0] % len(SIDE_FILES)]
    with new_folder() as folder:
        for name, content in sound_log().items():
            fits = name == wanted or name.endswith(f".{wanted}")
            (folder / name).write_bytes(data[2:] if fits else content)
        check_log(folder, clean=bool(data[1] & 1))


# ---- journal


@functools.cache
def sound_journal() -> tuple[bytes, list[journal_reader.Entry]]:
    """A journal file as a crash leaves it, and what it holds."""
    with new_folder() as folder:
        owner = testing_journal.TestOwner(TOPIC_ID, 7)
        journal = testing_journal.TestJournal(str(folder))
        for i in range(12):
            data = records.build([(1000, None, b"v" * (i * 37))], base_offset=i)
            journal.append(owner, data, i + 1)
        journal.close(unlink_files=False)
        (path,) = (Path(folder, name) for name in journal_reader.files(str(folder)))
        content = path.read_bytes().rstrip(b"\0")
        return content + bytes(-len(content) % 4096), journal_reader.entries(str(folder))


def journal_run(data: memoryview) -> None:
    sound = sound_journal()[1]
    with new_folder() as folder:
        (folder / ".kbroker-journal.0").write_bytes(data)
        try:
            found = journal_reader.entries(str(folder), skip_damage=True)
        except OSError:
            return
    for entry in found:
        assert entry in sound, "an entry is one that was written"


TARGETS = {
    "segment": Target(
        "a damaged segment is cut, serves and takes",
        lambda: [sound_log()[f"{NAME}.log"]],
        segment_run,
        reseal,
        cuts_max=4,
    ),
    "side_files": Target(
        "damage beside a segment does not change what it serves",
        side_files_corpus,
        side_files_run,
        cuts_max=4,
    ),
    "journal": Target(
        "a damaged journal gives only what was written",
        lambda: [sound_journal()[0]],
        journal_run,
        cuts_max=4,
    ),
}
