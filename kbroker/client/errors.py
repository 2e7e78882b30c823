"""What can go wrong for a client: one tree under KafkaError, and in it a class for each error code.

`except UnknownTopicOrPartitionError`, or ask `retriable`, `fatal`, `stale_metadata`, `code`. The
classes of codes are made from kbroker.errors by `python -m tests.support.error_classes`; what all
have in common is in error_base.
"""

from __future__ import annotations

from kbroker.client.error_base import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BufferExhaustedError,
    ClosedError,
    CommitFailedError,
    ConcurrentUseError,
    ConfigError,
    ConnectError,
    CorruptDataError,
    DeliveryTimeoutError,
    DeserializationError,
    ForkError,
    KafkaError,
    LogTruncationError,
    NoOffsetError,
    NotAssignedError,
    PurgedError,
    RecordTooLargeError,
    RequestTimeoutError,
    SchemaRegistryError,
    SerializationError,
    TlsError,
    TransactionTimeoutError,
    UndeliveredError,
    UnsupportedApiError,
    WakeupError,
    check,
    error_name,
)

__all__ = [
    "AuthenticationError", "AuthorizationError", "BrokerError", "BrokerIdNotRegisteredError",
    "BrokerNotAvailableError", "BufferExhaustedError", "ClosedError",
    "ClusterAuthorizationFailedError", "CommitFailedError", "ConcurrentTransactionsError",
    "ConcurrentUseError", "ConfigError", "ConnectError", "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError", "CorruptDataError", "CorruptMessageError",
    "DelegationTokenAuthDisabledError", "DelegationTokenAuthorizationFailedError",
    "DelegationTokenExpiredError", "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError", "DelegationTokenRequestNotAllowedError",
    "DeliveryTimeoutError", "DeserializationError", "DuplicateBrokerRegistrationError",
    "DuplicateResourceError", "DuplicateSequenceNumberError", "DuplicateVoterError",
    "ElectionNotNeededError", "EligibleLeadersNotAvailableError", "FeatureUpdateFailedError",
    "FencedInstanceIdError", "FencedLeaderEpochError", "FencedMemberEpochError",
    "FencedStateEpochError", "FetchSessionIdNotFoundError", "FetchSessionTopicIdError", "ForkError",
    "GroupAuthorizationFailedError", "GroupIdNotFoundError", "GroupMaxSizeReachedError",
    "GroupSubscribedToTopicError", "IllegalGenerationError", "IllegalSaslStateError",
    "InconsistentClusterIdError", "InconsistentGroupProtocolError", "InconsistentTopicIdError",
    "InconsistentVoterSetError", "IneligibleReplicaError", "InvalidCommitOffsetSizeError",
    "InvalidConfigError", "InvalidFetchSessionEpochError", "InvalidFetchSizeError",
    "InvalidGroupIdError", "InvalidPartitionsError", "InvalidPrincipalTypeError",
    "InvalidProducerEpochError", "InvalidProducerIdMappingError", "InvalidRecordError",
    "InvalidRecordStateError", "InvalidRegistrationError", "InvalidRegularExpressionError",
    "InvalidReplicaAssignmentError", "InvalidReplicationFactorError", "InvalidRequestError",
    "InvalidRequiredAcksError", "InvalidSessionTimeoutError", "InvalidShareSessionEpochError",
    "InvalidTimestampError", "InvalidTopicError", "InvalidTransactionTimeoutError",
    "InvalidTxnStateError", "InvalidUpdateVersionError", "InvalidVoterKeyError", "KafkaError",
    "KafkaStorageError", "LeaderNotAvailableError", "ListenerNotFoundError", "LogDirNotFoundError",
    "LogTruncationError", "MemberIdRequiredError", "MessageTooLargeError",
    "MismatchedEndpointTypeError", "NetworkError", "NewLeaderElectedError", "NoOffsetError",
    "NoReassignmentInProgressError", "NonEmptyGroupError", "NotAssignedError", "NotControllerError",
    "NotCoordinatorError", "NotEnoughReplicasAfterAppendError", "NotEnoughReplicasError",
    "NotLeaderOrFollowerError", "OffsetMetadataTooLargeError", "OffsetMovedToTieredStorageError",
    "OffsetNotAvailableError", "OffsetOutOfRangeError", "OperationNotAttemptedError",
    "OutOfOrderSequenceNumberError", "PolicyViolationError", "PositionOutOfRangeError",
    "PreferredLeaderNotAvailableError", "PrincipalDeserializationFailureError",
    "ProducerFencedError", "PurgedError", "ReassignmentInProgressError", "RebalanceInProgressError",
    "RebootstrapRequiredError", "RecordListTooLargeError", "RecordTooLargeError",
    "ReplicaNotAvailableError", "RequestTimedOutError", "RequestTimeoutError",
    "ResourceNotFoundError", "SaslAuthenticationFailedError", "SchemaRegistryError",
    "SecurityDisabledError", "SerializationError", "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError", "SnapshotNotFoundError", "StaleBrokerEpochError",
    "StaleControllerEpochError", "StaleMemberEpochError", "StreamsInvalidTopologyEpochError",
    "StreamsInvalidTopologyError", "StreamsTopologyFencedError", "TelemetryTooLargeError",
    "ThrottlingQuotaExceededError", "TlsError", "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError", "TopicDeletionDisabledError", "TransactionAbortableError",
    "TransactionCoordinatorFencedError", "TransactionTimeoutError",
    "TransactionalIdAuthorizationFailedError", "TransactionalIdNotFoundError",
    "UnacceptableCredentialError", "UndeliveredError", "UnknownControllerIdError",
    "UnknownLeaderEpochError", "UnknownMemberIdError", "UnknownProducerIdError",
    "UnknownServerError", "UnknownSubscriptionIdError", "UnknownTopicIdError",
    "UnknownTopicOrPartitionError", "UnreleasedInstanceIdError", "UnstableOffsetCommitError",
    "UnsupportedApiError", "UnsupportedAssignorError", "UnsupportedCompressionTypeError",
    "UnsupportedEndpointTypeError", "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError", "UnsupportedVersionError", "VoterNotFoundError", "WakeupError",
    "check", "error_name",
]  # fmt: skip

