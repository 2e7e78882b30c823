"""Waiting for conditions with a deadline, and ports that the kernel picks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(what: str, condition: Callable[[], T], timeout_s: float, pause_s: float = 0.02) -> T:
    """Calls `condition` until it returns something true, and returns that."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(pause_s)


def passes(milliseconds: float) -> None:
    """Lets time pass that something outside of the test measures: a session's life."""
    until = time.monotonic() + milliseconds / 1000
    wait_for("time to pass", lambda: time.monotonic() >= until, milliseconds / 1000 + 60)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on; held together so that they are distinct."""
    held = []
    try:
        for _ in range(count):
            sock = socket.socket()
            sock.bind(("127.0.0.1", 0))
            held.append(sock)
        return [sock.getsockname()[1] for sock in held]
    finally:
        for sock in held:
            sock.close()


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """True where something accepts connections on the port."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
