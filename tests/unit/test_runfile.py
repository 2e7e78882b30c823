"""The run-file: written by a broker, read by `stop` and `status`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.errors import DiskError


def test_what_was_written_is_read(tmp_path: Path) -> None:
    publish = runfile.prepare(
        tmp_path, listeners=["PLAINTEXT://127.0.0.1:9092"], durability="fsync", version="1"
    )
    assert runfile.read(tmp_path) is None
    publish()
    info = runfile.running(tmp_path)
    assert info is not None
    assert (info.pid, info.listeners) == (os.getpid(), ["PLAINTEXT://127.0.0.1:9092"])
    assert [path.name for path in tmp_path.iterdir()] == [".kbroker-run.json"]
    runfile.remove(tmp_path)
    runfile.remove(tmp_path)
    assert runfile.read(tmp_path) is None


def test_refused_produce_is_told_later(tmp_path: Path) -> None:
    runfile.tell_refused(tmp_path, "a")
    assert not list(tmp_path.iterdir())
    runfile.prepare(tmp_path, listeners=["x"], durability="fsync", version="1")()
    for told in ("a", None):
        runfile.tell_refused(tmp_path, told)
        info = runfile.running(tmp_path)
        assert info is not None and (info.listeners, info.produce_refused) == (["x"], told)


def test_refused_produce_is_told_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runfile.prepare(tmp_path, listeners=["x"], durability="fsync", version="1")()

    def no_room(path: Path, text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", no_room)
    for told in ("something long", None, "short"):
        runfile.tell_refused(tmp_path, told)
        info = runfile.running(tmp_path)
        assert info is not None and (info.listeners, info.produce_refused) == (["x"], told)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(DiskError, match="No space"):
        runfile.prepare(tmp_path / "..", listeners=["x"], durability="fsync", version="1")


def test_a_dead_broker_is_not_running(tmp_path: Path) -> None:
    code = (
        "import sys; from kbroker import runfile;"
        "runfile.prepare(sys.argv[1], listeners=[], durability='fsync', version='1')()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert runfile.read(tmp_path) is not None
    assert runfile.running(tmp_path) is None


def test_prepare_removes_files_of_killed_processes(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from kbroker import runfile;"
        "runfile.prepare(sys.argv[1], listeners=[], durability='fsync', version='1');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    names = []
    for _ in range(2):
        killed = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
        assert killed.wait(60) == -9
        names = [path.name for path in tmp_path.iterdir()]
        assert names == [f".kbroker-run.json.{killed.pid}"]
    (tmp_path / ".kbroker-run.json.mine").touch()  # named by nobody of ours
    runfile.prepare(tmp_path, listeners=[], durability="fsync", version="1")()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".kbroker-run.json", ".kbroker-run.json.mine",
    ]  # fmt: skip


def test_another_process_with_the_pid_is_not_it(tmp_path: Path) -> None:
    runfile.prepare(tmp_path, listeners=[], durability="fsync", version="1")()
    path = runfile.run_file(tmp_path)
    ticks = runfile.pid_ticks(os.getpid())
    path.write_text(path.read_text().replace(f'"pid_ticks": {ticks}', '"pid_ticks": 1'))
    assert runfile.read(tmp_path) is not None
    assert runfile.running(tmp_path) is None


def test_garbage_is_no_run_file(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"pid": 1}', '{"nonsense": true}'):
        runfile.run_file(tmp_path).write_text(text)
        assert runfile.read(tmp_path) is None
