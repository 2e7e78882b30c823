"""PushTelemetry: metrics of a client (KIP-714).

Behavior: offered where kbroker.client.telemetry is set. The bytes are kept as they came; nothing is
decompressed or read before somebody asks for it, within bounds.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.k71_get_telemetry_subscriptions import attributes_of
from kbroker.api.registry import Response, register
from kbroker.protocol import ApiKey


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code}


@register(ApiKey.PUSH_TELEMETRY, 0, 0, failed=_failed)
def push_telemetry(request: Any, context: Context) -> Response:
    """Answer a PushTelemetry request."""
    services = context.services
    services.telemetry.push(
        request.client_instance_id,
        attributes_of(context),
        request.subscription_id,
        request.compression_type,
        bytes(request.metrics),
        request.terminating,
        services.clock.monotonic_ms(),
    )
    return {}
