"""What can be said of a ConsumerGroupHeartbeat without looking at its group."""

from __future__ import annotations

from typing import Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer.assignors import allowed_assignors
from kbroker.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from kbroker.group.consumer.requests import Heartbeat
from kbroker.group.settings import GroupSettings

_MEMBER_ID_REQUIRED_VERSION: Final = 1


def check_heartbeat(request: Heartbeat, settings: GroupSettings, version: int) -> None:
    """Raises ClientError for a request that no group could take."""
    epoch = request.member_epoch
    if version >= _MEMBER_ID_REQUIRED_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
        _not_empty(request.member_id, "MemberId")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in the first request.")
        if request.owned is None or request.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.topic_names is None and request.topic_regex is None:
            raise _invalid("SubscribedTopicNames or SubscribedTopicRegex is needed to (re-)join.")
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch {epoch} is invalid.")
    if request.server_assignor is None:
        return
    names = allowed_assignors(settings.group_consumer_assignors)
    if request.server_assignor not in names:
        raise ClientError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported; "
            f"these are: {', '.join(names)}.",
        )


def _not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> ClientError:
    return ClientError(ErrorCode.INVALID_REQUEST, message)
