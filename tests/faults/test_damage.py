"""F11 and F12: files that are torn at the end, rotten in the middle, swapped, foreign or gone."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import crc32c
import pytest

from kbroker.ext import records, testing_log
from tests.faults.scenes import batch_places, newest_segment
from tests.support import wire
from tests.support.load import Load
from tests.support.logs import batch, open_log, read_all
from tests.support.oracle import History, judge
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds, scaled
from tests.support.tally import Tally

LONG = pytest.mark.long
PARTITIONS = 3
SMALL_SEGMENTS = {"segment.bytes": "1048576", "segment.index.bytes": "65536"}
StartBroker = Callable[..., BrokerProcess]


def crashed_log(folder: Path, chance: random.Random, size: int, **settings: int) -> bytes:
    """A log of batches of all sizes, left as a crash leaves it: its bytes."""
    log = open_log(folder, **settings)
    number = 0
    while log.size_bytes < size:
        count = chance.randint(1, 3)
        data = batch(count, chance.choice((1, 40, 600, 5000)), 1000 + number, producer_id=1,
                     producer_epoch=0, base_sequence=number)  # fmt: skip
        log.append(data, leader_epoch=0)
        number += count
    written = read_all(log)
    log.close(clean=False)
    return written


def only_segment(folder: Path) -> Path:
    return folder / f"{0:020}.log"


# --- F11: the end -------------------------------------------------------------------------------

TAIL_BYTES = 65_536


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [131, pytest.param(scaled(7, full=1), marks=LONG)])
def test_a_tail_cut_at_every_byte(tmp_path: Path, step: int, tally: Tally) -> None:
    """The log ends with its last whole batch, wherever the file does, and takes the next one."""
    written = crashed_log(tmp_path / "topic-0", random.Random(11), 2 * TAIL_BYTES)
    ends = [at + size for at, size in batch_places(written)]
    tried = lost = 0
    for size in range(len(written) - TAIL_BYTES, len(written) + 1, step):
        copy = tmp_path / "copy-0"
        shutil.copytree(tmp_path / "topic-0", copy)
        os.truncate(only_segment(copy), size)
        log = open_log(copy, clean=False)
        whole = max(end for end in ends if end <= size)
        lost += read_all(log) != written[:whole]
        end = log.log_end_offset
        assert log.append(batch(), leader_epoch=1)[0] == end
        log.close(clean=False)
        shutil.rmtree(copy)
        tried += 1
    tally("F11", tried=tried, lost=lost)
    assert not lost


def garbage(chance: random.Random, written: bytes) -> bytes:
    """What may lie behind the end of a file: noise, zeros, parts of what was written before."""
    at, size = chance.choice(batch_places(written))
    match chance.randrange(4):
        case 0:
            return chance.randbytes(chance.randint(1, 5000))
        case 1:
            return bytes(chance.choice((1, 60, 61, 4096, 100_000)))
        case 2:
            return written[at : at + chance.randint(1, size)]
        case _:
            torn = bytearray(written[at : at + size])
            struct.pack_into(">q", torn, 0, 1 << 40)
            torn[chance.randrange(size)] ^= 0x10
            return bytes(torn)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [150, pytest.param(1000, marks=LONG)])
def test_garbage_behind_the_end(tmp_path: Path, rounds: int, tally: Tally) -> None:
    chance = random.Random(12)
    written = crashed_log(tmp_path / "topic-0", chance, TAIL_BYTES)
    lost = 0
    for _ in range(rounds):
        with only_segment(tmp_path / "topic-0").open("r+b") as file:
            file.truncate(len(written))
            file.seek(len(written))
            file.write(garbage(chance, written))
        log = open_log(tmp_path / "topic-0", clean=False)
        lost += read_all(log) != written
        log.close(clean=False)
    tally("F11", tried=rounds, lost=lost)
    assert not lost


def test_control_a_batch_that_nobody_sent_but_is_right(tmp_path: Path, tally: Tally) -> None:
    """With the next offset and its own checksum it is no garbage: it is taken, and seen here."""
    folder = tmp_path / "topic-0"
    written = crashed_log(folder, random.Random(13), TAIL_BYTES)
    last = records.batches(written)[-1]
    forged = bytearray(batch(1, 20))
    struct.pack_into(">q", forged, 0, last.base_offset + last.last_offset_delta + 1)
    with only_segment(folder).open("ab") as file:
        file.write(forged)
    log = open_log(folder, clean=False)
    taken = read_all(log) != written
    tally("F11", control=int(taken))
    assert taken


@pytest.fixture
def killed(
    start_kbroker: StartBroker, topic: str, tmp_path: Path
) -> tuple[BrokerProcess, list[History]]:
    """A broker that was killed when it had acknowledged some thousand records."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, PARTITIONS, SMALL_SEGMENTS)
    with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS, padding=900) as load:
        load.wait_for_acks(4000)
        histories = load.finish()
    broker.kill()
    return broker, histories


