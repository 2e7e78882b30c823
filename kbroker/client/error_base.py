"""The tree of the client's errors: its root, what the client finds by itself, and BrokerError.

Imported by `errors`, which has one class more for each code of Kafka; everybody imports that.

The text is meant for a person at a terminal: it names the broker or the topic and, where there is
something to do about it, says what.
"""

from __future__ import annotations

from typing import Any

from kbroker.errors import ErrorCode

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

# Who meets one of these cannot go on: the client has to be made anew, or told something else.
_FATAL = frozenset({
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.ILLEGAL_SASL_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.UNSUPPORTED_VERSION,
})  # fmt: skip

# What the client knows of leaders is behind: to be asked for again before the next try.
_STALE = frozenset({
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
})  # fmt: skip

_BY_CODE = {int(code): code for code in ErrorCode}
_CLASSES: dict[int, type[BrokerError]] = {}


def _state_of(error: BaseException) -> dict[str, Any]:
    """Return what pickle keeps of an exception beside the arguments that make it: all attributes
    but the future of records, which belongs to its producer."""
    return {name: value for name, value in vars(error).items() if name != "delivery"}


class KafkaError(Exception):
    """Base of all errors of the client.

    code: Kafka's error code, None where the client found the error. retriable: the same may
    succeed later. fatal: this producer, consumer or admin cannot go on. stale_metadata: metadata
    has to be asked for again before a retry.
    """

    code: int | None = None
    retriable: bool = False
    fatal: bool = False
    stale_metadata: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, _state_of(self)


class ConnectError(KafkaError):
    """No connection to a broker, or one that broke."""

    retriable = True
    stale_metadata = True


class RequestTimeoutError(KafkaError):
    """A broker did not answer in time, or a call was not done within its limit."""

    retriable = True


class UnsupportedApiError(KafkaError):
    """The broker and this client share no version of an API."""


class CorruptDataError(KafkaError):
    """Bytes from a broker or a file that are not what the format says."""


class ConfigError(KafkaError, ValueError):
    """A setting that the user must correct."""


class AuthenticationError(KafkaError):
    """The broker did not accept who we are, or we did not accept who it is."""

    fatal = True


class AuthorizationError(KafkaError):
    """The user may not do this."""


class TlsError(ConnectError):
    """The TLS handshake failed, or the broker's certificate is not one to be trusted."""

    retriable = False


class ClosedError(KafkaError, RuntimeError):
    """The client was closed."""


class ForkError(KafkaError, RuntimeError):
    """A client was used in a child process after fork(); make a new one there."""

    fatal = True


class SerializationError(KafkaError, ValueError):
    """A serializer failed, a value that is not bytes was given without one, a name is not UTF-8 or
    longer than a string of the protocol, or a number does not fit its field."""


class DeserializationError(KafkaError, ValueError):
    """A deserializer failed for a record that was fetched: that of this topic, partition and
    offset. To pass over it, `seek((error.topic, error.partition), error.offset + 1)`."""

    def __init__(self, text: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.topic, self.partition, self.offset), _state_of(self)


class BufferExhaustedError(KafkaError):
    """`buffer.memory` was full for `max.block.ms`: the cluster takes less than is sent."""

    retriable = True


class RecordTooLargeError(KafkaError, ValueError):
    """A record that is larger than `max.request.size` or `buffer.memory` allows."""


class CommitFailedError(KafkaError):
    """The consumer is no member of its group any more: others may own its partitions by now. Go on
    polling; what was not committed comes again, here or at another member."""


class DeliveryTimeoutError(KafkaError, TimeoutError):
    """`delivery.timeout.ms` passed before a batch was acknowledged; it may have been written."""

    retriable = True


class TransactionTimeoutError(KafkaError, TimeoutError):
    """What a producer asked of its coordinator was not answered for good within `max.block.ms`, or
    the timeout given: it may have been done. To be called again."""

    retriable = True


class PurgedError(KafkaError):
    """purge() gave a record up."""


class UndeliveredError(KafkaError):
    """The producer was closed before a record was acknowledged."""


class SchemaRegistryError(KafkaError):
    """The schema registry refused or cannot be reached, or a value carries no schema's id."""


class NoOffsetError(KafkaError):
    """A partition has no committed offset, and `auto.offset.reset` is none."""


class NotAssignedError(KafkaError, KeyError):
    """A call names a partition that is not assigned to the consumer. Also a KeyError."""

    __str__ = KafkaError.__str__  # KeyError's is the repr of the text


class LogTruncationError(NoOffsetError):
    """A new leader lacks records that were read (KIP-320), and `auto.offset.reset` is none.
    offset: where its log goes on differently; -1: before all that it knows of."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.offset), _state_of(self)


class WakeupError(KafkaError):
    """wakeup() was called while the consumer waited, or before it waits next."""

    retriable = True


class ConcurrentUseError(KafkaError):
    """A consumer was used by two threads at once; only wakeup() may be called from another."""


class BrokerError(KafkaError):
    """An error code in an answer.

    BrokerError(3, ...) gives an object of that code's own class. subject: what was asked for, such
    as a topic. name: Kafka's name of the code, for example MESSAGE_TOO_LARGE.
    """

    code: int
    name: str

    def __new__(cls, code: int, subject: str = "", message: str | None = None) -> BrokerError:
        """An object of the code's class; of this one where the code is not known."""
        return super().__new__(_CLASSES.get(code, cls) if cls is BrokerError else cls)

    def __init__(self, code: int, subject: str = "", message: str | None = None) -> None:
        self.code = int(code)
        self.subject = subject
        self.message = message
        known = _BY_CODE.get(code)
        self.name = known.name if known is not None else f"error code {code}"
        said = _HELP.get(code) or message or (known.message if known is not None else "")
        text = ": ".join(part for part in (subject, said) if part)
        super().__init__(f"{text} ({self.name})" if text else self.name)

    def __init_subclass__(cls) -> None:
        """Takes from the table of codes what holds for this one."""
        known = _BY_CODE[cls.code]
        _CLASSES[known] = cls
        cls.__doc__ = known.message
        cls.retriable = known.retriable
        cls.fatal = known in _FATAL
        cls.stale_metadata = known in _STALE

    def __reduce__(self) -> tuple[Any, ...]:
        return BrokerError, (self.code, self.subject, self.message), _state_of(self)


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    known = _BY_CODE.get(code)
    return known.name if known is not None else f"error code {code}"


def check(code: int, subject: str = "", message: str | None = None) -> None:
    """Raises BrokerError unless the code is NONE. subject: what was asked for, such as a topic."""
    if code != 0:
        raise BrokerError(int(code), subject, message)
