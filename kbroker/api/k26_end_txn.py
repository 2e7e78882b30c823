"""EndTxn: commit or abort a transaction.

Behavior: answered when the decision is on disk; the markers follow.

Version notes:
  v2: PRODUCER_FENCED, which older clients know as INVALID_PRODUCER_EPOCH. v3: flexible.
  v4: TRANSACTION_ABORTABLE. v5: transaction version 2, the answer has the epoch to go on in.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_transactional_id
from kbroker.api.transactions import older_code, producer_of
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from kbroker.security.acls import WRITE
from kbroker.txn.slot import Slot
from kbroker.txn.steps import End

_FIRST_FENCED: Final = 2
_FIRST_WITH_EPOCH: Final = 5


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code}


@register(ApiKey.END_TXN, 0, 5, failed=_failed)
def end_txn(request: Any, context: Context) -> Response:
    """Answer an EndTxn request."""
    name = request.transactional_id
    require_transactional_id(context, WRITE, name)
    version = 2 if context.version >= _FIRST_WITH_EPOCH else 0
    asked = End(producer_of(request), request.committed, version)

    def operation(slot: Slot, now_ms: int) -> Response:
        after = context.transactions.end(slot, name, asked, now_ms)
        return {"producer_id": after.id, "producer_epoch": after.epoch}

    def failed(code: ErrorCode) -> Response:
        return _failed(request, older_code(code, context.version, _FIRST_FENCED), "")

    return context.transactions.perform(name, operation, context.answer, failed, patient=False)
