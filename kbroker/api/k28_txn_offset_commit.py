"""TxnOffsetCommit: offsets that take effect with the end of a transaction (KIP-447).

Behavior: as OffsetCommit; in the group's partition of `__consumer_offsets` they are batches of the
transaction, which must have that partition.

Version notes:
  v2: leader epoch. v3: flexible, group metadata, by which members of an older generation are
  refused. v4: TRANSACTION_ABORTABLE. v5: adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kbroker.api.commits import refused, split
from kbroker.api.context import Context
from kbroker.api.partition_results import PartitionResults
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, require_group, require_transactional_id
from kbroker.api.transactions import offsets_partition, producer_of, verified_code
from kbroker.errors import ClientError, ErrorCode
from kbroker.group.commits import TopicCommit, TxnCommit
from kbroker.group.outcome import DEFERRED
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ, TOPIC, WRITE
from kbroker.txn.transaction import Partition

_FIRST_LOADING: Final = 2
_FIRST_ABORTABLE: Final = 4
_FIRST_THAT_ADDS: Final = 5


def _failed(request: Any, code: int, message: str) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": code}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


@register(ApiKey.TXN_OFFSET_COMMIT, 0, 5, failed=_failed)
def txn_offset_commit(request: Any, context: Context) -> Steps[Response]:
    """Answer a TxnOffsetCommit request."""
    require_transactional_id(context, WRITE, request.transactional_id)
    require_group(context, READ, request.group_id)
    wrong = PartitionResults("name")
    topics = yield from _sorted_out(request, context, wrong)
    if not topics:
        return wrong.merged(())
    producer = producer_of(request)
    commit = TxnCommit(
        request.group_id,
        topics,
        context.version,
        producer,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
    )

    commit = commit._replace(batch=(yield from context.groups.commit_batch(commit)))

    def failing(code: ErrorCode, message: str) -> Response:
        if context.version < _FIRST_LOADING and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return wrong.merged(refused(topics, code))

    context.answer.failing(failing)

    def store() -> Response:
        return context.groups.handle(
            request.group_id,
            context.answer,
            lambda rooms, reply, now: wrong.merge_into(
                rooms.offsets.commit_in_transaction(commit, reply, now)
            ),
        )

    if not request.group_id:
        raise ClientError(ErrorCode.INVALID_GROUP_ID)
    adds = context.version >= _FIRST_THAT_ADDS
    if context.groups.in_transaction(request.group_id, *producer) or not (
        adds or context.config.value("transaction.partition.verification.enable")
    ):
        return store()
    partition = offsets_partition(context, request.group_id)
    context.transactions.begin_on(
        request.transactional_id,
        producer,
        [partition],
        adds=adds,
        then=lambda refused: _go_on(context, refused, store),
    )
    return DEFERRED


def _go_on(
    context: Context, refused: Mapping[Partition, ErrorCode], store: Callable[[], Response]
) -> None:
    """The coordinator has answered."""
    for code in refused.values():
        abortable = context.version >= _FIRST_ABORTABLE
        context.answer.fail(verified_code(code, abortable=abortable))
        return
    try:
        store()
    except ClientError as error:
        context.answer.fail(error.code)


def _sorted_out(
    request: Any, context: Context, wrong: PartitionResults
) -> Steps[list[TopicCommit]]:
    """Find the topics that exist; the others, and those that may not be read, go to `wrong`."""
    names = (asked.name for asked in request.topics)
    hidden = yield from denied_steps(context, READ, TOPIC, names)
    topics = []
    for asked in request.topics:
        yield
        if asked.name in hidden:
            indexes = (one.partition_index for one in asked.partitions)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            yield from wrong.add(asked.name, bytes(16), indexes, code)
            continue
        topic = context.image.topics.get(asked.name)
        there = () if topic is None else topic.partitions
        here, gone = yield from split(asked.partitions, there)
        if gone or topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            yield from wrong.add(asked.name, bytes(16), gone, code)
        if here and topic is not None:
            topics.append(TopicCommit(asked.name, topic.id, here))
    return topics
