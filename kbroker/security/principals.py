"""Principals: `User:name`, their numbers, and the names that certificates give.

The data plane knows a principal by the number that `Principals` gave it: 0 is nobody's, and none is
used again while the broker runs. One that no connection has for long is forgotten, and has another
when it comes again. All are even; the odd one above is the same principal where a
delegation token said who it is, for tokens make no tokens.

`ssl.principal.mapping.rules` is a list of DEFAULT (the distinguished name itself) and
`RULE:PATTERN/REPLACEMENT/[L|U]`: where the pattern matches the whole name, its groups $1, $2 ... go
into the replacement, which L puts in lower case, U in upper. The first rule that matches counts.
The syntax is RE2's, since the names are what clients bring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kbroker.config.types import ConfigError
from kbroker.linear_regex import LinearRegex, compile_linear

USER: Final = "User"
ANYBODY: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
_KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)


class Principal(NamedTuple):
    """Who asks; without authentication it is NOBODY."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


NOBODY: Final = Principal(USER, "ANONYMOUS")


class Principals:
    """Numbers of principals. The control thread owns it."""

    def __init__(self) -> None:
        self._known = {0: NOBODY}
        self._places = {NOBODY: 0}
        self._given = 1
        self._kept = {0}
        self._idle: set[int] = set()

    def __len__(self) -> int:
        return len(self._known)

    def number(self, principal: Principal, *, by_token: bool = False, keep: bool = False) -> int:
        """The number of a principal, a new one where it has none; `keep`: for ever, since the data
        plane has settings for it."""
        place = self._places.setdefault(principal, self._given)
        if place == self._given:
            self._known[place] = principal
            self._given += 1
        self._idle.discard(place)
        if keep:
            self._kept.add(place)
        return 2 * place + by_token

    def principal(self, number: int) -> Principal:
        """Who has a number."""
        return self._known[number // 2]

    def forget(self, idle_of: Callable[[list[int]], list[int]]) -> None:
        """Forget who was idle at the look before, has not been asked for since and is idle now;
        `idle_of` says which of some numbers nobody has."""
        places = [2 * place for place in self._known.keys() - self._kept]
        idle = {number // 2 for number in idle_of(places)}
        for place in idle & self._idle:
            del self._places[self._known.pop(place)]
        self._idle = idle - self._idle

    def by_token(self, number: int) -> bool:
        """Whether a delegation token said so."""
        return number % 2 == 1


class Rule(NamedTuple):
    """One rule; without a pattern it is DEFAULT."""

    pattern: LinearRegex | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """What the rule makes of a distinguished name, None where it does not match."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        made = _filled(self.replacement, found, self.pattern.groups)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


def _filled(replacement: str, found: Any, groups: int) -> str:
    """A reference to a group that the pattern does not have is plain text."""

    def put(reference: re.Match[str]) -> str:
        if reference[1] is not None:
            return reference[1]  # a character behind a backslash
        digits, rest = reference[2], ""
        while digits and int(digits) > groups:
            digits, rest = digits[:-1], digits[-1] + rest
        return reference[0] if not digits else (found[int(digits)] or "") + rest

    return re.sub(r"\\(.)|\$([0-9]+)", put, replacement)


def parse_rules(text: str) -> list[Rule]:
    """The rules of the setting. Raises ConfigError."""
    rules, at = [], 0
    while text[at:].strip():
        found = _RULE.match(text, at)
        if found is None or found.end() == at:
            raise ConfigError(f"{_KEY}: no rule: {text[at:].strip()}")
        at = found.end()
        if found["default"]:
            rules.append(Rule(None))
            continue
        try:
            pattern = compile_linear(found["pattern"], captures=True)
        except ValueError as error:
            text = f"{_KEY}: {found['pattern']}: {error} (the syntax is RE2's)"
            raise ConfigError(text) from None
        rules.append(Rule(pattern, found["replacement"], found["case"]))
    return rules or [Rule(None)]


def mapped(rules: Iterable[Rule], name: str) -> str | None:
    """The user that a certificate's distinguished name stands for; None where no rule matches."""
    return next((user for rule in rules if (user := rule.apply(name)) is not None), None)


def parse_principal(text: str) -> str:
    """`Type:name`, checked. Raises ConfigError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ConfigError(f"{text!r} is no principal: write TYPE:NAME, as in User:alice")
    return text


def parse_super_users(text: str) -> frozenset[str]:
    """super.users: principals with semicolons between them. Raises ConfigError."""
    return frozenset(parse_principal(one.strip()) for one in text.split(";") if one.strip())
