"""`kbroker log`: segment files sound, damaged and mended."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path

import pytest

from kbroker.cli import root
from kbroker.clock import SystemClock
from kbroker.errors import CorruptFileError
from kbroker.ext.crc32c import checksum
from kbroker.ext.records import batches, build
from kbroker.files import DirectoryLock
from kbroker.metadata.store import MetadataStore

Captured = pytest.CaptureFixture[str]

NAME = "00000000000000000010"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def partition(folder: Path) -> Path:
    """A partition `t-0` of one segment from offset 10: a batch of 3 records in each codec."""
    place = folder / "t-0"
    place.mkdir(parents=True)
    data = b""
    index = b""
    time_index = b""
    for at, codec in enumerate(CODECS):
        base = 10 + 3 * at
        records = [(1000 + base + n, b"k%d" % n, b"value" * 9) for n in range(3)]
        if at % 2:
            index += struct.pack(">ii", base + 2 - 10, len(data))
            time_index += struct.pack(">qi", 1000 + base + 2, base + 2 - 10)
        data += build(records, codec=codec, base_offset=base, leader_epoch=0)
    (place / f"{NAME}.log").write_bytes(data)
    (place / f"{NAME}.index").write_bytes(index + bytes(80))
    (place / f"{NAME}.timeindex").write_bytes(time_index + bytes(120))
    return place


def run(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    status = root.run(["log", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_sound_partition_passes(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    for name in ("kbroker.log", "kbroker.log.1"):
        (tmp_path / name).write_text("what a detached broker says\n")
    for where in ([str(place)], ["t-0", "--data-dir", str(tmp_path)], ["-D", str(tmp_path)]):
        status, out, err = run(capsys, "verify", "--deep", *where)
        assert (status, err) == (0, "")
        assert f"{NAME}.log: 5 batches, 15 records" in out
        assert out.endswith("1 segments, all good\n")


def test_zeros_behind_the_last_batch_are_preparation(capsys: Captured, tmp_path: Path) -> None:
    log = partition(tmp_path) / f"{NAME}.log"
    log.write_bytes(log.read_bytes() + bytes(4096))
    assert run(capsys, "verify", str(tmp_path / "t-0"))[0] == 0


def damage_value(data: bytearray) -> None:
    data[70] ^= 1


def cut(data: bytearray) -> None:
    del data[-5:]


def go_back(data: bytearray) -> None:
    second = batches(bytes(data))[1].position
    struct.pack_into(">q", data, second, 11)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (damage_value, "position 0: "),
        (cut, "less than a whole batch"),
        (go_back, "offset 11 where 13 or more is due"),
    ],
)
def test_damage_in_the_log_is_told(capsys: Captured, tmp_path: Path, what, told: str) -> None:
    log = partition(tmp_path) / f"{NAME}.log"
    data = bytearray(log.read_bytes())
    what(data)
    log.write_bytes(data)
    status, out, _ = run(capsys, "verify", str(tmp_path / "t-0"))
    assert status == 1
    assert told in out


@pytest.mark.parametrize(
    ("suffix", "entry", "told"),
    [
        ("index", struct.pack(">ii", 5, 1), "no batch begins at 1"),
        ("index", struct.pack(">ii", 9, 0), "offset 19 is not in the batch at 0"),
        ("timeindex", struct.pack(">qi", 1, 5), "is not what offset 15 ends at"),
    ],
)
def test_damage_in_an_index_is_told(
    capsys: Captured, tmp_path: Path, suffix: str, entry: bytes, told: str
) -> None:
    path = partition(tmp_path) / f"{NAME}.{suffix}"
    path.write_bytes(entry + path.read_bytes()[len(entry) :])
    status, out, _ = run(capsys, "verify", str(tmp_path / "t-0"))
    assert status == 1
    assert told in out


def test_a_missing_index_is_told_and_no_fault(capsys: Captured, tmp_path: Path) -> None:
    (partition(tmp_path) / f"{NAME}.index").unlink()
    status, out, _ = run(capsys, "verify", str(tmp_path / "t-0"))
    assert status == 0
    assert "15 records, " in out
    assert "B, without .index\n" in out


def test_dump_shows_batches_and_records(capsys: Captured, tmp_path: Path) -> None:
    place = str(partition(tmp_path))
    status, out, _ = run(capsys, "dump", place, "-J", "-r")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [line["codec"] for line in lines if "codec" in line] == list(CODECS)
    assert [line["offset"] for line in lines if "value" in line] == list(range(10, 25))
    assert lines[1]["value"] == "value" * 9
    status, out, _ = run(capsys, "dump", place)
    assert (status, out.count("base_offset")) == (0, 5)


def side_files(place: Path) -> dict[str, list[dict[str, object]]]:
    """One of each kind, and what is in it."""
    producers = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 1, 4, 12, 2, 1000, -1, -1)
    text = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    (place / f"{NAME}.snapshot").write_bytes(
        struct.pack(">hI", 1, checksum(producers)) + producers
    )
    (place / f"{NAME}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 10, 12, 13) * 2)
    (place / "partition.metadata").write_text(text)
    (place / "leader-epoch-checkpoint").write_text("0\n1\n0 10\n")
    (place.parent / "meta.properties").write_text("version=1\nnode.id=1\n")
    aborted: dict[str, object] = {
        "version": 0, "producer_id": 7, "first_offset": 10, "last_offset": 12,
        "last_stable_offset": 13,
    }  # fmt: skip
    return {
        f"t-0/{NAME}.snapshot": [{
            "producer_id": 7, "producer_epoch": 1, "last_sequence": 4, "last_offset": 12,
            "offset_delta": 2, "last_timestamp": 1000, "coordinator_epoch": -1,
            "current_txn_first_offset": -1,
        }],
        f"t-0/{NAME}.txnindex": [aborted, aborted],
        "t-0/partition.metadata": [{"line": line} for line in text.splitlines()],
        "t-0/leader-epoch-checkpoint": [{"line": line} for line in ("0", "1", "0 10")],
        "meta.properties": [{"line": line} for line in ("version=1", "node.id=1")],
    }  # fmt: skip


def test_dump_shows_the_files_beside_the_segments(capsys: Captured, tmp_path: Path) -> None:
    for name, wanted in side_files(partition(tmp_path)).items():
        status, out, _ = run(capsys, "dump", "-J", str(tmp_path / name))
        assert (status, [json.loads(line) for line in out.splitlines()]) == (0, wanted), name
        status, out, _ = run(capsys, "dump", name, "-D", str(tmp_path))
        assert (status, len(out.splitlines())) == (0, 1 + len(wanted)), name
        for value in wanted[-1].values():
            assert str(value) in out.splitlines()[-1] or value == -1, name


@pytest.mark.parametrize(
    ("suffix", "told"), [("snapshot", "its checksum is wrong"), ("txnindex", "less than a whole")]
)
def test_dump_tells_a_side_file_that_is_damaged(
    capsys: Captured, tmp_path: Path, suffix: str, told: str
) -> None:
    place = partition(tmp_path)
    side_files(place)
    path = place / f"{NAME}.{suffix}"
    path.write_bytes(path.read_bytes()[:-3])
    status, out, _ = run(capsys, "dump", str(path))
    assert status == 1 and told in out


def test_dump_of_a_file_that_is_none_of_ours(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    status, out, err = run(capsys, "dump", str(tmp_path / "notes.txt"))
    assert status != 0 and not out
    assert "no file of a data directory" in err


def test_dump_loses_nothing_of_a_record(capsys: Captured, tmp_path: Path) -> None:
    """Headers in their order, each as often as it is there; bytes that are no UTF-8."""
    headers = [("h", b"1"), ("h", b"2"), ("n\udcff", b"\xfe"), ("h", None), ("", b"\\xfe")]
    log = tmp_path / f"{0:020}.log"
    log.write_bytes(build([(1, b"\xff", b"\\xff", headers)], base_offset=0, leader_epoch=0))
    told = json.loads(run(capsys, "dump", str(log), "-J", "-r")[1].splitlines()[1])
    assert (told["key"], told["value"]) == ("\udcff", "\\xff")
    assert told["headers"] == [
        ["h", "1"], ["h", "2"], ["n\udcff", "\udcfe"], ["h", None], ["", "\\xfe"],
    ]  # fmt: skip
    out = run(capsys, "dump", str(log), "-r")[1]
    assert "headers [['h', '1'], ['h', '2'], ['n\\udcff', " in out
    assert out.replace("\n", "").isprintable()


def test_dump_of_indexes_leaves_preparation_out(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    out = run(capsys, "dump", "-J", str(place / f"{NAME}.index"))[1]
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [15, 21]
    out = run(capsys, "dump", "-J", str(place / f"{NAME}.timeindex"))[1]
    assert json.loads(out.splitlines()[0]) == {"timestamp": 1015, "offset": 15}


def test_dump_of_a_damaged_log_goes_on_behind_the_damage(capsys: Captured, tmp_path: Path) -> None:
    log = partition(tmp_path) / f"{NAME}.log"
    data = bytearray(log.read_bytes())
    third = batches(bytes(data))[2].position
    data[third + 65] ^= 1
    log.write_bytes(data)
    status, out, _ = run(capsys, "dump", "-J", str(log))
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, len(lines), lines[2]["position"]) == (1, 5, third)
    assert "damage" in lines[2]
    assert [line["base_offset"] for line in lines if "codec" in line] == [10, 13, 19, 22]


def test_nothing_there_is_told(capsys: Captured, tmp_path: Path) -> None:
    for words in (["dump", "t-9"], ["verify", "t-9"]):
        status, _, err = run(capsys, *words, "-D", str(tmp_path))
        assert status == 1
        assert "t-9: no such file or folder" in err
    status, _, err = run(capsys, "verify", "-D", str(tmp_path))
    assert (status, "no segment files" in err) == (1, True)


# ---- repair


def break_batches(place: Path, *numbers: int, at: int = 70) -> int:
    """Flips a bit in some of the batches; the position of the last."""
    log = place / f"{NAME}.log"
    data = bytearray(log.read_bytes())
    whole = batches(bytes(data))
    for number in numbers:
        data[whole[number].position + at] ^= 1
    log.write_bytes(data)
    return whole[numbers[-1]].position


def offsets(capsys: Captured, place: Path) -> list[int]:
    out = run(capsys, "dump", "-J", str(place))[1]
    found = [json.loads(line) for line in out.splitlines()]
    return [line["base_offset"] for line in found if "codec" in line]


def test_what_is_lost_is_told(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path / "one")
    at = break_batches(place, 2)
    status, out, _ = run(capsys, "verify", str(place))
    assert status == 1
    assert f"{NAME}.log: position {at}: " in out
    assert "lost: offsets 16 to 18; sound batches go on at position" in out
    assert out.count("\n") == 2  # the indexes are as right as they can be
    out = run(capsys, "verify", "-J", str(place))[1]
    (fault,) = [json.loads(line) for line in out.splitlines()]
    assert (fault["kind"], fault["position"], fault["offset"]) == ("damage", at, 16)
    place = partition(tmp_path / "two")
    break_batches(place, 2, 3, at=8)  # lengths that lead nowhere
    assert "lost: offsets 16 to 21;" in run(capsys, "verify", str(place))[1]
    place = partition(tmp_path / "end")
    break_batches(place, 3, 4)
    assert "bytes from offset 19 on, the end of the log" in run(capsys, "verify", str(place))[1]


def test_repair_says_first_and_does_no_more(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    at = break_batches(place, 2)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    status, out, _ = run(capsys, "repair", str(place))
    assert (status, f"position {at}: " in out) == (1, True)
    assert out.endswith("[--truncate or --drop]\n")
    for words in (["--truncate"], ["--drop"]):
        status, out, _ = run(capsys, "repair", "--dry-run", *words, str(place))
        assert (status, str(at) in out) == (0, True)
    status, _, err = run(capsys, "repair", "--truncate", "--drop", str(place))
    assert (status, "either --truncate or --drop" in err) == (2, True)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    (place / f"{NAME}.index").write_bytes(b"\1" * 8)
    status, _, err = run(capsys, "repair", "--rebuild", str(place))
    assert (status, "before --truncate or --drop has dealt with" in err) == (1, True)


def test_damaged_bytes_are_dropped(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    break_batches(place, 2)
    status, out, _ = run(capsys, "repair", "--drop", str(place))
    assert (status, out.splitlines()[-1]) == (0, f"{place}: mended, the log goes on at offset 25")
    assert run(capsys, "verify", "--deep", str(place))[0] == 0
    assert offsets(capsys, place) == [10, 13, 19, 22]
    assert not [path for path in place.iterdir() if path.suffix in (".swap", ".cleaned")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_mends_belongs_to_the_directorys_user(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    for path in (tmp_path, place, *place.iterdir()):
        os.chown(path, 12_345, 12_345)
    break_batches(place, 2)
    assert run(capsys, "repair", "--drop", str(place))[0] == 0
    assert {path.stat().st_uid for path in place.iterdir()} == {12_345}


def test_a_log_is_cut_before_its_first_damage(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    following = place / f"{25:020}.log"
    following.write_bytes(build([(1, b"k", b"v")], base_offset=25, leader_epoch=0))
    break_batches(place, 3)
    status, out, _ = run(capsys, "repair", "--truncate", str(place))
    assert status == 0
    assert "the log ends at offset 19, 19 to 25 go" in out
    assert f"{following}: removed with its indexes, 1 records go" in out
    assert out.endswith("mended, the log goes on at offset 19\n")
    assert not following.exists()
    assert run(capsys, "verify", "--deep", str(place))[0] == 0
    assert offsets(capsys, place) == [10, 13, 16]


def test_what_a_backup_shares_is_not_cut(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    break_batches(place, 3)
    log, shared = place / f"{NAME}.log", tmp_path / "shared"
    shared.hardlink_to(log)
    before = shared.read_bytes()
    assert run(capsys, "repair", "--truncate", str(place))[0] == 0
    assert offsets(capsys, place) == [10, 13, 16]
    assert shared.read_bytes() == before
    (tmp_path.parent / "manifest.json").write_text("")
    try:
        status, _, err = run(capsys, "repair", "--truncate", str(place))
    finally:
        (tmp_path.parent / "manifest.json").unlink()
    assert (status, "is a backup: restore it" in err) == (1, True)


def test_offsets_that_go_back_across_segments(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    behind = place / f"{20:020}.log"
    behind.write_bytes(build([(1, b"k", b"v")], base_offset=20, leader_epoch=0))
    out = run(capsys, "verify", str(place))[1]
    assert f"{behind}: position 0: offset 20 where 25 or more is due" in out
    assert run(capsys, "repair", "--drop", str(place))[0] == 0
    assert run(capsys, "verify", str(place))[0] == 0
    gap = place / f"{40:020}.log"
    gap.write_bytes(build([(1, b"k", b"v")], base_offset=40, leader_epoch=0))
    status, out, _ = run(capsys, "verify", str(place))
    assert (status, f"{gap}: note: offsets 25 to 39 are not there" in out) == (0, True)


def test_what_is_made_of_batches_is_made_again(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    (place / f"{NAME}.index").write_bytes(struct.pack(">ii", 5, 1))
    (place / f"{NAME}.timeindex").write_bytes(struct.pack(">qi", 1, 5))
    status, out, _ = run(capsys, "verify", str(place))
    assert (status, out.count("index: ")) == (1, 2)
    assert run(capsys, "repair", "--rebuild", str(place))[0] == 0
    status, out, _ = run(capsys, "verify", str(place))
    assert (status, "without" in out) == (0, False)
    (place / f"{NAME}.snapshot").write_bytes(b"?")
    (place / f"{NAME}.txnindex").write_bytes(b"?" * 35)
    (place / "leader-epoch-checkpoint").write_text("0\n7\n")
    status, out, _ = run(capsys, "verify", str(place))
    assert status == 1
    for told in (".snapshot: no producer snapshot", ".txnindex: 1 bytes behind",
                 "leader-epoch-checkpoint: checkpoint says 7 entries"):  # fmt: skip
        assert told in out
    assert run(capsys, "repair", "--rebuild", str(place))[0] == 0
    assert run(capsys, "verify", "--deep", str(place))[0] == 0
    assert (place / "leader-epoch-checkpoint").read_text() == "0\n1\n0 10\n"


def test_repair_is_refused_while_a_broker_holds_the_directory(
    capsys: Captured, tmp_path: Path
) -> None:
    place = partition(tmp_path)
    break_batches(place, 1)
    with DirectoryLock(tmp_path):
        status, _, err = run(capsys, "repair", "--drop", str(place))
    assert (status, "is in use by process" in err) == (1, True)
    assert run(capsys, "repair", "--drop", str(place))[0] == 0


def test_the_metadata_log_is_cut_and_nothing_else(capsys: Captured, tmp_path: Path) -> None:
    """A start refuses the damage; cut as asked, it opens again."""
    store = MetadataStore(tmp_path, SystemClock())
    store.open()
    store.close()
    assert run(capsys, "verify", "-D", str(tmp_path))[0] == 0
    log = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    assert run(capsys, "verify", "-D", str(tmp_path))[0] == 1
    for asked in ("--drop", "--rebuild"):
        status, _, err = run(capsys, "repair", asked, "-D", str(tmp_path))
        assert (status, "repaired by --truncate alone" in err) == (1, True)
    with pytest.raises(CorruptFileError, match=f"log repair --truncate {log}"):
        MetadataStore(tmp_path, SystemClock()).open()
    assert "[--truncate]" in run(capsys, "repair", str(log))[1]
    assert "aside as -stray" in run(capsys, "repair", "--truncate", str(log))[1]
    store = MetadataStore(tmp_path, SystemClock())
    store.open()
    store.close()
    (tmp_path / "cleaner-offset-checkpoint").write_text("x")
    out = run(capsys, "verify", "-D", str(tmp_path))[1]
    assert "cleaner-offset-checkpoint: not a checkpoint" in out


@pytest.mark.parametrize("seed", range(4))
def test_any_damage_is_found_and_mended(capsys: Captured, tmp_path: Path, seed: int) -> None:
    """Wherever bits flip, a whole log comes out of it, with every batch that was not hit."""
    chance = random.Random(seed)
    for turn in range(25):
        place = partition(tmp_path / str(turn))
        log = place / f"{NAME}.log"
        data = bytearray(log.read_bytes())
        whole = batches(bytes(data))
        hit = set()
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            one = next(b for b in whole if b.position <= at < b.position + b.length)
            if at - one.position in (*range(8), *range(12, 16)):
                continue  # offset and leader epoch are not covered by the checksum
            hit.add(one.base_offset)
            data[at] ^= 1 << chance.randrange(8)
        log.write_bytes(data)
        damaged = run(capsys, "verify", str(place))[0]
        if damaged:
            assert run(capsys, "repair", "--drop", str(place))[0] == 0
        assert run(capsys, "verify", "--deep", str(place))[0] == 0
        left = set(offsets(capsys, place))
        assert {b.base_offset for b in whole} - hit <= left
        assert damaged or left == {b.base_offset for b in whole}
