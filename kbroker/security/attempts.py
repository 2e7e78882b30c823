"""A bound on what clients cost that show tokens which are not valid, by address.

Checking a signature costs more than sending one, and happens before the client is known. So each
address may fail so often at once, and then so often a second; beyond that its tokens are refused
unread. Tokens that are valid cost nothing of it: many clients of one machine may come together.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from kbroker.clock import Clock

FAILURES_BURST: Final = 100
FAILURES_PER_S: Final = 50
ADDRESSES_MAX: Final = 10_000
"""Of those that are remembered; the one whose last failure is longest ago is forgotten first."""
_MS: Final = 1000
_NETWORK_BITS: Final = 64
"""Of an IPv6 address: a client may have all that begin so."""


class FailureLimit:
    """Failures by address. The control thread owns it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def allows(self, address: str) -> bool:
        """Whether another token of the address may be looked at."""
        return self._failures(_network(address)) + 1 <= FAILURES_BURST

    def failed(self, address: str) -> None:
        """One of its tokens was not valid."""
        key = _network(address)
        self._addresses[key] = (self._failures(key) + 1, self._clock.monotonic_ms())
        self._addresses.move_to_end(key)
        if len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)

    def _failures(self, key: str) -> float:
        """Those that still count."""
        count, at_ms = self._addresses.get(key, (0.0, 0))
        passed_ms = self._clock.monotonic_ms() - at_ms
        return max(count - passed_ms * FAILURES_PER_S / _MS, 0.0)


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        whole = int(ipaddress.IPv6Address(address.partition("%")[0]))
    except ValueError:
        return address
    return f"{whole >> (128 - _NETWORK_BITS):x}"
