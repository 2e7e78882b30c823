"""What a service manager is told and hands over: sd_notify(3), sd_listen_fds(3), sd_watchdog(3).

A message is a datagram of lines NAME=VALUE to the socket that $NOTIFY_SOCKET names. In order:

    start      STATUS= what is being done; EXTEND_TIMEOUT_USEC= when recovery begins, and on and on
               while a start gets on
    serving    READY=1 with STATUS=, after recovery and with the listeners bound
    SIGHUP     RELOADING=1 with MONOTONIC_USEC=, then READY=1 again
    watchdog   WATCHDOG=1 at each half of $WATCHDOG_USEC, once both planes have answered
    stop       STOPPING=1, then as at the start

Without $NOTIFY_SOCKET nothing of that happens. The variables are taken out of the environment.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger("kbroker.server")

FIRST_FD: Final = 3  # SD_LISTEN_FDS_START
_EXTEND_BY_S: Final = 60
_EXTEND_EVERY_S: Final = 10
_WORK_S: Final = 0.1  # processor time in _EXTEND_EVERY_S that shows that recovery gets on
_USEC: Final = 1_000_000
_CHECK_AGAIN_S: Final = 0.05  # a check that fails at once must not keep a processor busy

Fault = Callable[[float], str | None]


class Notifier:
    """The way to the service manager; without one, `tell` does nothing. Any thread may call."""

    def __init__(self, address: str) -> None:
        """`address` is a path, or an abstract name that begins with `@`; empty for none."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._status = ""
        self._lost = False

    def __bool__(self) -> bool:
        return bool(self._address)

    def tell(self, *lines: str, status: str = "") -> None:
        """Send one message. A manager that is gone is no reason to stop serving."""
        if status:
            self._status = status
            lines = (*lines, f"STATUS={status}")
        if not self._address or not lines:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as way:
                way.connect(self._address)
                way.send("\n".join(lines).encode())
        except OSError as error:
            if not self._lost:
                _LOG.warning("the service manager cannot be told: %s", error.strerror)
            self._lost = True
        else:
            self._lost = False

    def status(self, text: str) -> None:
        """Tell what is being done, if that is new."""
        if text != self._status:
            self.tell(status=text)

    def reloading(self) -> None:
        """SIGHUP was taken; the time lets the manager tell this READY=1 from an earlier one."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.tell("RELOADING=1", f"MONOTONIC_USEC={now_us}", status="reloading the settings")


class Started:
    """What this process was started with: its manager, its watchdog, its sockets."""

    def __init__(self) -> None:
        taken = {name: os.environ.pop(name, "") for name in _VARIABLES}
        self.notifier = Notifier(taken["NOTIFY_SOCKET"])
        self.watchdog_s = 0.0
        if taken["WATCHDOG_USEC"].isdigit() and _is_ours(taken["WATCHDOG_PID"], or_nobodys=True):
            self.watchdog_s = int(taken["WATCHDOG_USEC"]) / _USEC
        self.sockets: list[tuple[int, str]] = []
        if taken["LISTEN_FDS"].isdigit() and _is_ours(taken["LISTEN_PID"]):
            names = taken["LISTEN_FDNAMES"].split(":")
            count = int(taken["LISTEN_FDS"])
            names += [""] * (count - len(names))
            for at in range(count):
                os.set_inheritable(FIRST_FD + at, False)
                self.sockets.append((FIRST_FD + at, names[at]))


_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID",
                     "LISTEN_FDNAMES")  # fmt: skip


def _is_ours(pid: str, *, or_nobodys: bool = False) -> bool:
    return pid == str(os.getpid()) or (or_nobodys and not pid)


class Busy:
    """Around a start or a stop: tells what it does, and asks for more time as long as it gets on.

    It gets on when it used the processor or the disk; a disk that hangs is not waited for.
    """

    def __init__(self, notifier: Notifier, doing: Callable[[], str]) -> None:
        self._notifier = notifier
        self._doing = doing
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="busy", daemon=True)

    def __enter__(self) -> None:
        if self._notifier:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        before = _work()
        while not self._over.wait(_EXTEND_EVERY_S):
            now = _work()
            if now[0] - before[0] > _WORK_S or now[1] != before[1]:
                extend(self._notifier, self._doing())
            else:
                self._notifier.status(f"{self._doing()}: nothing moves")
            before = now


def extend(notifier: Notifier, doing: str) -> None:
    """Ask for another while from now on."""
    notifier.tell(f"EXTEND_TIMEOUT_USEC={_EXTEND_BY_S * _USEC}", status=doing)


def _work() -> tuple[float, str]:
    """Processor time of this process, and bytes that it moved from and to disks so far."""
    try:
        with open("/proc/self/io") as io:
            moved = [line for line in io if line.startswith(("read_bytes", "write_bytes"))]
        return time.process_time(), "".join(moved)
    except OSError:
        return time.process_time(), ""


class Watchdog:
    """A thread that sends WATCHDOG=1 to the manager while the broker is alive.

    A check begins half a period after the last message. A check that fails is followed by the next
    at once, so that an answer within the other half of the period is reported within the period:
    the manager kills no broker whose threads all answer within half a period.
    """

    def __init__(
        self, notifier: Notifier, period_s: float, fault: Fault, doing: Callable[[], str]
    ) -> None:
        """`fault` checks the broker for at most so many seconds, and returns what is wrong or
        None."""
        self._notifier = notifier
        self._every_s = period_s / 2
        self._fault = fault
        self._doing = doing
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin, if the manager has set a period."""
        if self._notifier and self._every_s > 0:
            self._thread.start()

    def stop(self) -> None:
        """End; a check that hangs is left alone."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(self._every_s)

    def _run(self) -> None:
        last: str | None = None  # the fault that the last check found
        while not self._over.wait(self._every_s if last is None else _CHECK_AGAIN_S):
            fault = self._fault(self._every_s / 2)
            if self._over.is_set():
                return
            if fault is None:
                self._notifier.tell("WATCHDOG=1")
                self._notifier.status(self._doing())
                if last is not None:
                    _LOG.warning("alive again: all threads answer")
            elif fault != last:
                _LOG.critical("not alive: %s", fault)
                self._notifier.tell(status=f"not alive: {fault}")
            last = fault
