"""Rights that the data plane asks for, before a Produce, Fetch or Heartbeat (kbroker.ext.rights).

What is not in the table of a connection comes here with the request, once; later requests of the
connection are judged by the network thread alone, until ACLs change. So the audit tells of a
topic that may not be read or written once a connection and change, and not at each request.
"""

from __future__ import annotations

from typing import Final

from kbroker.api.addresses import java_address
from kbroker.api.answer import RequestPort
from kbroker.api.authorizing import version_of
from kbroker.api.context import Services
from kbroker.api.transactions import verify_produce
from kbroker.protocol import ApiKey
from kbroker.security import acls

# By the number of kbroker.ext.rights.Right: what is done to what.
_RIGHTS: Final = (
    (acls.WRITE, acls.TOPIC),
    (acls.READ, acls.TOPIC),
    (acls.READ, acls.GROUP),
    (acls.WRITE, acls.TRANSACTIONAL_ID),
    (acls.CLUSTER_ACTION, acls.CLUSTER),
)
_TOLD: Final = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})  # other handlers tell of it


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


def go_on_with_produce(request: RequestPort, services: Services) -> None:
    """A Produce comes for its rights first; where it opens a transaction, once more for that."""
    if settle_rights(request, services):
        request.go_on()
    else:
        verify_produce(request, services)


def go_on_with_fetch(request: RequestPort, services: Services) -> None:
    """A Fetch comes for its rights alone."""
    settle_rights(request, services)
    request.go_on()