# fmt: off
class UnknownServerError(BrokerError):
    code = -1
class OffsetOutOfRangeError(BrokerError):
    code = 1
class CorruptMessageError(BrokerError):
    code = 2
class UnknownTopicOrPartitionError(BrokerError):
    code = 3
class InvalidFetchSizeError(BrokerError):
    code = 4
class LeaderNotAvailableError(BrokerError):
    code = 5
class NotLeaderOrFollowerError(BrokerError):
    code = 6
class RequestTimedOutError(BrokerError):
    code = 7
class BrokerNotAvailableError(BrokerError):
    code = 8
class ReplicaNotAvailableError(BrokerError):
    code = 9
class MessageTooLargeError(BrokerError):
    code = 10
class StaleControllerEpochError(BrokerError):
    code = 11
class OffsetMetadataTooLargeError(BrokerError):
    code = 12
class NetworkError(BrokerError):
    code = 13
class CoordinatorLoadInProgressError(BrokerError):
    code = 14
class CoordinatorNotAvailableError(BrokerError):
    code = 15
class NotCoordinatorError(BrokerError):
    code = 16
class InvalidTopicError(BrokerError):
    code = 17
class RecordListTooLargeError(BrokerError):
    code = 18
class NotEnoughReplicasError(BrokerError):
    code = 19
class NotEnoughReplicasAfterAppendError(BrokerError):
    code = 20
class InvalidRequiredAcksError(BrokerError):
    code = 21
class IllegalGenerationError(BrokerError):
    code = 22
class InconsistentGroupProtocolError(BrokerError):
    code = 23
class InvalidGroupIdError(BrokerError):
    code = 24
class UnknownMemberIdError(BrokerError):
    code = 25
class InvalidSessionTimeoutError(BrokerError):
    code = 26
class RebalanceInProgressError(BrokerError):
    code = 27
class InvalidCommitOffsetSizeError(BrokerError):
    code = 28
class TopicAuthorizationFailedError(BrokerError, AuthorizationError):
    code = 29
class GroupAuthorizationFailedError(BrokerError, AuthorizationError):
    code = 30
class ClusterAuthorizationFailedError(BrokerError, AuthorizationError):
    code = 31
class InvalidTimestampError(BrokerError):
    code = 32
class UnsupportedSaslMechanismError(BrokerError, AuthenticationError):
    code = 33
class IllegalSaslStateError(BrokerError, AuthenticationError):
    code = 34
class UnsupportedVersionError(BrokerError):
    code = 35
class TopicAlreadyExistsError(BrokerError):
    code = 36
class InvalidPartitionsError(BrokerError):
    code = 37
class InvalidReplicationFactorError(BrokerError):
    code = 38
class InvalidReplicaAssignmentError(BrokerError):
    code = 39
class InvalidConfigError(BrokerError):
    code = 40
class NotControllerError(BrokerError):
    code = 41
class InvalidRequestError(BrokerError):
    code = 42
class UnsupportedForMessageFormatError(BrokerError):
    code = 43
class PolicyViolationError(BrokerError):
    code = 44
class OutOfOrderSequenceNumberError(BrokerError):
    code = 45
class DuplicateSequenceNumberError(BrokerError):
    code = 46
class InvalidProducerEpochError(BrokerError):
    code = 47
class InvalidTxnStateError(BrokerError):
    code = 48
class InvalidProducerIdMappingError(BrokerError):
    code = 49
class InvalidTransactionTimeoutError(BrokerError):
    code = 50
class ConcurrentTransactionsError(BrokerError):
    code = 51
class TransactionCoordinatorFencedError(BrokerError):
    code = 52
class TransactionalIdAuthorizationFailedError(BrokerError, AuthorizationError):
    code = 53
class SecurityDisabledError(BrokerError):
    code = 54
class OperationNotAttemptedError(BrokerError):
    code = 55
class KafkaStorageError(BrokerError):
    code = 56
class LogDirNotFoundError(BrokerError):
    code = 57
class SaslAuthenticationFailedError(BrokerError, AuthenticationError):
    code = 58
