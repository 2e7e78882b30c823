"""Whose fault it was, and the Kafka error code that says so.

Every failure of the control plane is one of four kinds: the client's request (`ClientError`), our
bug (`BugError`), the disk (`DiskError`) or what the operator told us (`OperatorError`). `code_of`
is the one place where an exception becomes an error code. Codes, names and which of them a client
may retry are those of Apache Kafka 4.3 (its protocol guide); the messages are our own, but for
those that scripts match in the output of tools (KAFKAS_WORDS in tests/differential/harness.py).
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum
from typing import Any

RETRIABLE = True
# After these the disk is as good as before: no room, no descriptor, a name that is not as expected.
_DISK_HOLDS = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.EEXIST,
})  # fmt: skip
_MESSAGE_MAX_CHARS = 4_000


class ErrorCode(IntEnum):
    """Error codes of the protocol (int16); `retriable`: the same request may succeed later."""

    retriable: bool
    message: str

    def __new__(cls, code: int, message: str, retriable: bool = False) -> ErrorCode:
        """A member from its line in the table below."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.message = message
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1, "The broker failed in a way it did not foresee."
    NONE = 0, "Success."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside what the log holds."
    CORRUPT_MESSAGE = 2, "The batch is damaged, too large, or lacks a key it needs.", RETRIABLE
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This server does not host this topic-partition.", RETRIABLE
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", RETRIABLE
    NOT_LEADER_OR_FOLLOWER = 6, "This broker does not hold that role for the partition.", RETRIABLE
    REQUEST_TIMED_OUT = 7, "The request was not completed in its time.", RETRIABLE
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica of the partition is not available.", RETRIABLE
    MESSAGE_TOO_LARGE = 10, "A batch is larger than max.message.bytes."
    STALE_CONTROLLER_EPOCH = 11, "The controller has moved on to a later epoch."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata string of a committed offset is too long."
    NETWORK_EXCEPTION = 13, "The connection broke before the answer came.", RETRIABLE
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", RETRIABLE
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available.", RETRIABLE
    NOT_COORDINATOR = 16, "Another broker is the coordinator.", RETRIABLE
    INVALID_TOPIC_EXCEPTION = 17, "The topic name or the operation on the topic is not valid."
    RECORD_LIST_TOO_LARGE = 18, "A batch is larger than a segment may be."
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than the topic demands.", RETRIABLE
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "Written, but to fewer in-sync replicas than the topic demands.",
        RETRIABLE,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, "The group is in another generation."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no protocol with the group."
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the broker's bounds."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, "Topic authorization failed."
    GROUP_AUTHORIZATION_FAILED = 30, "Group authorization failed."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Cluster authorization failed."
    INVALID_TIMESTAMP = 32, "A timestamp is outside the range that the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not enabled here."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of authentication."
    UNSUPPORTED_VERSION = 35, "This version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, "There are not that many brokers, or the factor is below 1."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "A setting is unknown or its value is not valid."
    NOT_CONTROLLER = 41, "Another node is the controller.", RETRIABLE
    INVALID_REQUEST = 42, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The stored message format does not allow this."
    POLICY_VIOLATION = 44, "A policy of the broker forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The batch of this sequence number was written long ago."
    INVALID_PRODUCER_EPOCH = 47, "The producer's epoch is older than the one known."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, "The transaction is still busy with another step.", RETRIABLE
    TRANSACTION_COORDINATOR_FENCED = 52, "A later coordinator has taken over the transaction."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Transactional Id authorization failed."
    SECURITY_DISABLED = 54, "Security is not enabled on this broker."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed or is full.", RETRIABLE
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The partition knows nothing of this producer any more."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The broker has no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "Neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Tokens are not handed out on such a connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Delegation Token authorization failed."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "There is no such fetch session.", RETRIABLE
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session is at another epoch.", RETRIABLE
    LISTENER_NOT_FOUND = 72, "The leader lacks the listener that was asked through.", RETRIABLE
    TOPIC_DELETION_DISABLED = 73, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, "The request's leader epoch is older than the broker's.", RETRIABLE
    UNKNOWN_LEADER_EPOCH = 75, "The request's leader epoch is newer than the broker's.", RETRIABLE
    UNSUPPORTED_COMPRESSION_TYPE = 76, "This version of the request cannot carry the compression."
    STALE_BROKER_EPOCH = 77, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, "The new leader's high watermark is not known yet.", RETRIABLE
    MEMBER_ID_REQUIRED = 79, "Join again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", RETRIABLE
    GROUP_MAX_SIZE_REACHED = 81, "The group is full."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica may become leader.", RETRIABLE
    ELECTION_NOT_NEEDED = 84, "Leader election not needed for topic partition.", RETRIABLE
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment of the partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "A member of the group subscribes to the topic."
    INVALID_RECORD = 87, "A record breaks a rule of the topic."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets of an open transaction are pending.", RETRIABLE
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up for now.", RETRIABLE
    PRODUCER_FENCED = 90, "A newer producer uses this transactional id."
    RESOURCE_NOT_FOUND = 91, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the rules."
    INCONSISTENT_VOTER_SET = 94, "One side is not a voter of the quorum."
    INVALID_UPDATE_VERSION = 95, "The version to update to is not valid."
    FEATURE_UPDATE_FAILED = 96, "The feature levels could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, "This server does not host this topic ID.", RETRIABLE
    DUPLICATE_BROKER_REGISTRATION = 101, "The broker id is taken."
    BROKER_ID_NOT_REGISTERED = 102, "No broker of this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic of this name has another id.", RETRIABLE
    INCONSISTENT_CLUSTER_ID = 104, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The session mixes topic names and topic ids.", RETRIABLE
    INELIGIBLE_REPLICA = 107, "A replica of the new ISR may not be in it."
    NEW_LEADER_ELECTED = 108, "Done, and the partition has a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset lies in tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member was fenced: give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still uses this instance id."
    UNSUPPORTED_ASSIGNOR = 112, "The group does not support the assignor."
    STALE_MEMBER_EPOCH = 113, "The member must learn its new epoch by a heartbeat first."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription is unknown or outdated."
    TELEMETRY_TOO_LARGE = 118, "The telemetry push is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The controller refuses the registration."
    TRANSACTION_ABORTABLE = 120, "The transaction failed; abort it and go on."
    INVALID_RECORD_STATE = 121, "The record is not in a state that can be acknowledged."
    SHARE_SESSION_NOT_FOUND = 122, "There is no such share session.", RETRIABLE
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session is at another epoch.", RETRIABLE
    FENCED_STATE_EPOCH = 124, "The share group state is at another epoch."
    INVALID_VOTER_KEY = 125, "The voter key belongs to another replica."
    DUPLICATE_VOTER = 126, "The voter is in the set already."
    VOTER_NOT_FOUND = 127, "The voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client's metadata is stale: bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, "There are too many share sessions.", RETRIABLE


