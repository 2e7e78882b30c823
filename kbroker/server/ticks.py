"""What the control thread does every second."""

from __future__ import annotations

from collections.abc import Callable

from kbroker.api.context import Services
from kbroker.api.data_rights import Denials
from kbroker.api.delegation import PrincipalSweep, TokenSweep
from kbroker.api.dispatch import Dispatcher
from kbroker.api.recreation import Recreations
from kbroker.metadata.store import MetadataStore
from kbroker.server.control import FullCollection
from kbroker.server.disk_failure import FlushesPutOff
from kbroker.server.slow import SlowRequests


def ticks_of(
    services: Services, store: MetadataStore, dispatcher: Dispatcher, slow: SlowRequests
) -> tuple[Callable[[], object], ...]:
    """Return what is to be called every second."""
    return (
        slow.tick,
        dispatcher.tell_dropped,
        dispatcher.drop_gone,
        services.authentication.refusals.tell_dropped,
        services.audit.tell_dropped,
        store.snapshot_when_due,
        TokenSweep(services).tick,
        PrincipalSweep(services).tick,
        Denials(services).tick,
        FlushesPutOff(services.logs, services.clock).tick,
        FullCollection(services.operations, services.clock).tick,
        Recreations(services).tick,
    )
