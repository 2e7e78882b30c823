"""ConsumerGroupHeartbeat: a member of a consumer group joins, reports or leaves (KIP-848).

Behavior: answered at once; the answer leaves when what it tells is durable.

Version notes:
  v1: subscription by regular expression, and the client makes the member id (KIP-1082).
"""

from __future__ import annotations

from typing import Any

from kbroker.api.addresses import java_address
from kbroker.api.context import Context, uuid_bytes
from kbroker.api.durations import milliseconds
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, sight
from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer.requests import Heartbeat
from kbroker.group.migration import Client
from kbroker.group.settings import GroupSettings
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, GROUP, READ, TOPIC


def check_protocol_is_on(context: Context) -> None:
    """The feature and the setting that let consumer groups in."""
    protocols = context.config.value("group.coordinator.rebalance.protocols")
    on = isinstance(protocols, list) and "consumer" in protocols
    if not on or not context.image.features.get("group.version"):
        raise ClientError(
            ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled."
        )


@register(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1)
def consumer_group_heartbeat(request: Any, context: Context) -> Steps[Response]:
    """Answer a ConsumerGroupHeartbeat request."""
    check_protocol_is_on(context)
    if not context.may(READ, GROUP, request.group_id):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    names = request.subscribed_topic_names or ()
    if (yield from denied_steps(context, DESCRIBE, TOPIC, names)):
        return {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    owned = request.topic_partitions
    beat = Heartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        milliseconds(request.rebalance_timeout),
        request.subscribed_topic_names,
        getattr(request, "subscribed_topic_regex", None),
        request.server_assignor,
        None if owned is None else [(uuid_bytes(one.topic_id), one.partitions) for one in owned],
    )
    client = Client(
        context.version, context.client_id or "", java_address(context.peer[0]), sight(context)
    )

    def refusal(settings: GroupSettings) -> None:
        # With the room of these groups, which a broker without them starts without.
        from kbroker.group.consumer.validity import check_heartbeat  # noqa: PLC0415

        check_heartbeat(beat, settings, context.version)

    return context.groups.handle(
        request.group_id,
        context.answer,
        lambda rooms, _, now: rooms.consumer.heartbeat(beat, client, now),
        refusal=refusal,
    )
