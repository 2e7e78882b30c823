"""TLS of a broker's listeners, where one has it: a start without loads nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config import BrokerConfig
from kbroker.config.listeners import TLS_PROTOCOLS
from kbroker.ext.engine import Engine

if TYPE_CHECKING:
    from kbroker.security.tls import TlsListeners


def tls_listeners(config: BrokerConfig, engine: Engine) -> TlsListeners | None:
    """What the listeners show and trust, given to the engine that has them. None where no listener
    has TLS. Raises ConfigError."""
    if all(one.protocol not in TLS_PROTOCOLS for one in config.listeners):
        return None
    from kbroker.api import client_certificates  # noqa: F401, PLC0415  see above
    from kbroker.security.tls import TlsListeners  # noqa: PLC0415  as above

    made = TlsListeners(config, config.listeners, engine.set_tls)
    made.install()
    return made