def damage_tails(folder: Path, topic: str, chance: random.Random) -> None:
    """What the page cache had and the disk had not, of each partition."""
    for partition in range(PARTITIONS):
        path = newest_segment(folder / f"{topic}-{partition}")
        data = path.read_bytes()
        end = sum(batch_places(data)[-1])
        cut = chance.randrange(max(0, end - TAIL_BYTES), end)
        tail = (b"", bytes(end - cut), chance.randbytes(end - cut), chance.randbytes(3000))
        path.write_bytes(data[:cut] + chance.choice(tail))


def served_from(
    start: StartBroker, folder: Path, topic: str, histories: list[History]
) -> tuple[int, int]:
    """A broker on this directory: how much is wrong with what it serves, how much of that lost."""
    broker = start(data_dir=folder)
    try:
        verdict = judge(broker.port, topic, PARTITIONS, histories)
        return verdict.count(), len(verdict.lost)
    finally:
        broker.kill()
        shutil.rmtree(folder)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", rounds(2, long=20, full=100))
def test_torn_tails_of_a_broker(
    killed: tuple[BrokerProcess, list[History]], start_kbroker: StartBroker, topic: str,
    tmp_path: Path, *, rounds: int, tally: Tally,
) -> None:  # fmt: skip
    """The journal has what the segments lost; without it, they have lost it."""
    broker, histories = killed
    chance = random.Random(14)
    for turn in range(rounds):
        copy = tmp_path / f"copy-{turn}"
        shutil.copytree(broker.data_dir, copy)
        damage_tails(copy, topic, chance)
        wrong, _ = served_from(start_kbroker, copy, topic, histories)
        tally("F11", tried=1, lost=wrong)
        assert not wrong
    copy = tmp_path / "without"
    shutil.copytree(broker.data_dir, copy)
    damage_tails(copy, topic, chance)
    for path in copy.glob(".kbroker-journal*"):
        path.unlink()
    _, lost = served_from(start_kbroker, copy, topic, histories)
    tally("F11", control=lost)
    assert lost


# --- F12: the middle ----------------------------------------------------------------------------

SETTINGS = {"segment_bytes": 20_000, "index_interval_bytes": 400}
KEPT, REFUSED, WRONG = "kept", "refused", "wrong"


def outcome(folder: Path, log: object, wanted: bytes, base_offset: int) -> str:
    """What a client that checks checksums makes of a fetch at this batch's offset."""
    code, base, position, length, _, _ = testing_log.read(log, base_offset, len(wanted), 0, True)  # type: ignore[arg-type]
    if code != 0 or base < 0 or not length:
        return REFUSED
    with (folder / f"{base:020}.log").open("rb") as file:
        file.seek(position)
        got = file.read(length)
    places = batch_places(got)
    if not places:
        return REFUSED
    at, size = places[0]
    found = got[at : at + size]
    if found[:12] + found[16:] == wanted[:12] + wanted[16:]:
        return KEPT
    (crc,) = struct.unpack_from(">I", found, 17)
    return WRONG if len(found) > 61 and crc == crc32c.crc32c(found[21:]) else REFUSED


