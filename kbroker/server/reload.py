"""SIGHUP: the settings file is read again, and what may change while the broker runs does.

These are the keys that can be altered for all brokers at run time, with their other units
(log.retention.hours), those of TLS, and those of the log. What else changed in the file is told in
the log and waits for the next start. Settings altered at run time win over the file, as always. A
file with a mistake changes nothing. Key stores are read again, whether or not their settings
changed. Where an option of the command line sets a key, the file's value never counted.
"""

from __future__ import annotations

import logging
from typing import Final

from kbroker.api import publish
from kbroker.api.context import Services
from kbroker.config import BrokerConfig
from kbroker.config.broker import SYNONYMS
from kbroker.config.definitions import find_broker_key
from kbroker.config.definitions_kbroker import LOG_FORMAT, LOG_LEVEL
from kbroker.config.types import CLUSTER_WIDE, PER_BROKER
from kbroker.server.lines import configure_log

_LOG: Final = logging.getLogger("kbroker.server")
_LOG_KEYS: Final = frozenset({LOG_FORMAT, LOG_LEVEL})
_OTHER_UNITS: Final = frozenset(name for names in SYNONYMS for name in names)
_DERIVED: Final = frozenset({"node.id", "broker.id"})  # from the data directory where not set


def take_over(services: Services, fresh: BrokerConfig) -> list[str]:
    """On the control thread: the names of the settings that have changed.

    Raises ConfigError, and changes nothing, where they do not fit the settings made at run time.
    """
    config = services.config
    differing = [
        name
        for name in sorted(config.static.keys() | fresh.static.keys())
        if config.static.get(name) != fresh.static.get(name)
        and (name in fresh.static or name not in _DERIVED)
    ]
    taken = [name for name in differing if _may_change(name)]
    held = [name for name in differing if name not in taken]
    if held:
        _LOG.warning("reload: with the next start: %s", ", ".join(held))
    if taken:
        config.replace_static({name: fresh.static.get(name) for name in taken}, fresh)
        configure_log(config)
        publish.reload_broker_settings(services)
    elif services.tls is not None:
        services.tls.reload()  # the same settings may name other files
    return taken


def _may_change(name: str) -> bool:
    key = find_broker_key(name)
    return key is not None and (
        key.update_mode == CLUSTER_WIDE
        or name in _OTHER_UNITS
        or name in _LOG_KEYS
        or (key.update_mode == PER_BROKER and key.name.startswith("ssl."))
    )
