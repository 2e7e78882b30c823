"""What a JVM writes: names and texts of exceptions, floating-point numbers; and what it reads:
points in time, durations, expressions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.client.errors import KafkaError

__all__ = [
    "caused_text",
    "double_text",
    "duration_ms",
    "error_text",
    "float_text",
    "full_error_text",
    "instant_ms",
    "split",
    "topic_pattern",
]

_ERRORS = "org.apache.kafka.common.errors."

# Exceptions whose names do not follow from those of their codes, and the texts, where scripts may
# look for them, of answers that carry a code alone.
_KNOWN = {
    3: ("UnknownTopicOrPartitionException", "This server does not host this topic-partition."),
    15: ("CoordinatorNotAvailableException", "The coordinator is not available."),
    17: ("InvalidTopicException", ""),
    24: ("InvalidGroupIdException", "The group id is invalid."),
    25: ("UnknownMemberIdException", "The coordinator is not aware of this member."),
    29: ("TopicAuthorizationException", "Topic authorization failed."),
    30: ("GroupAuthorizationException", "Group authorization failed."),
    31: ("ClusterAuthorizationException", "Cluster authorization failed."),
    36: ("TopicExistsException", ""),
    40: ("InvalidConfigurationException", ""),
    58: ("SaslAuthenticationException", ""),
    68: ("GroupNotEmptyException", "The group is not empty."),
    69: ("GroupIdNotFoundException", "The group id does not exist."),
    86: (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed"
        " to it.",
    ),
    100: ("UnknownTopicIdException", "This server does not host this topic ID."),
}


def error_text(error: KafkaError) -> str:
    """The message of an error."""
    from kbroker.client.errors import BrokerError

    if not isinstance(error, BrokerError):
        return str(error)
    known = _KNOWN.get(error.code)
    return error.message or (known[1] if known else "") or str(error)


def full_error_text(error: KafkaError) -> str:
    """An error as Throwable.toString has it: name of its class, message."""
    from kbroker.client.errors import BrokerError, RequestTimeoutError

    if isinstance(error, BrokerError):
        words = error.name.removesuffix("_EXCEPTION").split("_")
        name = "".join(word.capitalize() for word in words) + "Exception"
        name = _KNOWN[error.code][0] if error.code in _KNOWN else name
    else:
        timeout = isinstance(error, RequestTimeoutError)
        name = "TimeoutException" if timeout else type(error).__name__
    return f"{_ERRORS}{name}: {error_text(error)}"


def caused_text(error: KafkaError) -> str:
    """The same of an exception that wraps it, as futures do."""
    return f"java.util.concurrent.ExecutionException: {full_error_text(error)}"


def double_text(value: float) -> str:
    """Double.toString: the shortest digits that are this number, with an exponent from 1.0E7 on."""
    return _java_digits(value, repr(abs(value)))


def float_text(value: float) -> str:
    """Float.toString of a number of 32 bits."""
    import struct

    for digits in range(1, 10):
        short = f"{abs(value):.{digits}g}"
        if struct.pack(">f", float(short)) == struct.pack(">f", abs(value)):
            break
    return _java_digits(value, short)


def _java_digits(value: float, short: str) -> str:
    if value != value:  # noqa: PLR0124 - not a number
        return "NaN"
    sign = "-" if str(value).startswith("-") else ""
    if short == "inf":
        return f"{sign}Infinity"
    mantissa, _, exponent = short.partition("e")
    whole, _, rest = mantissa.partition(".")
    digits = (whole + rest).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    leading = len(whole + rest) - len(digits)
    point = len(whole) - leading + int(exponent or 0)  # the number is 0.DIGITS * 10 ** point
    digits = digits.rstrip("0") or "0"
    if -2 <= point <= 7:  # 0.001 to below 10,000,000
        padded = "0" * max(1 - point, 0) + digits
        at = max(point, 1)
        padded = padded.ljust(at, "0")
        return f"{sign}{padded[:at]}.{padded[at:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def split(pattern: str, value: str, *, keep_empty: bool = False) -> list[str]:
    """String.split: without the empty parts at the end; a text without a match is one part."""
    parts = re.split(pattern, value)
    while not keep_empty and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def topic_pattern(told: str) -> re.Pattern[str]:
    """The expression of a --topic: commas stand for `|`, blanks and quotes around do not count."""
    cleaned = told.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(cleaned)
    except re.error:
        raise ValueError(f"{cleaned} is an invalid regex.") from None


def instant_ms(told: str) -> int:
    """A point in time of the form 2024-03-01T12:00:00.000, in UTC or with an offset (+01:00).

    Raises ValueError as Java's SimpleDateFormat words it.
    """
    from datetime import UTC, datetime, timedelta, timezone

    if "T" not in told:
        raise ValueError("Error parsing timestamp. It does not contain a 'T' according to ISO8601"
                         " format")  # fmt: skip
    found = re.fullmatch(
        r"(\d+)-(\d+)-(\d+)T(\d+):(\d+):(\d+)\.(\d+)(?:Z|([+-])(\d\d):?(\d\d)?)?", told, re.ASCII
    )
    zoned = told if re.search("[-+Z]", told.split("T")[1]) else told + "Z"
    try:
        if found is None:
            raise ValueError(told)
        year, month, day, hour, minute, second, ms = map(int, found.groups()[:7])
        sign, hours, minutes = found.groups()[7:]
        shift = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        zone = timezone(-shift if sign == "-" else shift)
        at = datetime(year, month, day, hour, minute, second, ms * 1000, zone)
    except ValueError:
        raise ValueError(f'Unparseable date: "{zoned}"') from None
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def duration_ms(told: str) -> int:
    """A duration as java.time reads it: PnDTnHnMn.nS, with signs where wanted."""
    found = re.fullmatch(
        r"([-+]?)P(?:([-+]?[0-9]+)D)?(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?"
        r"(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
        told,
        re.IGNORECASE,
    )
    if found is None or told.upper().endswith(("P", "T")):
        raise ValueError("Text cannot be parsed to a Duration")
    sign, days, _, hours, minutes, seconds, part = found.groups()
    whole = int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes or 0) * 60
    ns = (whole + int(seconds or 0)) * 10**9
    fraction = int((part or "").ljust(9, "0"))
    ns += -fraction if (seconds or "").startswith("-") else fraction
    return (-ns if sign == "-" else ns) // 10**6
