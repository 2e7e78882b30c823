"""The lines of the broker's log."""

from __future__ import annotations

import logging
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MESSAGE_MAX_CHARS: Final = 2_000


class OneLine(logging.Formatter):
    """Every message is one line and no longer than a reader bears: much of what is told quotes
    clients, who else could write lines of their own, or fill the disk. Tracebacks follow it."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line of a record."""
        record.message = one_line(record.message)
        return super().formatMessage(record)


def one_line(text: str) -> str:
    """What cannot be printed as Python escapes it; the end of a long text cut off."""
    if len(text) > _MESSAGE_MAX_CHARS:
        text = f"{text[:_MESSAGE_MAX_CHARS]}... ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
