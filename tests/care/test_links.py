"""Symbolic links among the partitions of a data directory: refused, and named by every command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.care.backup import create
from kbroker.cli import root
from kbroker.client import Admin, NewTopic, Producer
from kbroker.errors import DiskError, OperatorError
from kbroker.testing import Broker
from tests.support.logs import batch, open_log


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A data directory at rest, one of whose partitions was moved to another disk and linked."""
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", partitions=2)])
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"one", partition=1).result(30)
        broker.stop()
        shutil.copytree(broker.data_dir, tmp_path / "data")
    (tmp_path / "data" / "t-1").rename(tmp_path / "elsewhere")
    (tmp_path / "data" / "t-1").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "data"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    status = root.run(words)
    return status, "".join(capsys.readouterr())


def test_a_start_refuses_a_linked_partition_in_one_line(moved: Path) -> None:
    command = [sys.executable, "-m", "kbroker.cli", "start", "--data-dir", str(moved)]
    done = subprocess.run(
        [*command, "--set", "listeners=PLAINTEXT://127.0.0.1:0"],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode not in (0, -9)
    assert f"{moved}/t-1 is a symbolic link to {moved.parent}/elsewhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in (moved.parent / "elsewhere").glob("*.log"))
    (moved / "t-1").unlink()
    (moved.parent / "elsewhere").rename(moved / "t-1")  # what the message says to do
    with Broker() as broker:
        broker.stop()
        shutil.rmtree(broker.data_dir)
        shutil.copytree(moved, broker.data_dir)
        broker.start()


def test_commands_name_a_linked_partition(
    moved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OperatorError, match="t-1 is a symbolic link"):
        create(moved, tmp_path / "b")
    assert not (tmp_path / "b").exists() and not (tmp_path / "b.partial").exists()
    status, output = run(capsys, "log", "verify", "--quiet", "-D", str(moved))
    assert (status, f"{moved}/t-1: is a symbolic link" in output) == (1, True), output
    status, output = run(capsys, "check", "-D", str(moved))
    assert status == 1 and f"{moved}/t-1: a start refuses them" in " ".join(output.split())
    status, output = run(capsys, "log", "sizes", "-p", "-o", "json", "-D", str(moved))
    sizes = {row["partition"]: row["log_bytes"] for row in json.loads(output)["partitions"]
             if row["topic"] == "t"}  # fmt: skip
    assert sizes[1] > 0 and set(sizes) == {0, 1}


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_backup_refuses_what_it_would_leave_out(tmp_path: Path, kind: str) -> None:
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", partitions=1)])
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"one", partition=0).result(30)
        folder = Path(broker.data_dir, "t-0")
        if kind == "link":
            log = next(folder.glob("*.log"))
            log.rename(tmp_path / "segment")
            log.symlink_to(tmp_path / "segment")
        else:
            (folder / "more").mkdir()
        with pytest.raises(OperatorError, match="no backup takes"):
            create(Path(broker.data_dir), tmp_path / "b")  # while the broker serves
        broker.stop()
        with pytest.raises(OperatorError, match="no backup takes"):
            create(Path(broker.data_dir), tmp_path / "b")  # at rest


def test_a_log_with_a_linked_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch(), leader_epoch=0)
    log.close(clean=True)
    path = next((tmp_path / "t-0").glob("*.log"))
    path.rename(tmp_path / "segment")
    path.symlink_to(tmp_path / "segment")
    with pytest.raises(DiskError, match="a file in it is a symbolic link") as refused:
        open_log(tmp_path / "t-0")
    assert not refused.value.final  # the partition's own fault, not the directory's
