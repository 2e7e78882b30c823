"""Producer ids: from blocks of 1000 that the metadata log records before the first is given out, so
that none is given out twice, whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata import builders
from kbroker.operations import Completion

if TYPE_CHECKING:
    from kbroker.api.context import Services

_PREFETCH: Final = 100
"""Ids left of a block when the next one is recorded."""


class ProducerIds:
    """The ids that this broker may give out. Owned by the control thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._left: list[int] = []  # in descending order
        self._recording: Completion[None] | None = None

    def take(self) -> int:
        """Return an id that no producer has had. Raises ClientError while none is left, as the
        broker of Apache Kafka does until its controller answers."""
        self._record_ahead()
        if not self._left:
            raise ClientError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._left.pop()

    def available(self) -> Completion[None]:
        """Return the completion that is set when there is an id to take."""
        self._record_ahead()
        if self._left or self._recording is None:
            return Completion.of(None)
        return self._recording

    def _record_ahead(self) -> None:
        if len(self._left) > _PREFETCH or self._recording is not None:
            return
        services = self._services
        records, block = builders.allocate_producer_ids(services.image, services.config.node_id)

        def taken() -> None:
            ids = range(block.first, block.first + block.size)
            self._left = [*reversed(ids), *self._left]

        self._recording = services.store.append(records, taken)
        self._recording.on_done(lambda _: setattr(self, "_recording", None))
