"""FindCoordinator: which broker coordinates a group or a transactional id.

Behavior: this one; the topic in which the coordinator keeps its state is created where it is
missing. Where it cannot be, as a setting of the broker does not do for it, the log says so, and
nobody coordinates: COORDINATOR_NOT_AVAILABLE. Key types are 0 for groups and 1 for transactional
ids; others are refused with INVALID_REQUEST, as Apache Kafka refuses share groups where they are
not enabled.

Version notes:
  v0: groups only. v1: key types. v3: flexible. v4: several keys at a time. v6: share groups.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, require_cluster
from kbroker.api.topic_creation import create_automatically
from kbroker.api.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kbroker.errors import ErrorCode
from kbroker.operations import OperationTimeoutError, Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import CLUSTER_ACTION, DESCRIBE, GROUP, TRANSACTIONAL_ID

_LOG: Final = logging.getLogger("kbroker.api")
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_TOPICS = {_GROUP: CONSUMER_OFFSETS, _TRANSACTION: TRANSACTION_STATE}
_RESOURCES: Final = {
    _GROUP: (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    _TRANSACTION: (TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
_FIRST_WITH_BATCHES = 4
_FIRST_WITH_SHARE = 6


def _failed(request: Any, code: int, message: str) -> Response:
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        return _nobody(code, message)
    return {"coordinators": [{"key": key, **_nobody(code, message)} for key in keys]}


def _timeout_ms(_request: Any, _context: Context) -> int:
    return 1_000


@register(ApiKey.FIND_COORDINATOR, 0, 6, failed=_failed, timeout=_timeout_ms)
def find_coordinator(request: Any, context: Context) -> Steps[Response]:
    """Answer a FindCoordinator request."""
    key_type = getattr(request, "key_type", _GROUP)
    if key_type not in _TOPICS:
        told = key_type != _SHARE or context.version < _FIRST_WITH_BATCHES
        message = f"There are no coordinators of key type {key_type}." if told else ""
        if key_type == _SHARE and context.version >= _FIRST_WITH_SHARE:
            require_cluster(context, CLUSTER_ACTION)
        return _failed(request, ErrorCode.INVALID_REQUEST, message)
    is_one = context.version < _FIRST_WITH_BATCHES
    keys = [getattr(request, "key", "")] if is_one else request.coordinator_keys
    resource_type, hidden_code = _RESOURCES[key_type]
    hidden = yield from denied_steps(context, DESCRIBE, resource_type, keys)
    refused = yield from collect(
        {"key": key, **_nobody(hidden_code, "")} for key in keys if key in hidden
    )
    if len(refused) == len(keys):
        text = hidden_code.message
        return _nobody(hidden_code, text) if is_one and keys else {"coordinators": refused}
    if not (yield from _has_topic(context, _TOPICS[key_type])):
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _failed(request, code, code.message if is_one else "")
    endpoint = context.endpoint
    here = {
        "node_id": context.node_id,
        "host": endpoint.host,
        "port": endpoint.port,
        "error_message": "NONE" if is_one else "",
    }
    if is_one:
        return here
    found = yield from collect({"key": key, **here} for key in keys if key not in hidden)
    return {"coordinators": [*refused, *found]}


def _has_topic(context: Context, topic: str) -> Steps[bool]:
    """Create the coordinator's topic where it is missing, and wait a little for its logs: requests
    to the coordinator are refused before. Whether it is there."""
    try:
        for fault in (yield create_automatically(context.services, [topic])):
            _tell(topic, fault.code.name, str(fault))
            return False
        offered = context.services.offering.get(topic)
        if offered is not None:
            yield offered
    except OperationTimeoutError:
        pass
    return topic in context.image.topics


@functools.lru_cache(maxsize=8)
def _tell(topic: str, name: str, reason: str) -> None:
    """Once for each reason: clients ask again and again."""
    _LOG.error("the topic %s cannot be created: %s: %s", topic, name, reason)


def _nobody(code: int, message: str) -> dict[str, Any]:
    return {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": code,
        "error_message": message,
    }
