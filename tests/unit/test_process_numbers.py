"""What /proc tells of the broker's process, where some of it is hidden as well."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from kbroker.server.process import BusyTimes, process_numbers

STAT = {
    "process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes",
    "process_start_time_seconds", "kbroker_process_threads",
}  # fmt: skip


def test_a_service_that_sees_processes_only_has_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under ProcSubset=pid: of /proc, nothing but the folders of processes."""
    read = Path.read_text

    def hidden(path: Path, *args: str, **kwargs: str) -> str:
        if path.parts[:2] == ("/", "proc") and path.parts[2] != "self":
            raise FileNotFoundError(path)
        return read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", hidden)
    numbers = process_numbers()
    assert numbers.keys() == STAT | {"process_open_fds", "process_max_fds"}
    # A process's age by ps(1)'s own clock: the kernel's, since the machine started.
    fields = read(Path("/proc/self/stat")).rpartition(")")[2].split()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    assert numbers["process_start_time_seconds"] == pytest.approx(time.time() - age_s, abs=1.0)


def test_each_number_by_itself(tmp_path: Path) -> None:
    assert process_numbers(tmp_path).keys() == {"process_max_fds"}
    (tmp_path / "fd").mkdir()
    assert process_numbers(tmp_path).keys() == {"process_max_fds", "process_open_fds"}
    (tmp_path / "fd").rmdir()
    shutil.copy("/proc/self/stat", tmp_path / "stat")
    assert process_numbers(tmp_path).keys() == STAT | {"process_max_fds"}


class Kernel:
    """Threads of a process as /proc has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "task").mkdir()

    def thread(self, number: int, name: str, ran: int, waited: int = 0) -> None:
        task = self.folder / "task" / str(number)
        task.mkdir(exist_ok=True)
        (task / "comm").write_text(name + "\n")
        (task / "schedstat").write_text(f"{ran} {waited} 7\n")

    def ends(self, number: int) -> None:
        shutil.rmtree(self.folder / "task" / str(number))


def test_the_time_of_threads_that_end_is_kept(tmp_path: Path) -> None:
    kernel, times = Kernel(tmp_path), BusyTimes(tmp_path)
    kernel.thread(1, "python3", 900)
    kernel.thread(2, "kbroker-http-s", 10, 5)
    kernel.thread(3, "kbroker-http-s", 20)
    kernel.thread(4, "kbroker-clean", 0)
    assert times.look() == {"kbroker-http-s": 35}
    kernel.ends(2)
    kernel.thread(4, "kbroker-clean", 3)
    assert times.look() == {"kbroker-clean": 3, "kbroker-http-s": 35}
    kernel.ends(4)
    kernel.thread(3, "kbroker-http-s", 25)
    kernel.thread(5, "kbroker-http-s", 1)
    assert times.look() == {"kbroker-clean": 3, "kbroker-http-s": 41}


def test_a_number_that_another_thread_gets_begins_anew(tmp_path: Path) -> None:
    kernel, times = Kernel(tmp_path), BusyTimes(tmp_path)
    kernel.thread(2, "kbroker-http-s", 10)
    assert times.look() == {"kbroker-http-s": 10}
    kernel.thread(2, "kbroker-http-s", 4)
    assert times.look() == {"kbroker-http-s": 14}


def test_a_thread_that_takes_its_name_later_leaves_its_time_where_it_was(tmp_path: Path) -> None:
    """It begins with the name of the thread that started it."""
    kernel, times = Kernel(tmp_path), BusyTimes(tmp_path)
    kernel.thread(1, "kbroker-control", 100)
    kernel.thread(2, "kbroker-control", 5)
    assert times.look() == {"kbroker-control": 105}
    kernel.thread(2, "kbroker-clean", 8)
    assert times.look() == {"kbroker-clean": 3, "kbroker-control": 105}
    kernel.ends(2)
    assert times.look() == {"kbroker-clean": 3, "kbroker-control": 105}
