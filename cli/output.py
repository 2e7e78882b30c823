"""Standard output by its descriptor: how much was written is known, to the record."""

from __future__ import annotations

import array
import fcntl
import os
import select
import stat
import sys
import termios
from collections.abc import Sequence

from kbroker.cli.stopping import Stop, StoppedError

__all__ = ["Output"]


class Output:
    """Where records are printed. whole: how many of those given last were written to the end.

    Nothing is buffered here. single: a write for each record. A signal ends the wait for a reader
    (StoppedError): into a pipe nothing is written but what it has room for.
    """

    def __init__(self, stop: Stop, *, single: bool = False) -> None:
        sys.stdout.flush()
        self.whole = 0
        self._fd = sys.stdout.fileno()
        self._stop = stop
        self._single = single
        self._pipe = stat.S_ISFIFO(os.fstat(self._fd).st_mode)

    def put(self, lines: Sequence[bytes], tail: bytes = b"") -> None:
        """Writes each line with `tail` behind it."""
        self.whole = 0
        if not lines:
            return
        if self._single:
            for line in lines:
                self._write(line + tail, [line], tail)
                self.whole += 1
        else:
            self._write(tail.join(lines) + tail, lines, tail)
            self.whole = len(lines)

    def _write(self, data: bytes, lines: Sequence[bytes], tail: bytes) -> None:
        view = memoryview(data)
        done = 0
        try:
            while done < len(view):
                done += os.write(self._fd, view[done : done + self._room()])
        except BaseException:
            for line in lines:
                done -= len(line) + len(tail)
                if done < 0:
                    break
                self.whole += 1
            raise

    def _room(self) -> int:
        """How many bytes can be written without a wait for who reads them; waits until some can.

        Of a pipe that is ready a page is free (pipe(7)), of an empty one all there is.
        """
        if self._stop.asked:
            raise StoppedError
        if not self._pipe:
            return sys.maxsize
        with self._stop.interruptible():
            select.select([], [self._fd], [])
        unread = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, unread)
        return select.PIPE_BUF if unread[0] else fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ)
