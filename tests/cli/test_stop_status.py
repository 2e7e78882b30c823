"""`kbroker stop` and `status`: which process they mean, and what they leave in the broker's log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.cli import root
from kbroker.cli.process import _end
from kbroker.errors import OperatorError
from kbroker.files import DirectoryLock
from tests.support.waits import wait_for

Run = Callable[..., tuple[int, str]]
LOCKER = """\
import signal, sys
from pathlib import Path
from kbroker.files import DirectoryLock
DirectoryLock(Path(sys.argv[1])).acquire()
print("locked", flush=True)
signal.pause()
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        status = root.run(list(map(str, words)))
        return status, "".join(capsys.readouterr())

    return call


@contextlib.contextmanager
def program(*words: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def name_process(place: Path, pid: int) -> None:
    """Write the run file of a directory as its owner could."""
    place.mkdir(exist_ok=True)
    ticks = runfile.pid_ticks(pid)
    assert ticks is not None
    runfile._put(place, runfile.RunInfo(pid, ticks, 0, ["PLAINTEXT://127.0.0.1:1"]))


def test_stop_spares_a_process_that_does_not_hold_the_lock(tmp_path: Path, run: Run) -> None:
    with program("-c", "import signal; print('up', flush=True); signal.pause()") as other:
        assert other.stdout is not None and other.stdout.readline() == "up\n"
        name_process(tmp_path, other.pid)
        with DirectoryLock(tmp_path):
            status, output = run("stop", "-D", tmp_path)
        assert status == 1 and f"process {other.pid}, " in output
        assert "does not hold the lock" in output
        assert other.poll() is None
        # Named by the lock file alone, beside a lock that another process holds.
        runfile.remove(tmp_path)
        with program("-c", LOCKER, str(tmp_path)) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
            (tmp_path / ".lock").write_text(f"{other.pid}\n")
            assert run("stop", "-D", tmp_path)[0] == 1 and other.poll() is None
            (tmp_path / ".lock").write_text(f"{holder.pid}\n")
            assert run("stop", "-D", tmp_path)[0] == 0 and holder.wait(30) == -15


def test_status_and_stop_do_not_take_the_lock(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start at the same moment would find the directory in use."""
    monkeypatch.setattr(DirectoryLock, "acquire", lambda _: pytest.fail("the lock was taken"))
    (tmp_path / ".lock").write_text("17\n")
    for command, status in (("status", 1), ("stop", 0)):
        assert run(command, "-D", tmp_path)[0] == status
    assert (tmp_path / ".lock").read_text() == "17\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root signals processes of others")
def test_stop_as_root_spares_a_process_of_another_user(tmp_path: Path) -> None:
    with program("-c", LOCKER, str(tmp_path)) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        os.chown(tmp_path, 12_345, 12_345)
        with pytest.raises(OperatorError, match="another user's than the directory"):
            _end(tmp_path, holder.pid)
        assert holder.poll() is None
        os.chown(tmp_path, 0, 0)
        _end(tmp_path, holder.pid)
        assert holder.wait(30) == -15


def test_status_of_a_guarded_broker_leaves_no_warnings(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, log = tmp_path / "data", tmp_path / "log"
    command = ["-m", "kbroker.cli", "start", "-D", str(place), "--user", "alice:secret",
               "--listen", "INSIDE://127.0.0.1:0",
               "--set", "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT",
               "--set", "kbroker.http.listeners=HTTP://127.0.0.1:0"]  # fmt: skip
    with log.open("w") as output:
        broker = subprocess.Popen([sys.executable, *command], stdout=output, stderr=output)
    try:
        wait_for("the broker serves", lambda: runfile.running(place), 60)
        info = runfile.running(place)
        assert info is not None and info.open == []
        wait_for("its last line", lambda: "listening on" in log.read_text(), 60)
        before = log.read_text()
        for command in (["status"], ["log", "sizes"], ["check"]):
            status, said = run(*command, "-D", place)
            assert status == 0, said
        assert log.read_text() == before
        uptime_s = runfile.uptime_s(info)
        monkeypatch.setattr(time, "time", lambda: 0.0)  # a clock that was set back
        assert 0 < uptime_s <= runfile.uptime_s(info) < 600
        assert "uptime:     -" not in run("status", "-D", place)[1]
        assert run("stop", "-D", place)[0] == 0 and broker.wait(60) == 0
    finally:
        broker.kill()
        broker.wait()


def test_a_run_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "data" / ".kbroker-run.json").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", "start", "-D", str(tmp_path / "data"),
         "--listen", "127.0.0.1:0", "--set", "kbroker.http.listeners="],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "listening on" not in done.stdout
    assert '"serving' not in done.stderr and "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("kbroker: ")]
    assert said == [f"kbroker: {tmp_path}/data/.kbroker-run.json: Is a directory"]
    assert not list((tmp_path / "data").glob(".kbroker-run.json.*"))
