"""Log lines with fields for journald, where standard error is its stream.

One datagram a line to the journal's native socket, of `NAME=VALUE` lines; a value with a newline
is its name, a newline, its length in 8 bytes little-endian, the value, a newline. Fields beside
the usual ones: LOGGER, THREAD_NAME, and what a record has in `fields`. `journalctl -u kbroker
LOGGER=kbroker.storage` and `-p warning` go by them.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

from kbroker.printable import one_line
from kbroker.server.lines import MESSAGE_MAX_CHARS

_SOCKET: Final = "/run/systemd/journal/socket"
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4),
                      (logging.INFO, 6))  # fmt: skip
_DEBUG: Final = 7


def is_there(stream_fd: int = 2) -> bool:
    """True where what is written to the descriptor goes to the journal: $JOURNAL_STREAM is its
    device and inode (systemd.exec(5))."""
    told = os.environ.get("JOURNAL_STREAM")
    if not told:
        return False
    try:
        found = os.fstat(stream_fd)
    except OSError:
        return False
    return told == f"{found.st_dev}:{found.st_ino}"


class JournalHandler(logging.Handler):
    """Records as entries of the journal; one that it does not take goes to standard error."""

    def __init__(self, address: str = _SOCKET) -> None:
        super().__init__()
        self._way = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._address = address
        self._otherwise = logging.StreamHandler()

    def setFormatter(self, fmt: logging.Formatter | None) -> None:  # noqa: N802
        """For lines that go to standard error after all."""
        self._otherwise.setFormatter(fmt)

    def emit(self, record: logging.LogRecord) -> None:
        """Send one entry."""
        try:
            self._way.sendto(entry(record), self._address)
        except OSError:
            self._otherwise.handle(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Let go of the socket."""
        self._way.close()
        super().close()


def entry(record: logging.LogRecord) -> bytes:
    """A record in the journal's native protocol."""
    message = one_line(record.getMessage(), MESSAGE_MAX_CHARS)
    if record.exc_info:
        message = f"{message}\n{logging.Formatter().formatException(record.exc_info)}"
    fields = {
        "MESSAGE": message,
        "PRIORITY": str(_priority(record.levelno)),
        "SYSLOG_IDENTIFIER": "kbroker",
        "LOGGER": record.name,
        "THREAD_NAME": str(record.threadName),
    }
    own: Mapping[str, object] = getattr(record, "fields", {})
    fields.update({name.upper(): str(value) for name, value in own.items()})
    return b"".join(_field(name.encode(), value.encode()) for name, value in fields.items())


def _field(name: bytes, value: bytes) -> bytes:
    if b"\n" not in value:
        return name + b"=" + value + b"\n"
    return name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def _priority(level: int) -> int:
    return next((priority for least, priority in _PRIORITIES if level >= least), _DEBUG)
