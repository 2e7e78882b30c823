"""ElectLeaders: leader elections on demand.

Behavior: this broker leads every partition, by preference and otherwise, so none is needed. Null
partitions mean all, of which only those with something to tell are answered: none.

Version notes:
  v0: preferred leaders only. v1: election types. v2: flexible.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.durations import client_timeout_ms
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.limits import TOPIC_NAME_LENGTH_MAX_CHARS
from kbroker.metadata.image import NO_LEADER
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER

_PREFERRED, _UNCLEAN = 0, 1
_NAMED_MAX: Final = 1_000
"""Results with a name in their message: a request names a topic once for very many partitions."""


def _failed(request: Any, code: int, message: str) -> Response:
    results = [
        {
            "topic": topic.topic,
            "partition_result": [_result(index, code, message) for index in topic.partitions],
        }
        for topic in request.topic_partitions or ()
    ]
    return {"error_code": code, "replica_election_results": results}


@register(ApiKey.ELECT_LEADERS, 0, 2, failed=_failed, timeout=client_timeout_ms)
def elect_leaders(request: Any, context: Context) -> Steps[Response]:
    """Answer an ElectLeaders request."""
    require_cluster(context, ALTER)
    if getattr(request, "election_type", _PREFERRED) not in (_PREFERRED, _UNCLEAN):
        raise ClientError(
            ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}."
        )
    if request.topic_partitions is None:
        nothing = [{"topic": name, "partition_result": []} for name in context.image.topics]
        return {"replica_election_results": nothing}
    unclean = getattr(request, "election_type", _PREFERRED) == _UNCLEAN
    results = []
    count = 0
    for topic in request.topic_partitions:
        partitions = []
        is_name = len(topic.topic) <= TOPIC_NAME_LENGTH_MAX_CHARS
        for index in topic.partitions:
            names = is_name and count < _NAMED_MAX
            partitions.append(_elect(context, topic.topic, index, unclean=unclean, names=names))
            count += 1
            yield
        results.append({"topic": topic.topic, "partition_result": partitions})
    return {"replica_election_results": results}


def _elect(
    context: Context, topic: str, index: int, *, unclean: bool, names: bool
) -> dict[str, Any]:
    partition = context.image.partition(topic, index)
    if partition is None and not names:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif partition is None:
        known = topic in context.image.topics
        text = f"No such partition as {topic}-{index}" if known else f"No such topic as {topic}"
        return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    elif partition.leader == NO_LEADER:  # its log directory is offline
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if unclean:
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
    return _result(index, code, code.message)


def _result(index: int, code: int, message: str | None) -> dict[str, Any]:
    return {"partition_id": index, "error_code": code, "error_message": message}
