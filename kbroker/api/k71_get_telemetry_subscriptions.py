"""GetTelemetrySubscriptions: which metrics a client is to push, and how often (KIP-714).

Behavior: offered where kbroker.client.telemetry is set. A client without an id gets one; who asks
again before the interval is over is told THROTTLING_QUOTA_EXCEEDED.

Deviation: sums since the client's start are asked for, where Apache Kafka asks for what was added
since the last push: here the last push is kept.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.protocol import ApiKey
from kbroker.telemetry import ACCEPTED

_UNKNOWN: Final = "unknown"  # what Apache Kafka takes for software that a client does not tell


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "client_instance_id": None}


@register(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, failed=_failed)
def get_telemetry_subscriptions(request: Any, context: Context) -> Response:
    """Answer a GetTelemetrySubscriptions request."""
    services = context.services
    now_ms = services.clock.monotonic_ms()
    instance = services.telemetry.ask(request.client_instance_id, attributes_of(context), now_ms)
    return {
        "client_instance_id": instance.id,
        "subscription_id": instance.subscription_id,
        "accepted_compression_types": ACCEPTED,
        "push_interval": instance.interval_ms,
        "telemetry_max_bytes": services.telemetry.bytes_max,
        "delta_temporality": False,
        "requested_metrics": instance.metrics,
    }


def attributes_of(context: Context) -> dict[str, str]:
    """What patterns of subscriptions may ask of a client, but for the id of its instance."""
    _, port = context.peer
    name, version = context.software
    return {
        "client_id": context.client_id or "",
        "client_software_name": name or _UNKNOWN,
        "client_software_version": version or _UNKNOWN,
        "client_source_address": context.host,
        "client_source_port": str(port),
    }
