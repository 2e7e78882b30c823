"""`kbroker log`: segment files sound and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kbroker.cli import root
from kbroker.ext.records import batches, build

Captured = pytest.CaptureFixture[str]

NAME = "00000000000000000010"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def partition(folder: Path) -> Path:
    """A partition `t-0` of one segment from offset 10: a batch of 3 records in each codec."""
    place = folder / "t-0"
    place.mkdir()
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
    (tmp_path / "kbroker.log").write_text("what a detached broker says\n")
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


def test_dump_of_indexes_leaves_preparation_out(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path)
    out = run(capsys, "dump", "-J", str(place / f"{NAME}.index"))[1]
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [15, 21]
    out = run(capsys, "dump", "-J", str(place / f"{NAME}.timeindex"))[1]
    assert json.loads(out.splitlines()[0]) == {"timestamp": 1015, "offset": 15}


def test_dump_of_a_damaged_log_goes_up_to_the_damage(capsys: Captured, tmp_path: Path) -> None:
    log = partition(tmp_path) / f"{NAME}.log"
    data = bytearray(log.read_bytes())
    third = batches(bytes(data))[2].position
    data[third + 65] ^= 1
    log.write_bytes(data)
    status, out, _ = run(capsys, "dump", "-J", str(log))
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, len(lines), lines[2]["position"]) == (1, 3, third)
    assert "damage" in lines[2]


def test_nothing_there_is_told(capsys: Captured, tmp_path: Path) -> None:
    for words in (["dump", "t-9"], ["verify", "t-9"]):
        status, _, err = run(capsys, *words, "-D", str(tmp_path))
        assert status == 1
        assert "t-9: no such file or folder" in err
    status, _, err = run(capsys, "verify", "-D", str(tmp_path))
    assert (status, "no segment files" in err) == (1, True)