def outcomes(folder: Path, written: bytes, *, clean: bool) -> Counter[str]:
    """Of every batch that was written."""
    log = open_log(folder, clean=clean, recovery_point=0 if clean else 1 << 40, **SETTINGS)
    found: Counter[str] = Counter()
    for one in records.batches(written):
        data = written[one.position : one.position + one.length]
        found[outcome(folder, log, data, one.base_offset)] += 1
    log.close(clean=False)
    return found


def closed_log(folder: Path) -> bytes:
    written = crashed_log(folder, random.Random(15), 110_000, **SETTINGS)
    log = open_log(folder, clean=False, **SETTINGS)
    log.close()
    return written


def side_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix != ".log" and path.is_file()]


def flip_at(path: Path, data: bytes, chance: random.Random) -> int:
    """A byte of the file. Of a batch's header no checksum of the format covers the base offset."""
    while True:
        at = chance.randrange(len(data))
        if path.suffix != ".log" or not any(0 <= at - p < 8 for p, _ in batch_places(data)):
            return at


LENGTH, LAST_OFFSET_DELTA = range(8, 12), range(23, 27)


def cost_at_most(path: Path, data: bytes, at: int) -> int:
    """Batches that a flip of this byte may cost.

    In a segment its own; but where it hits how long the batch is or how many offsets it has, which
    is what finding another batch goes by, those behind it, too, as far as the next index entry that
    leads past it. That entry names the last offset of its batch, so the batch itself may be one.
    """
    if path.suffix != ".log":
        return 0
    places = batch_places(data)
    own = next(i for i, (start, size) in enumerate(places) if start <= at < start + size)
    start = places[own][0]
    if at - start not in LENGTH and at - start not in LAST_OFFSET_DELTA:
        return 1
    entries = struct.iter_unpack(">II", path.with_suffix(".index").read_bytes())
    past = next((position for _, position in entries if position > start), len(data))
    return sum(start <= other <= past for other, _ in places)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flips", rounds(400, long=3_000, full=10_000))
def test_a_flipped_bit(tmp_path: Path, flips: int, tally: Tally) -> None:
    """In a segment it costs its batch, and no other unless it leads astray; in any other file it
    costs nothing."""
    folder = tmp_path / "topic-0"
    written = closed_log(folder)
    chance = random.Random(16)
    segments = sorted(folder.glob("*.log"))
    wrong: list[str] = []
    for turn in range(flips):
        copy = tmp_path / "copy-0"
        shutil.copytree(folder, copy)
        path = copy / chance.choice(segments if turn % 2 else side_files(folder)).name
        data = bytearray(path.read_bytes())
        if not data:
            shutil.rmtree(copy)
            continue
        at, bit = flip_at(path, bytes(data), chance), chance.randrange(8)
        allowed = cost_at_most(path, bytes(data), at)
        data[at] ^= 1 << bit
        path.write_bytes(data)
        found = outcomes(copy, written, clean=True)
        if found[WRONG] or found[REFUSED] > allowed:
            wrong.append(f"bit {bit} of byte {at} of {path.name}: {dict(found)}")
        shutil.rmtree(copy)
    tally("F12", tried=flips, lost=len(wrong))
    assert not wrong, "\n".join(wrong[:20])


