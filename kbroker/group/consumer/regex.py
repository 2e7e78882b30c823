"""Subscriptions by regular expression, resolved here and not by the client (KIP-848).

The syntax is RE2's, which finds in time linear in the text whatever the expression: a client
cannot stall the broker with one. Apache Kafka uses re2j, the same in Java. An expression names the
topics that it matches as a whole. `\\C`, any byte, is refused as there: names are texts, not bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.linear_regex import LinearRegex, compile_linear

_log = logging.getLogger(__name__)

_ESCAPE: Final = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|.)", re.DOTALL)
"""An escaped character, or a quotation, in which there is no escape but that of its end."""
_ANY_BYTE: Final = r"\C"

# In characters times instructions of the expression's program: for each RE2 takes 10 ns where it is
# slowest, and much less as a rule.
_COST_AT_ONCE: Final = 400_000
_COST_OF_CALL: Final = 400


def check_regex(pattern: str) -> None:
    """Refuse what is no regular expression with INVALID_REGULAR_EXPRESSION."""
    _compile(pattern)


class Resolution:
    """Which of `names` each expression names, of those that may be seen; found bit by bit.

    An expression that was stored and is none names nothing.
    """

    def __init__(
        self,
        patterns: Iterable[str],
        names: Collection[str],
        sees: Callable[[str], bool] | None = None,
    ) -> None:
        self.found: dict[str, set[str]] = {pattern: set() for pattern in patterns}
        self._names = names
        self._sees = sees
        self._seen: dict[str, bool] = {}
        self._left = self._matches()

    def go_on(self) -> bool:
        """Match for some milliseconds; True once all is found."""
        cost = 0
        for one in self._left:
            cost += one
            if cost >= _COST_AT_ONCE:
                return False
        return True

    def _matches(self) -> Iterator[int]:
        """Match one name after the other; what each may have cost at most."""
        for pattern, found in self.found.items():
            try:
                compiled = _compile(pattern)
            except ClientError as error:
                _log.error("%s", error)
                continue
            for name in self._names:
                if compiled.fullmatch(name) and self._is_seen(name):
                    found.add(name)
                yield _COST_OF_CALL + compiled.program_size * len(name)

    def _is_seen(self, name: str) -> bool:
        if self._sees is not None and name not in self._seen:
            self._seen[name] = self._sees(name)
        return self._seen.get(name, True)


def full_match(pattern: str) -> Callable[[str], object]:
    """What tells whether the expression matches a text as a whole. Refuses what is none with
    INVALID_REGULAR_EXPRESSION."""
    matches: Callable[[str], object] = _compile(pattern).fullmatch
    return matches


def _compile(pattern: str) -> LinearRegex:
    if _ANY_BYTE in _ESCAPE.findall(pattern):
        raise _refused(pattern, f"invalid escape sequence: `{_ANY_BYTE}`")
    try:
        return compile_linear(pattern)
    except ValueError as error:
        raise _refused(pattern, error) from None


def _refused(pattern: str, reason: object) -> ClientError:
    return ClientError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
    )
