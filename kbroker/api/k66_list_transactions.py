"""ListTransactions: transactional ids by state, producer id, duration and pattern.

Version notes:
  v1: duration (KIP-994). v2: a regular expression that names the whole id (KIP-1152), in RE2's
  syntax, as Apache Kafka's (RE2/J), so that no client can stall the broker with one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.errors import ErrorCode
from kbroker.group.consumer.regex import full_match
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, TRANSACTIONAL_ID
from kbroker.txn.transaction import State, Transaction

_STATES = {state.label: state for state in State}


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code}


@register(ApiKey.LIST_TRANSACTIONS, 0, 2, failed=_failed)
def list_transactions(request: Any, context: Context) -> Steps[Response]:
    """Answer a ListTransactions request."""
    found = context.transactions.all_transactions()
    is_wanted = _filter(request, context.services.clock.wall_ms())
    states = []
    for name, transaction in found:
        yield
        if is_wanted(name, transaction) and context.may(
            DESCRIBE, TRANSACTIONAL_ID, name, tell=False
        ):
            states.append({
                "transactional_id": name,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state.label,
            })  # fmt: skip
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": [
            name for name in dict.fromkeys(request.state_filters) if name not in _STATES
        ],
        "transaction_states": states,
    }


def _filter(request: Any, now_ms: int) -> Callable[[str, Transaction], bool]:
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    ids = frozenset(request.producer_id_filters)
    longer_ms = getattr(request, "duration_filter", -1)
    pattern = getattr(request, "transactional_id_pattern", None)
    matches = full_match(pattern) if pattern else None

    def is_wanted(name: str, one: Transaction) -> bool:
        return (
            (not ids or one.producer_id in ids)
            and (not request.state_filters or one.state in states)
            and (longer_ms < 0 or now_ms - one.started_ms > longer_ms)
            and (matches is None or bool(matches(name)))
        )

    return is_wanted
