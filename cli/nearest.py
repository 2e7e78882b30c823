"""The name that was probably meant. Free of click."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that is most like the word, None where none is."""
    import difflib  # only for who misspelt

    return next(iter(difflib.get_close_matches(word, list(names), 1)), None)


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing."""
    near = nearest(word, names)
    return f"; did you mean {near!r}?" if near else ""
