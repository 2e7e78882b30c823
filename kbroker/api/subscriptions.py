"""Subscriptions to the metrics of clients, as the metadata has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config.client_metrics import subscription
from kbroker.telemetry import Subscription

if TYPE_CHECKING:
    from kbroker.api.context import Services


def subscriptions_of(services: Services) -> list[Subscription]:
    """All of them."""
    image = services.image
    return [
        Subscription(*subscription(image.configs(resource)))
        for resource in image.config_resources()
        if resource[0] == "client_metrics"
    ]
