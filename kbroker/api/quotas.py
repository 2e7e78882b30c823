"""Quotas between the metadata, the data plane and the handlers.

The data plane decides of bytes, of time and of new connections by itself, from the limits that are
pushed down here; mutations are counted by the handlers that make them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kbroker.metadata.image import QuotaEntity
from kbroker.security.principals import USER, Principal
from kbroker.security.quotas import (
    ABSENT,
    CONNECTION_RATE,
    IP,
    MUTATION_RATE,
    MutationQuota,
    Mutations,
    pair_of,
)

if TYPE_CHECKING:
    from kbroker.api.context import Context, Services
    from kbroker.api.hosts import Found

# In the place of a user's number: the default of all users, and an entity without one.
_DEFAULT_USER: Final = -1
_NO_USER: Final = -2


def mutations_of(services: Services) -> Mutations:
    """The quotas on mutations, with their windows."""
    config = services.config
    return Mutations(
        config.integer("controller.quota.window.num"),
        config.integer("controller.quota.window.size.seconds"),
    )


def mutation_quota(context: Context, strict_since: int) -> MutationQuota:
    """What this request may create or delete. Older versions know no error for too much."""
    return context.services.mutations.quota(
        context.principal.name,
        context.client_id or "",
        context.services.clock.monotonic_ms(),
        strict=context.version >= strict_since,
    )


def publish_quotas(services: Services, entities: Iterable[QuotaEntity] | None = None) -> None:
    """Have the quotas of these entities hold as they are now; None: all there are."""
    image = services.image.quotas
    addresses = False
    for entity in image if entities is None else entities:
        if any(kind == IP for kind, _ in entity):
            addresses = True
            continue
        _publish(services, entity)
    if addresses:
        limit_addresses(services)


def _publish(services: Services, entity: QuotaEntity) -> None:
    user, client_id = pair_of(entity)
    quotas = services.image.quotas.get(entity, {})
    record = quotas.get(MUTATION_RATE)
    services.mutations.limits.put((user, client_id), None if record is None else record.value)
    values = {key: record.value for key, record in quotas.items()}
    name = None if client_id is None else client_id.encode()
    services.data_plane.set_quotas(_number_of(services, user), name, values)


def _number_of(services: Services, user: str | None) -> int:
    """As the data plane knows a user."""
    if user is None:
        return _DEFAULT_USER
    if user == ABSENT:
        return _NO_USER
    return services.principals.number(Principal(USER, user), keep=True)


def limit_addresses(services: Services, found: Found | None = None) -> None:
    """How many connections addresses may make; a host without an address has no limit, and one
    whose address takes long gets it later."""
    rates: dict[str | None, float] = {}
    for entity, quotas in services.image.quotas.items():
        names = dict(entity)
        if IP in names and CONNECTION_RATE in quotas:
            rates[names[IP]] = quotas[CONNECTION_RATE].value
    hosts = [host for host in rates if host is not None]
    if found is None or not set(hosts) <= found.keys():
        found = services.hosts.look_up(hosts, lambda late: limit_addresses(services, late))
    services.data_plane.limit_addresses(
        rates.get(None), [(one, rates[host]) for host in hosts for one in found.get(host, ())]
    )