class KbrokerError(Exception):
    """A failure with an error code; raise one of its kinds."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class ClientError(KbrokerError):
    """The client's request is at fault; `code` and the message go back to it. A message that quotes
    the request is cut: a string of an answer holds 32,767 bytes."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__((code.message if message is None else message)[:_MESSAGE_MAX_CHARS])
        self.code = code


class LateError(ClientError):
    """The disk hangs in the middle of an append. It was not waited for, but it is under way:
    `append` tells what becomes of it (kbroker.ext.appending.LateAppend)."""

    def __init__(self, append: Any) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT)
        self.append = append


class BugError(KbrokerError):
    """Our own fault: a state that must not be. The client learns only that the broker failed."""


class DiskError(KbrokerError):
    """The disk failed or is full: `path` could not be read, written or synced."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, path: str | os.PathLike[str], reason: OSError | str) -> None:
        self.path = os.fspath(path)
        self.errno = reason.errno if isinstance(reason, OSError) else None
        text = (reason.strerror or str(reason)) if isinstance(reason, OSError) else reason
        super().__init__(f"{self.path}: {text}")

    @property
    def final(self) -> bool:
        """Whether the disk itself has failed, so that nothing on it is to be trusted any more."""
        return self.errno is not None and self.errno not in _DISK_HOLDS


class CorruptFileError(DiskError):
    """A file of the log directory holds what no broker writes."""


class OperatorError(KbrokerError):
    """What the operator told us does not work; the message says what to do. No traceback."""

    code = ErrorCode.INVALID_CONFIG


def code_of(error: BaseException) -> ErrorCode:
    """The error code of any exception; what nobody foresaw is our bug."""
    if isinstance(error, KbrokerError):
        return error.code
    if isinstance(error, TimeoutError):
        return ErrorCode.REQUEST_TIMED_OUT
    if isinstance(error, OSError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.UNKNOWN_SERVER_ERROR