def test_control_a_flipped_bit_whose_checksum_was_put_right(tmp_path: Path, tally: Tally) -> None:
    """It is the checksum that tells: with a right one, wrong bytes are delivered, and seen here."""
    folder = tmp_path / "topic-0"
    written = closed_log(folder)
    path = sorted(folder.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    at, size = batch_places(bytes(data))[2]
    data[at + size - 2] ^= 1
    struct.pack_into(">I", data, at + 17, crc32c.crc32c(bytes(data[at + 21 : at + size])))
    path.write_bytes(data)
    delivered = outcomes(folder, written, clean=True)[WRONG]
    tally("F12", control=delivered)
    assert delivered == 1


def swap_blocks(folder: Path, chance: random.Random) -> None:
    """Two blocks of 4 KiB of one segment, as a disk may misdirect them."""
    path = chance.choice(sorted(folder.glob("*.log"))[:-1])
    data = bytearray(path.read_bytes())
    one, two = chance.sample(range(len(data) // 4096), 2)
    for_one, for_two = (slice(n * 4096, (n + 1) * 4096) for n in (one, two))
    data[for_one], data[for_two] = data[for_two], data[for_one]
    path.write_bytes(data)


def lose_indexes(folder: Path, chance: random.Random) -> None:
    for path in folder.glob("*index"):
        _ = path.unlink() if chance.random() < 0.5 else path.write_bytes(b"")


def foreign_indexes(folder: Path, chance: random.Random) -> None:
    """Each segment gets another one's."""
    for suffix in ("index", "timeindex"):
        paths = sorted(folder.glob(f"*.{suffix}"))
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, [*contents[1:], contents[0]], strict=True):
            path.write_bytes(content)


def bad_checkpoints(folder: Path, chance: random.Random) -> None:
    for path in folder.glob("*.snapshot"):
        path.write_bytes(chance.randbytes(chance.randrange(200)))
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        if (folder / name).exists() and name != "partition.metadata":
            (folder / name).write_bytes(chance.randbytes(40))


DAMAGES: dict[Callable[[Path, random.Random], None], int] = {
    swap_blocks: 12,  # batches that two blocks may touch
    lose_indexes: 0,
    foreign_indexes: 0,
    bad_checkpoints: 0,
}


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=LONG)])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_larger_damage(
    tmp_path: Path, damage: Callable[[Path, random.Random], None], rounds: int, tally: Tally
) -> None:
    folder = tmp_path / "topic-0"
    written = closed_log(folder)
    chance = random.Random(17)
    lost = 0
    for _ in range(rounds):
        copy = tmp_path / "copy-0"
        shutil.copytree(folder, copy)
        damage(copy, chance)
        found = outcomes(copy, written, clean=True)
        lost += found[WRONG] + max(0, found[REFUSED] - DAMAGES[damage])
        shutil.rmtree(copy)
    tally("F12", tried=rounds, lost=lost)
    assert not lost


def rotten_side_files(folder: Path, topic: str, chance: random.Random) -> Iterator[Path]:
    """Whatever stands beside the segments, and the checkpoints of all logs."""
    names = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
             "replication-offset-checkpoint", "cleaner-offset-checkpoint")  # fmt: skip
    for path in (*(folder / name for name in names), *sorted(folder.glob(f"{topic}-*/*"))):
        if not path.is_file() or path.suffix == ".log" or path.name == "partition.metadata":
            continue
        data = bytearray(path.read_bytes())
        match chance.randrange(4):
            case 0:
                data = bytearray(chance.randbytes(len(data)))
            case 1:
                data = data[: chance.randrange(len(data) + 1)]
            case 2 if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case _:
                path.unlink()
                continue
        path.write_bytes(data)
        yield path


@LONG
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [1, scaled(12, full=50)])
def test_rot_beside_the_segments_of_a_broker(
    killed: tuple[BrokerProcess, list[History]], start_kbroker: StartBroker, topic: str,
    tmp_path: Path, *, rounds: int, tally: Tally,
) -> None:  # fmt: skip
    """All of it at once, after a crash and after a clean stop: every record is served."""
    broker, histories = killed
    broker.start()
    assert broker.stop() == 0
    chance = random.Random(18)
    for turn in range(rounds):
        copy = tmp_path / f"copy-{turn}"
        shutil.copytree(broker.data_dir, copy)
        assert list(rotten_side_files(copy, topic, chance))
        if turn % 2:
            (copy / ".kafka_cleanshutdown").unlink()
        wrong, _ = served_from(start_kbroker, copy, topic, histories)
        tally("F12", tried=1, lost=wrong)
        assert not wrong
