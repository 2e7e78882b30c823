"""Exceptions of signal handlers, at each point where Python would run one.

Python runs the handler of a signal when a function begins or goes on, when a call has returned, and
when a loop goes back. `interrupted` raises an exception at the n-th of these points within the
client's own code, so that a test can go through all of them.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import kbroker.client

_FOLDER = kbroker.client.__path__[0]
_CHECKS = frozenset({
    "CALL", "CALL_FUNCTION_EX", "CALL_KW", "CALL_METHOD", "CALL_FUNCTION", "RESUME",
    "JUMP_BACKWARD",
})  # fmt: skip


@functools.cache
def _operations(code: CodeType) -> dict[int, tuple[str, int]]:
    """Return the name and the exception handler, or -1, of each instruction."""
    ranges = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return {
        one.offset: (
            one.opname,
            next((each.target for each in ranges if each.start <= one.offset < each.end), -1),
        )
        for one in dis.get_instructions(code)
    }


class Interruption:
    """happened: the exception was raised. count: points that were passed, with that one."""

    def __init__(self, at: int, error: type[BaseException], skip: frozenset[str]) -> None:
        self.happened = False
        self.where = ""
        self._at = at
        self._error = error
        self._skip = skip
        self.count = 0

    def on_call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """The trace function: follows code of the client alone."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_FOLDER):
            return None
        if code.co_name in self._skip:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        before = ("", -1)

        def on_opcode(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
            """Raise after an instruction that checks; the exception is one of the next instruction
            for Python, so that both must have the same handler."""
            nonlocal before
            if event == "opcode":
                (name, handler), before = before, _operations(code)[frame.f_lasti]
                if name in _CHECKS and handler == before[1]:
                    self._point(frame)
            return on_opcode

        return on_opcode

    def _point(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._at:
            self.happened = True
            self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            raise self._error


@contextmanager
def interrupted(
    at: int, error: type[BaseException] = KeyboardInterrupt, skip: frozenset[str] = frozenset()
) -> Iterator[Interruption]:
    """Raise `error` at the at-th point (from 1 on) of the block, and take it, or what the client
    made of it. skip: names of functions that are not interrupted."""
    interruption = Interruption(at, error, skip)
    before = sys.gettrace()
    sys.settrace(interruption.on_call)
    try:
        yield interruption
    except BaseException:
        if not interruption.happened:
            raise
    finally:
        sys.settrace(before)
