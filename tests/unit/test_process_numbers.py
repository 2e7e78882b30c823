"""What /proc tells of the broker's process, where some of it is hidden as well."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from kbroker.server.process import process_numbers

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
