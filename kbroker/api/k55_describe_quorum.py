"""DescribeQuorum: who holds the metadata log, and how far (KIP-595, KIP-836, KIP-853).

Behavior: this node is the only voter, leads every epoch and has the whole log. Any other topic or
partition, or more than one, is unknown. The endpoints of the voter are the controller listeners of
the configuration, if it has any: the broker opens none.

Version notes:
  v1: times. v2: directory ids, the voters' endpoints, error messages.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode
from kbroker.metadata.records import raft
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE

_TOPIC: Final = "__cluster_metadata"


@register(ApiKey.DESCRIBE_QUORUM, 0, 2)
def describe_quorum(request: Any, context: Context) -> Response:
    """Answer a DescribeQuorum request."""
    require_cluster(context, DESCRIBE)
    asked = [(one.topic_name, part.partition_index) for one in request.topics
             for part in one.partitions]  # fmt: skip
    if asked != [(_TOPIC, 0)] or len(request.topics) != 1:
        return {"error_message": "", "topics": [_unknown(topic) for topic in request.topics]}
    store = context.services.store
    now = context.services.clock.wall_ms()
    voter = _voter(context)
    replica = {
        "replica_id": context.node_id,
        "replica_directory_id": None if voter is None else voter.voter_directory_id,
        "log_end_offset": store.next_offset,
        "last_fetch_timestamp": now,
        "last_caught_up_timestamp": now,
    }
    partition = {
        "partition_index": 0,
        "error_message": "",
        "leader_id": context.node_id,
        "leader_epoch": store.epoch,
        "high_watermark": store.next_offset,
        "current_voters": [replica],
    }
    return {
        "error_message": "",
        "topics": [{"topic_name": _TOPIC, "partitions": [partition]}],
        "nodes": [{"node_id": context.node_id, "listeners": _listeners(context.config)}],
    }


def _voter(context: Context) -> raft.VotersVoter | None:
    """This node as the metadata log has it; None before kraft.version 1."""
    voters = context.services.store.quorum.voters
    return None if voters is None else voters.voters[0]


def _listeners(config: BrokerConfig) -> list[dict[str, Any]]:
    ends = config.controller_endpoints
    return [{"name": one.name, "host": one.host, "port": one.port} for one in ends]


def _unknown(topic: Any) -> dict[str, Any]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "topic_name": topic.topic_name,
        "partitions": [
            {
                "partition_index": one.partition_index,
                "error_code": code,
                "error_message": code.message,
            }
            for one in topic.partitions
        ],
    }
