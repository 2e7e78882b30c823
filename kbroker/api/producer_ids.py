"""Producer ids: from blocks of 1000 that the metadata log records before the first is given out, so
that none is given out twice, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata import builders

if TYPE_CHECKING:
    from kbroker.api.context import Services


def next_producer_id(services: Services) -> int:
    """An id that nobody has had. Raises ClientError where none is left and the disk hangs: as the
    broker of Apache Kafka while its controller gives it no block."""
    if not services.producer_ids:
        _allocate(services)
    given, services.producer_ids = services.producer_ids[0], services.producer_ids[1:]
    return given


def _allocate(services: Services) -> None:
    records, block = builders.allocate_producer_ids(services.image, services.config.node_id)

    def take() -> None:
        services.producer_ids = range(block.first, block.first + block.size)

    try:
        services.store.append(records, take)
    except ClientError:
        raise ClientError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
