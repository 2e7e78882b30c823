"""Who the owner of a client's certificate is: asked by the data plane after a TLS handshake.

The body is the certificate's subject (DER). What ssl.principal.mapping.rules make of it is the
user; where no rule fits, or the subject is none, the connection is closed, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from typing import Final

from kbroker.api.answer import RequestPort
from kbroker.api.context import Services
from kbroker.api.registry import register_inner
from kbroker.printable import host_port
from kbroker.security.principals import USER, Principal

_LOG: Final = logging.getLogger("kbroker.security")
_IDENTITY: Final = -2


@register_inner(_IDENTITY, 0)
def identify(request: RequestPort, services: Services) -> None:
    """Say whose connection this is from here on."""
    assert services.tls is not None
    try:
        user = services.tls.user_of(request.listener, request.body)
    except ValueError as error:
        peer = host_port(*request.peer)
        _LOG.warning("closing %s: its certificate's subject: %s", peer, error)
        user = None
    else:
        if user is None:
            _LOG.warning(
                "closing %s: no rule of ssl.principal.mapping.rules fits its certificate",
                host_port(*request.peer),
            )
    if user is None:
        request.close()
        return
    request.identify(services.principals.number(Principal(USER, user)))
    request.respond_nothing()
