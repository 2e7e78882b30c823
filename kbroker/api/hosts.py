"""Addresses of the hosts that max.connections.per.ip.overrides and quotas name.

A resolver takes many seconds for a name that nobody answers for, and there may be many. So names
are looked up on a thread of their own, and the control thread waits for it no longer than a look
into /etc/hosts takes.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final

from kbroker.ext.engine import name_thread

_LOG: Final = logging.getLogger("kbroker.api")
_MAPPED: Final = socket.AI_V4MAPPED | socket.AI_ALL
_WAIT_S: Final = 0.05

Found = dict[str, list[bytes]]
"""By host its addresses, IPv4 ones mapped, as 16 bytes."""


class Hosts:
    """The control thread's; one look-up at a time."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` has something done on the control thread, soon."""
        self._post = post
        self._busy = False
        self._unknown: set[str] = set()
        """Hosts without an address of which was told; the look-up's."""

    def look_up(self, hosts: Iterable[str], later: Callable[[Found], None]) -> Found:
        """What is soon found. Where a name is among the hosts, `later` gets all of it; while an
        earlier look-up is under way, that one's `later` what it was about."""
        found: Found = {}
        names = []
        for host in hosts:
            try:
                found[host] = _addresses(host, socket.AI_NUMERICHOST)
            except (OSError, UnicodeError):
                names.append(host)
        if not names or self._busy:
            return found
        self._busy = True
        named: Found = {}

        def run() -> None:
            self._look_up(names, named)
            self._post(done)

        def done() -> None:
            self._busy = False
            later(found | named)

        thread = threading.Thread(target=run, name="hosts", daemon=True)
        thread.start()
        thread.join(_WAIT_S)
        return found if thread.is_alive() else found | named

    def _look_up(self, names: Iterable[str], found: Found) -> None:
        name_thread("kbroker-hosts")
        for name in names:
            try:
                found[name] = _addresses(name)
                self._unknown.discard(name)
            except (OSError, UnicodeError) as error:
                found[name] = []
                if name not in self._unknown:  # they are all looked up with every change
                    self._unknown.add(name)
                    _LOG.warning("no address of %s, so its limits hold for nobody: %s", name, error)


def _addresses(host: str, flags: int = 0) -> list[bytes]:
    found = socket.getaddrinfo(host, None, socket.AF_INET6, flags=_MAPPED | flags)
    texts = {str(address[0]).partition("%")[0] for *_, address in found}
    return [socket.inet_pton(socket.AF_INET6, text) for text in sorted(texts)]
