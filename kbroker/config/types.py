"""Types, values and valid ranges of config keys.

A value is kept as the text a user wrote and parsed when it is asked for; the parsed forms are
bool, int, float, str, list[str] and, for a key without a value, None. Errors are raised as
ConfigError with one line that names the key, the value and what would be valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from kbroker.errors import OperatorError

Value = bool | int | float | str | list[str] | None


class ConfigError(OperatorError):
    """A key or value that the user must correct; the text is one line, of a broker's static
    settings one for each mistake."""


class UnreadableError(Exception):
    """A value that is told already to be a mistake: nothing follows from it."""


class Type(IntEnum):
    """Type of a key; the number is the one that DescribeConfigs answers (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN: Final = Type.BOOLEAN
STRING: Final = Type.STRING
INT: Final = Type.INT
SHORT: Final = Type.SHORT
LONG: Final = Type.LONG
DOUBLE: Final = Type.DOUBLE
LIST: Final = Type.LIST
CLASS: Final = Type.CLASS
PASSWORD: Final = Type.PASSWORD

HIGH: Final = "high"
MEDIUM: Final = "medium"
LOW: Final = "low"

READ_ONLY: Final = "read-only"
PER_BROKER: Final = "per-broker"
CLUSTER_WIDE: Final = "cluster-wide"

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1

_INTEGER_BITS: Final = {SHORT: 16, INT: 32, LONG: 64}
_LONG_DIGITS_MAX: Final = 19


class Check(NamedTuple):
    """A rule on typed values: its text for the user, and a test that raises ConfigError. Of a list
    whose rule is `distinct` each element counts once, as in Apache Kafka since 4.2 (KIP-1161)."""

    text: str
    ensure: Callable[[str, Value], None]
    distinct: bool = False


class ConfigKey(NamedTuple):
    """Definition of one key. `effective` is false where the key is known to Apache Kafka but can
    mean nothing to one node without a JVM; `internal` keys are not shown by DescribeConfigs."""

    name: str
    type: Type
    default: str | None
    check: Check | None
    importance: str
    update_mode: str
    doc: str
    effective: bool = True
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret, which is never shown."""
        return self.type is PASSWORD


def invalid(name: str, value: object, wrong: str) -> ConfigError:
    """The error that Apache Kafka words for a bad value."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {wrong}")


def at_least(low: float) -> Check:
    """Numbers from `low` on."""

    def ensure(name: str, value: Value) -> None:
        if isinstance(value, int | float) and value < low:
            raise invalid(name, value, f"Value must be at least {low}")

    return Check(f"[{low},...]", ensure)


def between(low: float, high: float) -> Check:
    """Numbers from `low` to `high`, both included."""

    def ensure(name: str, value: Value) -> None:
        if isinstance(value, int | float) and value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if isinstance(value, int | float) and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return Check(f"[{low},...,{high}]", ensure)


def gzip_level() -> Check:
    """Levels 1 to 9, or -1 for the codec's own default."""

    def ensure(name: str, value: Value) -> None:
        if not isinstance(value, int) or not (value == -1 or 1 <= value <= 9):
            raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")

    return Check("[1,...,9] or -1", ensure)


def one_of(*words: str) -> Check:
    """One of the given words."""

    def ensure(name: str, value: Value) -> None:
        if value not in words:
            raise invalid(name, value, f"String must be one of: {', '.join(words)}")

    return Check(f"[{', '.join(words)}]", ensure)


def one_of_any_case(*words: str) -> Check:
    """One of the given words, in upper or lower case."""
    lowered = {word.lower() for word in words}

    def ensure(name: str, value: Value) -> None:
        if str(value).lower() not in lowered:
            wrong = f"String must be one of (case insensitive): {', '.join(words)}"
            raise invalid(name, value, wrong)

    return Check(f"(case insensitive) [{', '.join(words)}]", ensure)


def list_of(*words: str, empty: bool = True) -> Check:
    """A list, of the given words where there are any, whose elements count once."""
    shown = f"[{', '.join(words)}]" if words else ""

    def ensure(name: str, value: Value) -> None:
        entries = value if isinstance(value, list) else []
        if not entries and not empty:
            valid = shown or "any non-empty value"
            raise ConfigError(
                f"Configuration '{name}' must not be empty. Valid values include: {valid}"
            )
        for entry in entries:
            if not entry:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if words and entry not in words:
                raise invalid(name, entry, f"String must be one of: {', '.join(words)}")

    return Check(shown, ensure, distinct=True)


def non_empty() -> Check:
    """A text with at least one character."""

    def ensure(name: str, value: Value) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty")

    return Check("non-empty string", ensure)


_THROTTLED: Final = r"([0-9]+:[0-9]+)?"


def throttled_replicas() -> Check:
    """A list of partition:broker pairs, or the single entry *."""

    def ensure(name: str, value: Value) -> None:
        entries = [entry.strip() for entry in value] if isinstance(value, list) else []
        if entries != ["*"] and not all(re.fullmatch(_THROTTLED, entry) for entry in entries):
            wrong = "must be the literal '*' or a list of pairs partition:broker"
            raise invalid(name, format_value(value), wrong)

    return Check("[partitionId]:[brokerId],[partitionId]:[brokerId],...", ensure)


_DURATION: Final = (
    r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?"
)


def offset_reset() -> Check:
    """latest, earliest or by_duration: with an ISO 8601 duration (KIP-1106)."""

    def ensure(name: str, value: Value) -> None:
        if value not in ("latest", "earliest") and not re.fullmatch(_DURATION, str(value)):
            raise invalid(name, value, "must be latest, earliest or by_duration:PnDTnHnMn.nS")

    return Check("[latest, earliest, by_duration:PnDTnHnMn.nS]", ensure)


def parse_value(key: ConfigKey, text: str | None) -> Value:
    """The typed form of `text`, checked. Raises ConfigError."""
    value = parse_type(key.name, key.type, text)
    if isinstance(value, list) and key.check is not None and key.check.distinct:
        value = list(dict.fromkeys(value))
    if value is not None and key.check is not None:
        key.check.ensure(key.name, value)
    return value


def parse_type(name: str, kind: Type, text: str | None) -> Value:
    """The typed form of `text` without its range check. Raises ConfigError."""
    if text is None:
        return None
    trimmed = text.strip()
    if kind is BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind in _INTEGER_BITS:
        return _parse_integer(name, kind, trimmed)
    if kind is DOUBLE:
        try:
            return float(trimmed)
        except ValueError:
            raise invalid(name, text, "Not a number of type DOUBLE") from None
    if kind is LIST:
        return [entry.strip() for entry in trimmed.split(",")] if trimmed else []
    return trimmed


def _parse_integer(name: str, kind: Type, text: str) -> int:
    bound = 1 << (_INTEGER_BITS[kind] - 1)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits.isascii() and digits.isdigit():
        digits = digits.lstrip("0") or "0"
        if len(digits) <= _LONG_DIGITS_MAX:  # int() takes time and offence at thousands
            value = int(digits) if text[0] != "-" else -int(digits)
            if -bound <= value < bound:
                return value
    raise invalid(name, text, f"Not a number of type {kind.name}")


def format_value(value: Value) -> str | None:
    """The text that Apache Kafka shows for a typed value; None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_double(value)
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def _format_double(value: float) -> str:
    """Java's Double.toString: plain from 1e-3 below 1e7, else with E and no plus sign."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        text = repr(value)
        return text if "." in text else f"{text}.0"
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        mantissa, _, exponent = f"{value:.17e}".partition("e")
        mantissa = repr(value / 10.0 ** int(exponent))
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
