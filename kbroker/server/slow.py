"""Slow requests, told in the log with the time of each phase.

What a request waits for on purpose does not count: a fetch that waits for records, a member that
waits for others. A produce that waits for the disk does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kbroker.printable import host_port
from kbroker.server.observe_requests import PHASES, api_name

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.ext.engine import Engine

_LOG: Final = logging.getLogger("kbroker.slow")
_SETTING: Final = "kbroker.slow.request.ms"
_NS_PER_MS: Final = 1e6


class SlowRequests:
    """Tells the data plane what is slow, and the log what was. The control thread's."""

    def __init__(self, engine: Engine, config: BrokerConfig) -> None:
        self._engine = engine
        self._config = config

    def tick(self) -> None:
        """From time to time; the setting may have changed meanwhile."""
        self._engine.set_slow_ms(self._config.integer(_SETTING))
        for key, version, correlation, connection, peer, phases in (
            self._engine.next_slow_requests()
        ):
            told = {
                f"{phase}_ms": round(ns / _NS_PER_MS, 3)
                for (phase, _), ns in zip(PHASES, phases, strict=True)
            }
            fields = {
                "api": api_name(key),
                "version": version,
                "client": host_port(*peer),
                "connection": connection,
                "correlation": correlation,
                **told,
            }
            _LOG.warning("slow request", extra={"fields": fields})
