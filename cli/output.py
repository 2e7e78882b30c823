"""Standard output by its descriptor: how much was written is known, to the record."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Sequence

from kbroker.cli.stopping import Stop

__all__ = ["Output"]


class Output:
    """Where records are printed. whole: how many of those given last were written to the end.

    Nothing is buffered here. single: a write for each record. A signal ends a write that waits for
    its reader (StoppedError).
    """

    def __init__(self, stop: Stop, *, single: bool = False) -> None:
        sys.stdout.flush()
        self.whole = 0
        self._fd = sys.stdout.fileno()
        self._stop = stop
        self._single = single
        self._poll = select.poll()
        self._poll.register(self._fd, 0)  # errors alone

    def check(self) -> None:
        """Raises BrokenPipeError where nobody reads any more, as a write would."""
        if any(event & select.POLLERR for _, event in self._poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

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
        written: list[int] = []
        try:
            while (done := sum(written)) < len(view):
                with self._stop.interruptible():
                    # One call into C: no signal is looked at between the write and its count.
                    written.extend(map(os.write, (self._fd,), (view[done:],)))
        except BaseException as error:
            if isinstance(error, OSError):
                error.filename = "standard output"
            left = sum(written)
            for line in lines:
                left -= len(line) + len(tail)
                if left < 0:
                    break
                self.whole += 1
            raise
