"""AddPartitionsToTxn: partitions become part of a transaction, the first of which begins it.

Behavior: where a partition is not there, or is an internal topic's and a client asks, none is
added, and the others are answered with OPERATION_NOT_ATTEMPTED.

Version notes:
  v2: PRODUCER_FENCED, which older clients know as INVALID_PRODUCER_EPOCH. v3: flexible. v4: from
  brokers, several transactions at a time, and whether partitions are only to be verified (KIP-890).
  v5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, require_cluster, require_transactional_id
from kbroker.api.topic_names import INTERNAL_TOPICS
from kbroker.api.transactions import older_code, producer_of
from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.group.codes import coordinator_code
from kbroker.group.outcome import DEFERRED
from kbroker.operations import Steps, unique
from kbroker.protocol import ApiKey
from kbroker.security.acls import CLUSTER_ACTION, TOPIC, WRITE
from kbroker.txn import steps
from kbroker.txn.slot import Slot
from kbroker.txn.steps import Add, Producer
from kbroker.txn.transaction import Partition

_FIRST_BATCHED: Final = 4
_FIRST_FENCED: Final = 2
_CLIENTS, _BROKERS = 0, 2
"""Transaction versions: a client that sends this by itself does not know version 2."""


def _results(partitions: Mapping[Partition, int]) -> Steps[list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), code in partitions.items():
        yield
        one = {"partition_index": index, "partition_error_code": code}
        topics.setdefault(topic, []).append(one)
    return [{"name": name, "results_by_partition": found} for name, found in topics.items()]


def _partitions(topics: Iterable[Any]) -> Steps[list[Partition]]:
    found = yield from unique((topic.name, index) for topic in topics for index in topic.partitions)
    return list(found)


def _echoed(topics: Iterable[Any], code: int) -> list[dict[str, Any]]:
    """The same code for each partition, as they were asked for: repeated ones are repeated."""
    return [
        {
            "name": one.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code} for index in one.partitions
            ],
        }
        for one in topics
    ]


def _failed(request: Any, code: int, message: str) -> Response:
    if not hasattr(request, "transactions"):
        return {"results_by_topic_v3_and_below": _echoed(request.v3_and_below_topics, code)}
    return {"error_code": code}


@register(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, failed=_failed)
def add_partitions_to_txn(request: Any, context: Context) -> Steps[Response]:
    """Answer an AddPartitionsToTxn request."""
    if context.version >= _FIRST_BATCHED:
        require_cluster(context, CLUSTER_ACTION)
        return (yield from _of_brokers(request, context))
    require_transactional_id(context, WRITE, request.v3_and_below_transactional_id)
    wanted = yield from _partitions(request.v3_and_below_topics)
    refused = yield from _refused(context, wanted)
    if refused:
        return {"results_by_topic_v3_and_below": (yield from _results(refused))}
    name = request.v3_and_below_transactional_id
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)

    def operation(slot: Slot, now_ms: int) -> Response:
        context.transactions.add(slot, name, Add(producer, wanted, _CLIENTS), now_ms)
        return {"results_by_topic_v3_and_below": _echoed(request.v3_and_below_topics, 0)}

    def failed(code: ErrorCode) -> Response:
        return _failed(request, older_code(code, context.version, _FIRST_FENCED), "")

    return context.transactions.perform(name, operation, context.answer, failed)


def _refused(context: Context, wanted: list[Partition]) -> Steps[Mapping[Partition, int]]:
    """The results where a partition cannot be added; empty where all can. The offsets of groups
    come into a client's transaction by AddOffsetsToTxn alone."""
    gone: dict[Partition, int] = {}
    hidden: frozenset[str] = frozenset()
    if context.version < _FIRST_BATCHED:
        asked = (topic for topic, _ in wanted if topic not in INTERNAL_TOPICS)
        hidden = INTERNAL_TOPICS | (yield from denied_steps(context, WRITE, TOPIC, asked))
    for one in wanted:
        yield
        if one[0] in hidden:
            gone[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif context.image.partition(*one) is None:
            gone[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not gone:
        return gone
    return {one: gone.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in wanted}


def _of_brokers(request: Any, context: Context) -> Steps[Response]:
    """Transaction by transaction; the answer waits for the one that was appended last in
    each log directory."""
    results = []
    last: dict[int, Slot] = {}
    for asked in {one.transactional_id: one for one in request.transactions}.values():
        yield
        wanted = yield from _partitions(asked.topics)
        found: Mapping[Partition, int] = yield from _refused(context, wanted)
        if not found:
            try:
                found = _one(context, asked, wanted, last)
            except (ClientError, DiskError, OSError) as error:
                found = dict.fromkeys(wanted, coordinator_code(error))
        topics = yield from _results(found)
        results.append({"transactional_id": asked.transactional_id, "topic_results": topics})
    response = {"results_by_transaction": results}
    if not last:
        return response
    context.transactions.answer_all(last.values(), context.answer, response)
    return DEFERRED


def _one(
    context: Context, asked: Any, wanted: list[Partition], last: dict[int, Slot]
) -> Mapping[Partition, int]:
    """Results; `last` is told the slot that was appended to last in its log directory."""
    name, producer = asked.transactional_id, producer_of(asked)
    slot = context.transactions.slot(name)
    if asked.verify_only:
        return steps.verify(slot.transactions.get(name), producer, wanted)
    now_ms = context.services.clock.wall_ms()
    context.transactions.add(slot, name, Add(producer, wanted, _BROKERS), now_ms)
    last[slot.active_log().directory] = slot
    return dict.fromkeys(wanted, 0)
