"""Options as Kafka's scripts take them, which is how jopt-simple reads a command line.

click and argparse read otherwise: here names have two dashes or one and are never abbreviated, a
value that must be there is the next word whatever it looks like, an option may be given again
unless one value is asked for, words that belong to no option are passed over, values are read when
they are used, and --help goes to standard error and ends with status 1, as every mistake does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = [
    "Given",
    "Option",
    "OptionError",
    "UsageError",
    "check_help",
    "check_invalid",
    "check_required",
    "flag",
    "help_text",
    "key_values",
    "number",
    "text",
]

_HELP_WIDTH = 78


class OptionError(Exception):
    """A command line that cannot be read, or a value that is none."""


class UsageError(Exception):
    """A mistake that is told with the help behind it; no text: only the help."""


class Option(NamedTuple):
    """An option. value: what --help calls it, empty for a flag; bits: 0 for text; needs: stands
    only beside one of these; optional: may stand without its value; default: of its value."""

    name: str
    help: str
    value: str = ""
    bits: int = 0
    needs: tuple[str, ...] = ()
    optional: bool = False
    default: str | None = None


def flag(name: str, help_text: str, *needs: str) -> Option:
    """An option without a value."""
    return Option(name, help_text, needs=needs)


def text(
    name: str,
    value: str,
    help_text: str,
    *needs: str,
    default: str | None = None,
    optional: bool = False,
) -> Option:
    """An option with a text."""
    return Option(name, help_text, value, needs=needs, optional=optional, default=default)


def number(
    name: str, value: str, help_text: str, *, bits: int = 32, default: int | None = None
) -> Option:
    """An option with a whole number of so many bits."""
    told = None if default is None else str(default)
    return Option(name, help_text, value, bits, default=told)


class Given:
    """What a command line gives. Raises OptionError for what cannot be read.

    order: the options as they stand, each with its value (None where it has none).
    """

    def __init__(self, table: Iterable[Option], words: Sequence[str]) -> None:
        self.words = list(words)
        self.table = {option.name: option for option in (*table, *_COMMON)}
        self.order: list[tuple[str, str | None]] = []
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--":
                break
            if word.startswith("-") and word != "-":
                self._take(word, left)
        if not self.has("help") and not self.has("version"):
            self._check_needs()

    def _take(self, word: str, left: list[str]) -> None:
        long = word.startswith("--")
        name, equals, value = word[1 + long :].partition("=")
        option = self.table.get(name)
        if option is None:
            raise OptionError(f"{name if long else name[:1]} is not a recognized option")
        if not option.value:
            self.order.append((name, None))
        elif equals:
            self.order.append((name, value))
        elif option.optional:
            follows = bool(left) and (left[0] == "-" or not left[0].startswith("-"))
            self.order.append((name, left.pop(0) if follows else None))
        elif not left:
            raise OptionError(f"Option {name} requires an argument")
        else:
            self.order.append((name, left.pop(0)))

    def _check_needs(self) -> None:
        alone = [
            name
            for name in dict.fromkeys(name for name, _ in self.order)
            if self.table[name].needs and not any(map(self.has, self.table[name].needs))
        ]
        if alone:
            raise OptionError(
                f"Option(s) [{', '.join(alone)}] are unavailable given other options on the"
                " command line"
            )

    def has(self, name: str) -> bool:
        """True where an option was given."""
        return any(name == given for given, _ in self.order)

    def values(self, name: str) -> list[str]:
        """The values of an option that may be given again; its default where it is not given."""
        default = self.table[name].default
        if not self.has(name):
            return [] if default is None else [default]
        return [value for given, value in self.order if given == name and value is not None]

    def value(self, name: str) -> str | None:
        """The value of an option; OptionError where there are several."""
        values = self.values(name)
        if len(values) > 1:
            raise OptionError(
                f"Found multiple arguments for option {name}, but you asked for only one"
            )
        return values[0] if values else None

    def integer(self, name: str) -> int | None:
        """The number of an option; OptionError where it is none."""
        told = self.value(name)
        if told is None:
            return None
        bound = 1 << (self.table[name].bits - 1)
        if re.fullmatch(r"[+-]?[0-9]{1,19}", told, re.ASCII) and -bound <= int(told) < bound:
            return int(told)
        raise OptionError(f"Cannot parse argument '{told}' of option {name}")

    def needed(self, name: str) -> str:
        """The value of an option that was checked to be there."""
        told = self.value(name)
        assert told is not None
        return told


_COMMON = (
    flag("help", "This text."),
    flag("version", "The version of Apache Kafka whose flags these are."),
)


def check_help(given: Given, what: str) -> bool:
    """True for --version; raises UsageError for --help and for an empty command line."""
    if not given.words or given.has("help"):
        raise UsageError(what)
    return given.has("version")


def check_required(given: Given, *names: str) -> None:
    """UsageError for the first of these that is not there."""
    for name in names:
        if not given.has(name):
            raise UsageError(f'Missing required argument "[{name}]"')


def check_invalid(given: Given, used: str, others: Iterable[str]) -> None:
    """UsageError where an option stands beside one of the others."""
    for other in others if given.has(used) else ():
        if given.has(other):
            raise UsageError(f'Option "[{used}]" can\'t be used with option "[{other}]"')


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE words; a key alone has an empty value."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def help_text(table: Iterable[Option]) -> str:
    """The options with what they mean, in order of their names."""
    import textwrap

    lines = []
    for option in sorted((*table, *_COMMON)):
        value = f" [{option.value}]" if option.optional else f" <{option.value}>"
        lines.append(f"--{option.name}{value if option.value else ''}")
        told = option.help + (f" Default: {option.default}." if option.default else "")
        lines += textwrap.wrap(
            told, _HELP_WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines)
