"""The audit: who was refused what, and what administrators changed.

Lines of the broker's log, logger `kbroker.audit`, in whatever form the log has:

    msg=denied principal=User:eve host=10.0.0.1 api=FETCH operation=READ resource=TOPIC name=orders
        rule="no ACL of the resource allows it"
    msg="topic created" principal=User:alice host=10.0.0.1 api=CREATE_TOPICS topic=orders

Both kinds are bounded, each for itself: a burst, then so many lines a second. How many were left
out is told a second later (msg="denied, more", `left_out`). Values are cut and escaped: clients
choose most of them. No caller hands over a secret: settings are told by their names.
"""

from __future__ import annotations

import logging
from typing import Final

from kbroker.bounded_log import LineBound
from kbroker.clock import Clock
from kbroker.printable import one_line
from kbroker.security.acls import OPERATIONS, RESOURCES, Decision

_LOG: Final = logging.getLogger("kbroker.audit")
_VALUE_MAX_CHARS: Final = 300


class Audit:
    """See the module. The control thread's."""

    def __init__(self, clock: Clock) -> None:
        self._refused, self._changed = LineBound(clock), LineBound(clock)

    def denied(
        self, who: str, host: str, api: str, asked: tuple[int, int, str], found: Decision
    ) -> None:
        """Somebody may not do what they asked for: operation, type and name of the resource."""
        operation, resource_type, name = asked
        self.refused(
            "denied",
            principal=who,
            host=host,
            api=api,
            operation=OPERATIONS[operation],
            resource=RESOURCES[resource_type],
            name=name,
            rule=found.rule,
        )

    def refused(self, what: str, **fields: object) -> None:
        """Somebody may not, or is not who they say."""
        _tell(self._refused, what, fields)

    def changed(self, what: str, **fields: object) -> None:
        """An administrator has changed something."""
        _tell(self._changed, what, fields)

    def tell_dropped(self) -> None:
        """How many there were without a line; about once a second."""
        for what, bound in (("denied", self._refused), ("changed", self._changed)):
            left_out = bound.left_out()
            if left_out:
                _LOG.info(f"{what}, more", extra={"fields": {"left_out": str(left_out)}})


def _tell(bound: LineBound, what: str, fields: dict[str, object]) -> None:
    if not _LOG.isEnabledFor(logging.INFO):
        return
    if not bound.take():
        return
    told = {name: one_line(str(value), _VALUE_MAX_CHARS) for name, value in fields.items()}
    _LOG.info(what, extra={"fields": told})
