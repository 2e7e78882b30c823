"""InitProducerId: a producer id and an epoch, for an idempotent or a transactional producer.

Behavior: without a transactional id every request gets a fresh id with epoch 0, whatever id the
producer had before. With one it gets the id's producer in a new epoch, which fences who had it
before; a transaction that is open is aborted first, and the client asks again
(CONCURRENT_TRANSACTIONS).

Version notes:
  v2: flexible. v3: the producer may tell its id and epoch (KIP-360). v4: PRODUCER_FENCED, which
  older clients know as INVALID_PRODUCER_EPOCH. v5: KIP-890.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.durations import milliseconds
from kbroker.api.registry import Response, register, request_timeout
from kbroker.api.rights import may_cluster, require_transactional_id
from kbroker.api.transactions import older_code
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import IDEMPOTENT_WRITE, TOPIC, WRITE
from kbroker.txn.steps import Producer

_NONE: Final = -1
_FIRST_FENCED: Final = 4


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}


@register(ApiKey.INIT_PRODUCER_ID, 0, 5, failed=_failed, timeout=request_timeout)
def init_producer_id(request: Any, context: Context) -> Steps[Response]:
    """Answer an InitProducerId request."""
    _check_rights(request.transactional_id, context)
    known_id = getattr(request, "producer_id", _NONE)
    known_epoch = getattr(request, "producer_epoch", _NONE)
    if (known_id == _NONE) != (known_epoch == _NONE):
        raise ClientError(ErrorCode.INVALID_REQUEST, "Producer id and epoch belong together.")
    name = request.transactional_id
    producer_ids = context.services.producer_ids
    yield producer_ids.available()
    if name is None:
        return {"producer_id": producer_ids.take(), "producer_epoch": 0}
    if not name:
        raise ClientError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    expected = None if known_id == _NONE else Producer(known_id, known_epoch)
    timeout = request.transaction_timeout
    init = context.transactions.init(name, milliseconds(timeout), expected)

    def operation(slot: Any, now_ms: int) -> Response:
        producer = init(slot, now_ms)
        code = ErrorCode.NONE if producer.id >= 0 else ErrorCode.CONCURRENT_TRANSACTIONS
        return {
            "error_code": code,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
        }

    def failed(code: ErrorCode) -> Response:
        return _failed(request, older_code(code, context.version, _FIRST_FENCED), "")

    return context.transactions.perform(name, operation, context.answer, failed)


def _check_rights(transactional_id: str | None, context: Context) -> None:
    """An idempotent producer needs the right to write some topic, be it there or not (KIP-679).
    Raises ClientError."""
    if transactional_id is not None:
        require_transactional_id(context, WRITE, transactional_id)
    elif not may_cluster(context, IDEMPOTENT_WRITE, tell=False) and not context.may_any(
        WRITE, TOPIC
    ):
        raise ClientError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
