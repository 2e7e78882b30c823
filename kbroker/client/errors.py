"""What can go wrong between this client and a broker, each told in one line.

The text of every error is meant for a person at a terminal: it names the broker or the topic and,
where there is something to do about it, says what.
"""

from __future__ import annotations

from kbroker.errors import ErrorCode

__all__ = [
    "BrokerError",
    "CallError",
    "ConnectError",
    "CorruptDataError",
    "RequestTimeoutError",
    "UnsupportedApiError",
    "check",
    "error_name",
]

# Where brokers say what helps nobody.
_HELP: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "there is none here; `kbroker topic list` shows those there are"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "there is none here; `kbroker group list` shows those there are"
    ),
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "its members subscribe to the topic; stop them first",
}

_BY_CODE = {int(code): code for code in ErrorCode}


class CallError(Exception):
    """Base of all errors of the client."""

    retriable = False


class ConnectError(CallError):
    """No connection to a broker, or one that broke."""

    retriable = True


class RequestTimeoutError(CallError):
    """A broker did not answer in time."""

    retriable = True


class UnsupportedApiError(CallError):
    """The broker and this client share no version of an API."""


class CorruptDataError(CallError):
    """Bytes from a broker or a file that are not what the format says."""


class BrokerError(CallError):
    """An error code in an answer.

    code: Kafka's error code; name: its name as Kafka spells it, for example MESSAGE_TOO_LARGE.
    """

    def __init__(self, code: int, subject: str = "", message: str | None = None) -> None:
        self.code = code
        self.name, self.retriable, own = _lookup(code)
        said = _HELP.get(code) or message or own
        text = ": ".join(part for part in (subject, said) if part)
        super().__init__(f"{text} ({self.name})" if text else self.name)


def _lookup(code: int) -> tuple[str, bool, str]:
    """The name of an error code, whether a second try may help, and what it means."""
    known = _BY_CODE.get(code)
    if known is None:
        return f"error code {code}", False, ""
    return known.name, known.retriable, known.message


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return _lookup(code)[0]


def check(code: int, subject: str = "", message: str | None = None) -> None:
    """Raises BrokerError unless the code is NONE. subject: what was asked for, such as a topic."""
    if code != 0:
        raise BrokerError(int(code), subject, message)
