"""Rights that the data plane asks for, before a Produce, Fetch, ListOffsets or Heartbeat
(kbroker.ext.rights).

What is not in the table of a connection comes here with the request, once; later requests of the
connection are judged by the network thread alone, until ACLs change. So that the audit goes on to
tell of who tries again and again what is denied, all tables are out of date some seconds after
anybody was denied something: it tells of a topic once a connection and so many seconds.
"""

from __future__ import annotations

from typing import Final

from kbroker.api.addresses import java_address
from kbroker.api.answer import RequestPort
from kbroker.api.authorizing import tell_data_plane, version_of
from kbroker.api.context import Services
from kbroker.api.transactions import verify_produce
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from kbroker.security import acls

# By the number of kbroker.ext.rights.Right: what is done to what.
_RIGHTS: Final = (
    (acls.WRITE, acls.TOPIC),
    (acls.READ, acls.TOPIC),
    (acls.DESCRIBE, acls.TOPIC),
    (acls.READ, acls.GROUP),
    (acls.WRITE, acls.TRANSACTIONAL_ID),
    (acls.CLUSTER_ACTION, acls.CLUSTER),
)
_DENIED: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
TOLD_AGAIN_MS: Final = 5_000
# Other handlers tell of it.
_TOLD: Final = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.LIST_OFFSETS)})


def settle_rights(request: RequestPort, services: Services) -> bool:
    """Fill in what is asked; whether anything was."""
    authorizer = services.authorizer
    if authorizer is None:
        return False
    version = version_of(authorizer)
    asked = request.asked(version)
    if not asked:
        return False
    who = str(services.principals.principal(request.principal))
    host = java_address(request.peer[0])[1:]
    rulings = []
    for right, name in asked:
        operation, resource_type = _RIGHTS[right]
        if resource_type == acls.CLUSTER:
            name = acls.CLUSTER_NAME  # noqa: PLW2901  it has none there
        found = authorizer.decide(who, host, operation, resource_type, name)
        rulings.append(found.allowed)
        if not found.allowed and request.api_key in _TOLD:
            api = ApiKey(request.api_key).name
            services.audit.denied(who, host, api, (operation, resource_type, name), found)
    request.settle(rulings, version)
    return True


class Denials:
    """Whether the data plane has denied anything since the last look."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._looked_ms = services.clock.monotonic_ms()
        self._count = 0

    def tick(self) -> None:
        """On the control thread, now and then."""
        authorizer, now_ms = self._services.authorizer, self._services.clock.monotonic_ms()
        if authorizer is None or now_ms - self._looked_ms < TOLD_AGAIN_MS:
            return
        self._looked_ms = now_ms
        counts = self._services.data_plane.errors()
        count = sum(one.get(code, 0) for one in counts for code in _DENIED)
        if count != self._count:
            self._count = count
            authorizer.renew()
            tell_data_plane(self._services)


def go_on_with_produce(request: RequestPort, services: Services) -> None:
    """A Produce comes for its rights first; where it opens a transaction, once more for that."""
    if settle_rights(request, services):
        request.go_on()
    else:
        verify_produce(request, services)


def go_on_with_rights(request: RequestPort, services: Services) -> None:
    """A Fetch or a ListOffsets comes for its rights alone."""
    settle_rights(request, services)
    request.go_on()
