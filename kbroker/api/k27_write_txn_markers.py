"""WriteTxnMarkers: end transactions in partitions, as a coordinator decided, or an administrator.

Behavior: one control batch for each partition; the answer waits for the last of
each log directory. The markers of one
producer are answered together. What is beyond 10,000 markers is for another request.

Version notes:
  v1: flexible. v2: the transaction's version (KIP-1228).
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import may_cluster, require_cluster
from kbroker.errors import ClientError, DiskError, ErrorCode, code_of
from kbroker.group.outcome import DEFERRED
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER, CLUSTER_ACTION
from kbroker.storage.manager import LogPort
from kbroker.txn.markers import Marker
from kbroker.txn.transaction import Partition

Results = dict[int, dict[Partition, int]]

#: Of one request: for so long, some seconds at most, it may have the control thread.
_MARKERS_MAX: Final = 10_000
_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def _answer(results: Results) -> Response:
    markers = []
    for producer_id, found in results.items():
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, index), code in found.items():
            one = {"partition_index": index, "error_code": code}
            topics.setdefault(topic, []).append(one)
        told = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
        markers.append({"producer_id": producer_id, "topics": told})
    return {"markers": markers}


def _wanted(marker: Any) -> list[Partition]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _failed(request: Any, code: int, message: str) -> Response:
    results: Results = {}
    for marker in request.markers:
        found = results.setdefault(marker.producer_id, {})
        found.update(dict.fromkeys(_wanted(marker), code))
    return _answer(results)


def _tell(context: Context, partition: Partition, marker: Marker) -> None:
    context.changed(
        "marker written", topic=partition[0], partition=partition[1],
        producer_id=marker.producer_id, done="committed" if marker.commit else "aborted",
    )  # fmt: skip


@register(ApiKey.WRITE_TXN_MARKERS, 1, 2, failed=_failed)
def write_txn_markers(request: Any, context: Context) -> Steps[Response]:
    """Answer a WriteTxnMarkers request."""
    if not may_cluster(context, ALTER, tell=False):
        require_cluster(context, CLUSTER_ACTION)
    results: Results = {}
    last: dict[int, tuple[LogPort, int]] = {}
    left = _MARKERS_MAX
    for asked in request.markers:
        marker = Marker(
            asked.producer_id,
            asked.producer_epoch,
            asked.transaction_result,
            asked.coordinator_epoch,
            getattr(asked, "transaction_version", 0),
        )
        found = results.setdefault(asked.producer_id, {})
        for partition in dict.fromkeys(_wanted(asked)):
            yield
            if min(marker.epoch, marker.producer_id, marker.version) < 0:
                found[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
                continue
            left -= 1
            if left < 0:
                found[partition] = ErrorCode.REQUEST_TIMED_OUT  # coordinators ask again
                continue
            try:
                place = context.transactions.write_marker(partition, marker)
                last[place[0].directory] = place
                found[partition] = ErrorCode.NONE
                _tell(context, partition, marker)
            except (ClientError, DiskError, OSError) as error:
                code = code_of(error)
                found[partition] = (
                    ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
                )
    response = _answer(results)
    waited = [(log, offset) for log, offset in last.values() if log.high_watermark < offset]
    if not waited:
        return response
    timeout_ms = context.config.integer("request.timeout.ms")
    context.answer.send_when_all(waited, response, timeout_ms)
    return DEFERRED
