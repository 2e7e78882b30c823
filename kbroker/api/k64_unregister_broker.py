"""UnregisterBroker: forget a broker that is gone (KIP-631).

Behavior: a broker that the directory remembers from its time in a larger cluster is forgotten, and
what it led has no leader. This broker is registered anew in the same step: in Apache Kafka it would
lead nothing until it is started again.

Version notes:
  v0: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api import publish
from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata import builders
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER


@register(ApiKey.UNREGISTER_BROKER, 0, 0, changes=True)
def unregister_broker(request: Any, context: Context) -> Steps[Response]:
    """Answer an UnregisterBroker request."""
    require_cluster(context, ALTER)
    store, node = context.services.store, request.broker_id
    if node not in context.image.brokers:
        text = f"Broker ID {node} is not currently registered"
        raise ClientError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)

    def take_effect() -> None:
        context.changed("broker unregistered", node=node)
        publish.tell_versions(context.services)

    if node == context.node_id:
        records = builders.register_again(context.image, node, store.next_offset + 1)
    else:
        records = builders.unregister_broker(context.image, node)
    yield store.append(records, take_effect)
    return {"error_message": None}
