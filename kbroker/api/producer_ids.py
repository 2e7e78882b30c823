"""Producer ids: from blocks of 1000 that the metadata log records before the first is given out, so
that none is given out twice, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.metadata import builders

if TYPE_CHECKING:
    from kbroker.api.context import Services


def next_producer_id(services: Services) -> int:
    """An id that nobody has had."""
    if not services.producer_ids:
        records, block = builders.allocate_producer_ids(services.image, services.config.node_id)
        services.store.append(records)
        services.producer_ids = range(block.first, block.first + block.size)
    given, services.producer_ids = services.producer_ids[0], services.producer_ids[1:]
    return given
