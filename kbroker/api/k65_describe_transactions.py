"""DescribeTransactions: the state of transactional ids.

Behavior: an id that is named again is answered once. Of its topics those are told that may be.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied, denied_steps
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Steps, collect, unique
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, TOPIC, TRANSACTIONAL_ID


def _error(transactional_id: str, code: int) -> dict[str, Any]:
    return {"transactional_id": transactional_id, "error_code": code, "topics": []}


def _failed(request: Any, code: int, message: str) -> Response:
    return {"transaction_states": [_error(one, code) for one in request.transactional_ids]}


@register(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, failed=_failed)
def describe_transactions(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeTransactions request."""
    names = yield from unique(request.transactional_ids)
    hidden = yield from denied_steps(context, DESCRIBE, TRANSACTIONAL_ID, names)
    no = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    states = yield from collect(
        _error(name, no) if name in hidden else _described(context, name) for name in names
    )
    return {"transaction_states": states}


def _described(context: Context, name: str) -> dict[str, Any]:
    try:
        slot = context.transactions.slot(name)
    except ClientError as error:
        return _error(name, error.code)
    found = slot.transactions.get(name)
    if found is None:
        return _error(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(slot.unmarked.get(name, found.partitions)):
        topics.setdefault(topic, []).append(index)
    for topic in denied(context, DESCRIBE, TOPIC, topics):
        del topics[topic]
    return {
        "transactional_id": name,
        "transaction_state": found.state.label,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }
