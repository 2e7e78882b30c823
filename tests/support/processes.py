"""A broker as a child process: start, stop, kill, restart, and its log."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from tests.support.waits import answers, wait_for

#: A test run that is to know of brokers that crashed names the file for it here (tests.again).
CRASHES = "KBROKER_TEST_CRASHES"
#: What no test sends to a BrokerProcess: faulty compiled code ends so.
_FAULTS = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
)

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Runs in the child: a test run that is itself killed leaves no broker behind."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def note_crash(name: str, status: int | None) -> None:
    """Of a process that has ended: where a fault of its own ended it, the run's file says so."""
    path = os.environ.get(CRASHES)
    if path and status is not None and -status in _FAULTS:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{name} ended with {signal.Signals(-status).name}\n")


class BrokerProcess(ABC):
    """One broker in a process group of its own, with its data and log under one directory.

    `start` returns when the broker answers on its port; every wait has a deadline, and a broker
    that dies meanwhile is reported with the end of its log. After `kill` or `stop`, `start` takes
    up the same data directory on the same port, as soon as it is free.
    """

    name = "broker"
    start_timeout_s = 60.0
    stop_timeout_s = 60.0

    def __init__(
        self, home: Path, settings: dict[str, str] | None = None, data_dir: Path | None = None
    ) -> None:
        self.home = home
        self.data_dir = data_dir or home / "data"
        self.log_path = home / "broker.log"
        self.settings = dict(settings or {})
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that runs the broker in the foreground."""

    def environment(self) -> dict[str, str]:
        """The environment of the broker process."""
        return dict(os.environ)

    def is_ready(self) -> bool:
        """True once the broker serves; may set `port`."""
        return answers(self.port)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    def launch(self) -> None:
        """Starts the process without waiting for it to serve."""
        assert self.process is None, f"{self.name} already runs"
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=self.environment(), cwd=self.home, start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call, no Python locks
            )  # fmt: skip

    def start(self) -> None:
        """Starts the broker and waits until it serves."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Waits until a broker that was launched serves."""
        wait_for(f"{self.name} serves", self._ready_or_dead, self.start_timeout_s)

    def _ready_or_dead(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            status, self.process = self.process.returncode, None
            note_crash(self.name, status)
            if self.port and "Address already in use" in self.log_text()[self._log_start :]:
                # Somebody's outgoing connection has the port for the moment that it lives.
                self.launch()
                return False
            raise AssertionError(f"{self.name} ended with {status}:\n{self.log_tail()}")
        return self.is_ready()

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit status. Killed where it does not end in time."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """SIGKILL: what the process had not handed to the kernel is gone."""
        return self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        process = self.process
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(
                f"{self.name} did not end within {self.stop_timeout_s:g} s of signal {number}:\n"
                f"{self.log_tail()}"
            ) from None
        finally:
            note_crash(self.name, process.returncode)
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_text(self) -> str:
        """What the broker has printed so far, over all its starts."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def partition_dir(self, topic: str, partition: int) -> Path:
        return self.data_dir / f"{topic}-{partition}"

    def resident_kib(self) -> int:
        """Resident memory of the broker process, from /proc."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS line")

    def processor_s(self) -> float:
        """Processor time that the broker process has used, from /proc."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))
