"""AddOffsetsToTxn: a group's partition of `__consumer_offsets` becomes part of a transaction.

Version notes:
  v2: PRODUCER_FENCED, which older clients know as INVALID_PRODUCER_EPOCH. v3: flexible.
  v4: TRANSACTION_ABORTABLE. Clients of transaction version 2 do without it.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_group, require_transactional_id
from kbroker.api.transactions import offsets_partition, older_code, producer_of
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ, WRITE
from kbroker.txn.slot import Slot
from kbroker.txn.steps import Add

_FIRST_FENCED: Final = 2


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code}


@register(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, failed=_failed)
def add_offsets_to_txn(request: Any, context: Context) -> Response:
    """Answer an AddOffsetsToTxn request."""
    name = request.transactional_id
    require_transactional_id(context, WRITE, name)
    require_group(context, READ, request.group_id)
    asked = Add(producer_of(request), [offsets_partition(context, request.group_id)], 0)

    def operation(slot: Slot, now_ms: int) -> Response:
        context.transactions.add(slot, name, asked, now_ms)
        return {}

    def failed(code: ErrorCode) -> Response:
        return _failed(request, older_code(code, context.version, _FIRST_FENCED), "")

    return context.transactions.perform(name, operation, context.answer, failed)
