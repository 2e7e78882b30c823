"""InitProducerId: a producer id for an idempotent producer.

Behavior: ids come from blocks of 1000 that the metadata log records before the first one is given
out, so that none is given out twice, whatever happens. Without a transactional id every request
gets a fresh id with epoch 0, whatever id the producer had before.

Version notes:
  v2: flexible. v3: the producer may tell its id and epoch. v4: PRODUCER_FENCED. v5: KIP-890.

Not done: transactional ids, which get UNSUPPORTED_VERSION (fatal to every client, and told as
such) until there is a transaction coordinator.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata import builders
from kbroker.protocol import ApiKey

_LOG: Final = logging.getLogger("kbroker.api")
_NONE = -1


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}


@register(ApiKey.INIT_PRODUCER_ID, 0, 5, failed=_failed)
def init_producer_id(request: Any, context: Context) -> Response:
    """Answer an InitProducerId request."""
    known_id = getattr(request, "producer_id", _NONE)
    known_epoch = getattr(request, "producer_epoch", _NONE)
    if (known_id == _NONE) != (known_epoch == _NONE):
        raise ClientError(ErrorCode.INVALID_REQUEST, "Producer id and epoch belong together.")
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise ClientError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        _LOG.warning(
            "client %s asks for transactional id %s: transactions are not supported",
            context.client_id,
            request.transactional_id,
        )
        raise ClientError(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not supported.")
    return {"producer_id": _next_id(context), "producer_epoch": 0}


def _next_id(context: Context) -> int:
    services = context.services
    if not services.producer_ids:
        records, block = builders.allocate_producer_ids(services.image, context.node_id)
        services.store.append(records)
        services.producer_ids = range(block.first, block.first + block.size)
    given, services.producer_ids = services.producer_ids[0], services.producer_ids[1:]
    return given