class UnknownProducerIdError(BrokerError):
    code = 59
class ReassignmentInProgressError(BrokerError):
    code = 60
class DelegationTokenAuthDisabledError(BrokerError):
    code = 61
class DelegationTokenNotFoundError(BrokerError):
    code = 62
class DelegationTokenOwnerMismatchError(BrokerError):
    code = 63
class DelegationTokenRequestNotAllowedError(BrokerError):
    code = 64
class DelegationTokenAuthorizationFailedError(BrokerError, AuthorizationError):
    code = 65
class DelegationTokenExpiredError(BrokerError):
    code = 66
class InvalidPrincipalTypeError(BrokerError):
    code = 67
class NonEmptyGroupError(BrokerError):
    code = 68
class GroupIdNotFoundError(BrokerError):
    code = 69
class FetchSessionIdNotFoundError(BrokerError):
    code = 70
class InvalidFetchSessionEpochError(BrokerError):
    code = 71
class ListenerNotFoundError(BrokerError):
    code = 72
class TopicDeletionDisabledError(BrokerError):
    code = 73
class FencedLeaderEpochError(BrokerError):
    code = 74
class UnknownLeaderEpochError(BrokerError):
    code = 75
class UnsupportedCompressionTypeError(BrokerError):
    code = 76
class StaleBrokerEpochError(BrokerError):
    code = 77
class OffsetNotAvailableError(BrokerError):
    code = 78
class MemberIdRequiredError(BrokerError):
    code = 79
class PreferredLeaderNotAvailableError(BrokerError):
    code = 80
class GroupMaxSizeReachedError(BrokerError):
    code = 81
class FencedInstanceIdError(BrokerError):
    code = 82
class EligibleLeadersNotAvailableError(BrokerError):
    code = 83
class ElectionNotNeededError(BrokerError):
    code = 84
class NoReassignmentInProgressError(BrokerError):
    code = 85
class GroupSubscribedToTopicError(BrokerError):
    code = 86
class InvalidRecordError(BrokerError):
    code = 87
class UnstableOffsetCommitError(BrokerError):
    code = 88
class ThrottlingQuotaExceededError(BrokerError):
    code = 89
class ProducerFencedError(BrokerError):
    code = 90
class ResourceNotFoundError(BrokerError):
    code = 91
class DuplicateResourceError(BrokerError):
    code = 92
class UnacceptableCredentialError(BrokerError):
    code = 93
class InconsistentVoterSetError(BrokerError):
    code = 94
class InvalidUpdateVersionError(BrokerError):
    code = 95
class FeatureUpdateFailedError(BrokerError):
    code = 96
class PrincipalDeserializationFailureError(BrokerError):
    code = 97
class SnapshotNotFoundError(BrokerError):
    code = 98
class PositionOutOfRangeError(BrokerError):
    code = 99
class UnknownTopicIdError(BrokerError):
    code = 100
class DuplicateBrokerRegistrationError(BrokerError):
    code = 101
class BrokerIdNotRegisteredError(BrokerError):
    code = 102
class InconsistentTopicIdError(BrokerError):
    code = 103
class InconsistentClusterIdError(BrokerError):
    code = 104
class TransactionalIdNotFoundError(BrokerError):
    code = 105
class FetchSessionTopicIdError(BrokerError):
    code = 106
class IneligibleReplicaError(BrokerError):
    code = 107
class NewLeaderElectedError(BrokerError):
    code = 108
class OffsetMovedToTieredStorageError(BrokerError):
    code = 109
class FencedMemberEpochError(BrokerError):
    code = 110
class UnreleasedInstanceIdError(BrokerError):
    code = 111
class UnsupportedAssignorError(BrokerError):
    code = 112
class StaleMemberEpochError(BrokerError):
    code = 113
class MismatchedEndpointTypeError(BrokerError):
    code = 114
class UnsupportedEndpointTypeError(BrokerError):
    code = 115
class UnknownControllerIdError(BrokerError):
    code = 116
class UnknownSubscriptionIdError(BrokerError):
    code = 117
class TelemetryTooLargeError(BrokerError):
    code = 118
class InvalidRegistrationError(BrokerError):
    code = 119
class TransactionAbortableError(BrokerError):
    code = 120
class InvalidRecordStateError(BrokerError):
    code = 121
class ShareSessionNotFoundError(BrokerError):
    code = 122
class InvalidShareSessionEpochError(BrokerError):
    code = 123
class FencedStateEpochError(BrokerError):
    code = 124
class InvalidVoterKeyError(BrokerError):
    code = 125
class DuplicateVoterError(BrokerError):
    code = 126
class VoterNotFoundError(BrokerError):
    code = 127
class InvalidRegularExpressionError(BrokerError):
    code = 128
class RebootstrapRequiredError(BrokerError):
    code = 129
class StreamsInvalidTopologyError(BrokerError):
    code = 130
class StreamsInvalidTopologyEpochError(BrokerError):
    code = 131
class StreamsTopologyFencedError(BrokerError):
    code = 132
class ShareSessionLimitReachedError(BrokerError):
    code = 133
