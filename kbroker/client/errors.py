"""What can go wrong between this client and a broker, each told in one line.

The text of every error is meant for a person at a terminal: it names the broker or the topic and,
where there is something to do about it, says what.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

__all__ = [
    "BrokerError",
    "ClientError",
    "ConnectError",
    "CorruptDataError",
    "RequestTimeoutError",
    "UnsupportedApiError",
    "check",
    "error_name",
]

_UNKNOWN_TOPIC_OR_PARTITION = 3  # brokers say it in words that help nobody

# What a user can do about the errors that a user meets; the others are told by their name alone.
_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "no such topic or partition on this broker",
    "TOPIC_ALREADY_EXISTS": "the topic exists already",
    "INVALID_TOPIC_EXCEPTION": "not a legal topic name (ASCII letters, digits, . _ -)",
    "OFFSET_OUT_OF_RANGE": "the offset is not in the log",
    "MESSAGE_TOO_LARGE": "the batch is larger than the topic's max.message.bytes",
    "RECORD_LIST_TOO_LARGE": "the batch is larger than a segment of the topic",
    "INVALID_REPLICATION_FACTOR": "more replicas asked for than there are brokers",
    "TOPIC_DELETION_DISABLED": "the broker runs with delete.topic.enable=false",
    "INVALID_RECORD": "the broker refused a record; a compacted topic wants a key in each",
    "KAFKA_STORAGE_ERROR": "the broker cannot write to its disk (full or failing); see its log",
    "NOT_ENOUGH_REPLICAS": "fewer replicas in sync than min.insync.replicas",
    "TOPIC_AUTHORIZATION_FAILED": "not allowed on this topic",
    "CLUSTER_AUTHORIZATION_FAILED": "not allowed on this cluster",
}


class ClientError(Exception):
    """Base of all errors of the client."""

    retriable = False


class ConnectError(ClientError):
    """No connection to a broker, or one that broke."""

    retriable = True


class RequestTimeoutError(ClientError):
    """A broker did not answer in time."""

    retriable = True


class UnsupportedApiError(ClientError):
    """The broker and this client share no version of an API."""


class CorruptDataError(ClientError):
    """Bytes from a broker or a file that are not what the format says."""


class BrokerError(ClientError):
    """An error code in an answer.

    code: Kafka's error code; name: its name as Kafka spells it, for example MESSAGE_TOO_LARGE.
    """

    def __init__(self, code: int, subject: str = "", message: str | None = None) -> None:
        self.code = code
        self.name, self.retriable = _lookup(code)
        hint = _HINTS.get(self.name, "")
        said = hint if code == _UNKNOWN_TOPIC_OR_PARTITION else message or hint
        text = ": ".join(part for part in (subject, said) if part)
        super().__init__(f"{text} ({self.name})" if text else self.name)


def _lookup(code: int) -> tuple[str, bool]:
    """The name of an error code and whether a second try may help."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"error code {code}", False
    return known.name.upper(), known.retriable


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return _lookup(code)[0]


def check(code: int, subject: str = "", message: str | None = None) -> None:
    """Raises BrokerError unless the code is NONE. subject: what was asked for, such as a topic."""
    if code != 0:
        raise BrokerError(int(code), subject, message)
