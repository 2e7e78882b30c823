"""Text of somebody else's making, as it may stand in one line of a log or on a terminal."""

from __future__ import annotations


def escaped(text: str) -> str:
    """What cannot be printed (line ends, what steers a terminal) as Python escapes it."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def one_line(text: str, most_chars: int) -> str:
    """What cannot be printed as Python escapes it; the end of a long text cut off."""
    if len(text) > most_chars:
        text = f"{text[:most_chars]}... ({len(text)} characters)"
    return escaped(text)
