"""The two processes that the pipeline is made of, and that may be killed: broker and Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from examples.pipeline.plan import Plan
from kbroker import runfile

ROOT = Path(__file__).resolve().parents[2]
_END_S = 60.0
_LAST_LINES = 15


class BrokerEndedError(Exception):
    """The broker did not start."""


class Broker:
    """kbroker on a data directory, at the address that it got first. It outlives this process."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.bootstrap = ""

    def start(self) -> None:
        """Starts it; what was acknowledged is there again."""
        command = [sys.executable, "-P", "-m", "kbroker.cli", "start", "--detach"]
        command += ["--data-dir", str(self.data_dir)]
        if self.bootstrap:
            command += ["--listen", self.bootstrap]
        else:
            command += ["--listen", "127.0.0.1:0"]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        info = runfile.running(self.data_dir)
        if info is None:
            raise BrokerEndedError(f"the broker did not start; see {self.data_dir}/kbroker.log")
        self.bootstrap = info.listeners[0].rpartition("://")[2]

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        info = runfile.running(self.data_dir)
        if info is not None:
            kill_and_wait(info.pid)

    def stop(self) -> None:
        """Ends it in order, where it runs."""
        command = [sys.executable, "-P", "-m", "kbroker.cli", "stop", "--data-dir"]
        if runfile.running(self.data_dir) is not None:
            subprocess.run([*command, str(self.data_dir)], check=True, stdout=subprocess.DEVNULL)


class Spark:
    """The Spark process (app.py), started as often as it takes."""

    def __init__(self, plan: Plan, told: Callable[[dict[str, object]], None]) -> None:
        """told: called with each line of the process, on a thread of its own."""
        self.plan = plan
        self.done = False
        self.java = 0
        self.log = plan.home / "spark.log"
        self._told = told
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Starts it; its jobs go on from their checkpoints."""
        self.java = 0
        command = [sys.executable, "-m", "examples.pipeline.app", self.plan.to_json()]
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                # Spark looks there for data sources (pyspark_*); an editable install lists none.
                env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith(b"{"):
                continue  # Java's own
            said = json.loads(line)
            self.java = said.get("java", self.java)
            self.done = self.done or "done" in said
            self._told(said)

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def last_words(self) -> str:
        """The end of its log, for people."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(["", *lines[-_LAST_LINES:]])

    def wait(self) -> int:
        """Returns at its end, with its exit status."""
        assert self._process is not None
        assert self._reader is not None
        status = self._process.wait()
        self._reader.join()
        return status

    def kill(self) -> None:
        """SIGKILL for Python and Java, wherever they are; returns when nothing is left."""
        process = self._process
        if process is None:
            return
        java = self.java
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        self.wait()
        if java:
            kill_and_wait(java)


def is_alive(pid: int) -> bool:
    """False where a process has ended, though nobody may have asked how."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def kill_and_wait(pid: int) -> None:
    """SIGKILL, and returns when the process is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + _END_S
    while is_alive(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} is still there {_END_S:g} s after SIGKILL")
        time.sleep(0.01)
