"""Folders of many partitions in one call: created with their logs, renamed, removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kbroker.errors import DiskError
from kbroker.ext import log_folders
from kbroker.ext.log import Log
from kbroker.storage.checkpoints import PARTITION_METADATA, read_topic_id
from kbroker.storage.folder_work import (
    PIECE,
    LogCreator,
    Made,
    create_in_folders,
    create_piece,
    open_one,
    rename_piece,
)
from kbroker.storage.folders import SET_ASIDE
from kbroker.storage.log_port import Opening, PartitionSpec
from tests.support.logs import CONFIG, batch
from tests.support.native import shared_library
from tests.support.nth_call import run_with

IDS = {"a": b"a" * 16, "b": b"b" * 16}


def opening(root: Path, topic: str, partition: int, epoch: int = 0) -> Opening:
    spec = PartitionSpec(topic, IDS[topic], partition, CONFIG, epoch)
    return Opening(f"{root}/{spec.folder}", spec, 0, 0, True)


def open_log(one: Opening) -> Log:
    spec = one.spec
    log = Log(one.directory, spec.topic, spec.topic_id, spec.partition, spec.config,
              clean=one.clean, durable=False, fresh=one.fresh)  # fmt: skip
    log.leader_epoch = spec.leader_epoch
    return log


def created(openings: Sequence[Opening], create: LogCreator | None) -> list[Log]:
    made = create_piece(openings, open_log, create)
    logs = [one for one in made if isinstance(one, Log)]
    assert len(logs) == len(made), made
    return logs


def inode(folder: Path) -> int:
    return (folder / PARTITION_METADATA).stat().st_ino


@pytest.mark.parametrize("create", [create_in_folders, None])
def test_created_logs_have_folders_and_their_topics_id(
    tmp_path: Path, create: LogCreator | None
) -> None:
    topics = [("a", 0), ("a", 1), ("b", 0), ("a", 2)]
    logs = created([opening(tmp_path, *one, epoch=3) for one in topics], create)
    assert sorted(os.listdir(tmp_path)) == ["a-0", "a-1", "a-2", "b-0"]
    for (topic, partition), log in zip(topics, logs, strict=True):
        folder = tmp_path / f"{topic}-{partition}"
        assert read_topic_id(folder) == IDS[topic]
        assert os.listdir(folder) == [PARTITION_METADATA]
        assert log.leader_epoch == 3 and log.leader_epochs() == [(3, 0)]
        assert log.append(batch(2), leader_epoch=3) == (0, 1)
        assert len(os.listdir(folder)) == 4


def test_neighbours_of_a_topic_share_partition_metadata(tmp_path: Path) -> None:
    topics = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    created([opening(tmp_path, *one) for one in topics], create_in_folders)
    a, b = inode(tmp_path / "a-0"), inode(tmp_path / "b-0")
    assert a != b and (inode(tmp_path / "a-1"), inode(tmp_path / "b-1")) == (a, b)
    log_folders.remove_folders([f"{tmp_path}/a-0"])
    assert read_topic_id(tmp_path / "a-1") == IDS["a"]


def test_logs_come_in_the_order_asked_for(tmp_path: Path) -> None:
    openings = [opening(tmp_path, "a", index) for index in range(PIECE)]
    made = create_piece(openings, open_log, create_in_folders)
    assert len(made) == len(os.listdir(tmp_path)) == PIECE
    log = made[3]
    assert isinstance(log, Log)
    log.append(batch(), leader_epoch=0)
    assert (tmp_path / "a-3" / f"{0:020}.log").exists()


def test_a_folder_in_the_way_becomes_a_stray(tmp_path: Path) -> None:
    for index in (1, 2):
        (tmp_path / f"a-{index}").mkdir()
        (tmp_path / f"a-{index}" / "theirs").write_text("theirs")
    openings = [opening(tmp_path, "a", index) for index in range(4)]
    refused = create_in_folders(openings[1:2])
    assert isinstance(refused[0], FileExistsError) and refused[0].filename == openings[1].directory
    assert os.listdir(tmp_path / "a-1") == ["theirs"]
    created(openings, create_in_folders)
    strays = [path for path in tmp_path.iterdir() if path.name.endswith("-stray")]
    assert sorted(os.listdir(path) for path in strays) == [["theirs"], ["theirs"]]
    for index in range(4):
        assert os.listdir(tmp_path / f"a-{index}") == [PARTITION_METADATA]


def test_a_directory_that_is_gone_denies_each_log(tmp_path: Path) -> None:
    made: list[Made] = [
        *create_in_folders([opening(tmp_path / "gone", "a", 0)]),
        open_one(opening(tmp_path / "gone", "a", 0), open_log, fresh=True),
    ]
    assert [type(one) for one in made] == [FileNotFoundError] * 2


def test_a_wrong_argument_creates_nothing(tmp_path: Path) -> None:
    good = (f"{tmp_path}/a-0", "a", IDS["a"], 0, CONFIG, 0, b"")
    lacking = {name: value for name, value in CONFIG.items() if name != "preallocate"}
    for bad, error in (
        ((f"{tmp_path}/a-1", "a", b"short", 1, CONFIG, 0, b""), ValueError),
        ((f"{tmp_path}/a-1", "a", IDS["a"], 1, lacking, 0, b""), KeyError),
    ):
        with pytest.raises(error):
            log_folders.create_logs([good, bad])
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", ["LINK", "WRITE", "OPEN"])
def test_a_failing_call_denies_one_log_at_most(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, call: str
) -> None:
    shim = shared_library("nth_call", tmp_path_factory.mktemp("shim"))
    home = tmp_path / "topic-home"  # the library fails what is opened in a folder of this name
    home.mkdir()
    run_with(shim, home, f"""
        from tests.unit.test_log_folders import create_in_folders, opening, read_topic_id
        ENOSPC = 28
        openings = [opening(folder, topic, index) for topic in "ab" for index in (0, 1)]
        fail({call}, 0, ENOSPC)
        made = create_in_folders(openings)
        assert failed() == 1
        wrong = [one for one in made if isinstance(one, OSError)]
        assert [one.errno for one in wrong] == ([] if {call} == LINK else [ENOSPC]), made
        for one, opened in zip(made, openings):
            if one not in wrong:
                assert read_topic_id(Path(opened.directory)) == opened.spec.topic_id
                one.append(batch(), leader_epoch=0)
    """)  # fmt: skip


def test_renamed_folders_are_those_of_deleted_partitions(tmp_path: Path) -> None:
    logs = created([opening(tmp_path, "a", index) for index in range(3)], create_in_folders)
    logs[1].append(batch(), leader_epoch=0)
    folders = [tmp_path / f"a-{index}" for index in range(4)]
    gone = rename_piece(list(zip(folders, [*logs, None], strict=True)))
    assert [one.folder for one in gone] == folders and [one.error for one in gone] == [None] * 4
    asides = [one.aside for one in gone]
    assert asides[3] is None and len(set(asides)) == 4
    for index, aside in enumerate(asides[:3]):
        assert aside is not None
        found = SET_ASIDE.match(os.path.basename(aside))
        assert found and found["folder"] == f"a-{index}" and found["suffix"] == "-delete"
        assert read_topic_id(Path(aside)) == IDS["a"]
    with pytest.raises(DiskError):
        logs[1].append(batch(), leader_epoch=0)
    assert sorted(os.listdir(tmp_path)) == sorted(
        os.path.basename(aside) for aside in asides if aside
    )


def test_a_rename_that_is_denied_says_so(tmp_path: Path) -> None:
    (log,) = created([opening(tmp_path, "a", 0)], create_in_folders)
    (tmp_path / "file").write_text("")
    (gone,) = rename_piece([(tmp_path / "file" / "a-0", log)])
    assert gone.aside is None and gone.error is not None and gone.error.errno == errno.ENOTDIR
    with pytest.raises(DiskError):
        log.append(batch(), leader_epoch=0)


def test_removed_folders_are_gone_with_their_files(tmp_path: Path) -> None:
    logs = created([opening(tmp_path, "a", index) for index in range(3)], create_in_folders)
    for _ in range(3):
        logs[0].append(batch(), leader_epoch=0)
        logs[0].roll()
    nested = tmp_path / "nested"
    (nested / "within").mkdir(parents=True)
    (nested / "file").write_text("")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a-2")
    names = [f"{tmp_path}/{name}" for name in ("a-0", "a-1", "missing", "nested", "link")]
    assert log_folders.remove_folders(names) == [0, 0, 0, errno.ENOTEMPTY, errno.ENOTDIR]
    assert sorted(os.listdir(tmp_path)) == ["a-2", "link", "nested"]
    assert os.listdir(nested) == ["within"] and os.listdir(link) == [PARTITION_METADATA]
