"""Parser of `sasl.jaas.config`: one login module with its options.

    org.apache.kafka...PlainLoginModule required username="alice" password='a secret';

The tokens are those of java.io.StreamTokenizer as Kafka's JaasConfig sets it up, so that a text has
the same meaning here and in Java. tests/differential/test_jaas.py compares the two.

- Quotes are single or double. Within them `\\t`, `\\n`, `\\"` and octal `\\101` are escapes. A
  string ends at the end of its line, whether its quote is there or not.
- A word begins with a letter, `_`, `$` or any character from U+00A0; digits, `.` and `-` may
  follow. What begins with a digit, `.` or `-` is a number, which neither a name nor a value can be.
- Comments are `/* ... */`, and anything from another `/` to the end of its line (to that of
  the next line where the `/` is the last character, as in Java).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""(?P<space>[\0- ]+|/\*(?s:.*?)(?:\*/|\Z)|/[\n\r]?[^\n\r]*)
      | (?P<number>-?[0-9.](?:[0-9.])*)
      | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z_$\u00a0-\U0010ffff0-9.\-]*)
      | (?P<text>"(?:\\(?s:.)|[^"\\\n\r])*"?|'(?:\\(?s:.)|[^'\\\n\r])*'?)
      | (?P<other>(?s:.))
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|(?s:.))")
_ESCAPED: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")


class _Token(NamedTuple):
    """A token: where it begins, its characters, and what they say as a name or a value. The last is
    None for numbers and punctuation."""

    position: int
    characters: str
    text: str | None


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the login module and its options. Raise ValueError for anything but one login module.

    Errors say where, and quote nothing: next to a quote that is missing stand secrets.
    """
    tokens = _tokens(text)
    first = next(tokens, None)
    if first is None:
        raise _error("it names no login module")
    module, options = _entry(first, tokens)
    second = next(tokens, None)
    if second is not None:
        raise _error(f"it has to end with its first ;, and goes on {_at(second)}")
    return module, options


def _entry(first: _Token, tokens: Iterator[_Token]) -> tuple[str, dict[str, str]]:
    if not first.text:
        raise _error("it does not begin with the name of a login module")
    flag = next(tokens, None)
    if flag is None or flag.text is None or flag.text.upper() not in _FLAGS:
        raise _error("required, or another control flag, has to follow the login module")
    options: dict[str, str] = {}
    for token in tokens:
        if token.characters == ";":
            return first.text, options
        if token.text is None:
            raise _error(f"the name of an option is expected {_at(token)}; {_QUOTING}")
        sign, value = next(tokens, None), next(tokens, None)
        if sign is None or sign.characters != "=" or value is None or value.text is None:
            raise _error(f"the option {_at(token)} has no value; {_QUOTING}")
        options[token.text] = value.text
    raise _error("there is no ; at its end")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while match := _TOKEN.match(text, position):
        kind, characters = match.lastgroup, match[0]
        if kind == "word":
            yield _Token(position, characters, characters)
        elif kind == "text":
            yield _Token(position, characters, _unquoted(characters))
        elif kind == "number":  # no more than one point; the rest is the next token
            whole, point, rest = characters.partition(".")
            characters = whole + point + rest.partition(".")[0]
            yield _Token(position, characters, None)
        elif kind == "other":
            yield _Token(position, characters, None)
        position += len(characters)


def _unquoted(characters: str) -> str:
    """Return what a string in quotes, of which the last may be missing, says."""
    body = characters[1:]
    return _ESCAPE.sub(_escaped, body[:-1] if _is_closed(characters) else body)


def _is_closed(characters: str) -> bool:
    if len(characters) < 2 or characters[-1] != characters[0]:
        return False
    before = characters[1:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0


def _escaped(match: re.Match[str]) -> str:
    said = match[1]
    return chr(int(said, 8)) if said[0] in "01234567" else _ESCAPED.get(said, said)


def _at(token: _Token) -> str:
    return f"at character {token.position + 1}"


_QUOTING: Final = (
    "values that have more than letters and digits, or begin with a digit, need quotes"
)


def _error(what: str) -> ValueError:
    return ValueError(
        f'sasl.jaas.config: {what} (MODULE required username="..." password="...";)'
    )
