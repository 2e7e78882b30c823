"""What the kernel tells of this process and its threads, from /proc; nothing where it does not."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_SELF: Final = Path("/proc/self")
# Fields of /proc/PID/stat behind the name, from 0 (proc_pid_stat(5) counts from 3).
_UTIME, _STIME, _THREADS, _START, _VSIZE, _RSS = 11, 12, 17, 19, 20, 21
_WINDOW_NS: Final = 1_000_000_000


def process_numbers(own: Path = _SELF) -> dict[str, float]:
    """Values by metric; of those that the kernel does not tell, the others."""
    found: dict[str, float] = {
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
    with suppress(OSError):
        found["process_open_fds"] = len(os.listdir(own / "fd"))
    with suppress(OSError):
        fields = (own / "stat").read_text().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        found |= {
            "process_cpu_seconds_total": (int(fields[_UTIME]) + int(fields[_STIME])) / tick,
            "process_resident_memory_bytes": int(fields[_RSS]) * resource.getpagesize(),
            "process_virtual_memory_bytes": int(fields[_VSIZE]),
            "process_start_time_seconds": round(_boot_s() + int(fields[_START]) / tick, 2),
            "kbroker_process_threads": int(fields[_THREADS]),
        }
    return found


def _boot_s() -> float:
    """When the machine started, since 1970. Not from /proc/stat, which a service that is shown
    processes only (ProcSubset=pid) does not see."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class ThreadTime(NamedTuple):
    """busy_ns: it ran or was ready to run; idle: the share of the last window that it was not."""

    name: str
    busy_ns: int
    idle: float


class _Task(NamedTuple):
    """A thread as it was seen last: its time, and how much of that it had spent by another name."""

    name: str
    busy_ns: int
    before_ns: int


class BusyTimes:
    """Time of all threads that have ever had a name, so that no sum falls when one ends. What a
    thread spent between the last look and its end is left out. Not thread-safe."""

    def __init__(self, own: Path = _SELF) -> None:
        self._own = own
        self._tasks: dict[str, _Task] = {}
        self._ended: dict[str, int] = {}

    def look(self) -> dict[str, int]:
        """The time by name (ns); threads of one name are added up."""
        found = dict(_tasks(self._own))
        for number, known in self._tasks.items():
            now = found.get(number)
            if now is None or now[0] != known.name or now[1] < known.busy_ns:
                spent = known.busy_ns - known.before_ns
                self._ended[known.name] = self._ended.get(known.name, 0) + spent
        tasks: dict[str, _Task] = {}
        sums = self._ended.copy()
        for number, (name, busy_ns) in found.items():
            before_ns = self._before(number, name, busy_ns)
            tasks[number] = _Task(name, busy_ns, before_ns)
            sums[name] = sums.get(name, 0) + busy_ns - before_ns
        self._tasks = tasks
        ours = (name for name in sums if name.startswith("kbroker-") and sums[name])
        return {name: sums[name] for name in sorted(ours)}

    def _before(self, number: str, name: str, busy_ns: int) -> int:
        """A thread has the name of the one that started it until it gives itself its own. A number
        whose time has fallen is another thread's."""
        known = self._tasks.get(number)
        if known is None or busy_ns < known.busy_ns:
            return 0
        return known.before_ns if known.name == name else known.busy_ns


class Threads:
    """Times of the broker's own threads, those with a name. Not thread-safe.

    A window is at least a second, so that several scrapers do not measure moments; until the first
    one is over, the window is the thread's whole life.
    """

    def __init__(self) -> None:
        self._times = BusyTimes()
        self._mark_ns = time.monotonic_ns()
        self._marked: dict[str, int] = {}
        self._idle: dict[str, float] = {}

    def look(self) -> list[ThreadTime]:
        """All of them by name; empty where the kernel keeps no such times (CONFIG_SCHED_INFO)."""
        now_ns = time.monotonic_ns()
        busy = self._times.look()
        window_ns = now_ns - self._mark_ns
        if self._marked and window_ns >= _WINDOW_NS:
            self._idle = {
                name: _idle(spent - self._marked.get(name, 0), window_ns)
                for name, spent in busy.items()
            }
        if not self._marked or window_ns >= _WINDOW_NS:
            self._mark_ns, self._marked = now_ns, busy
        return [ThreadTime(name, spent, self._idle.get(name, 1.0)) for name, spent in busy.items()]


def _idle(busy_ns: int, window_ns: int) -> float:
    return min(max(1.0 - busy_ns / window_ns, 0.0), 1.0)


def _tasks(own: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """(number, (name, ns on a processor or in its queue)) of each thread."""
    for task in (own / "task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            ran, waited, _ = (task / "schedstat").read_text().split()
        except (OSError, ValueError):
            continue  # it ended, or the kernel does not count
        yield task.name, (name, int(ran) + int(waited))
