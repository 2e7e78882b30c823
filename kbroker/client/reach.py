"""How brokers are reached: limits, pauses and names, and the log of attempts at each address.

`Reach` keeps for each address how often in a row it could not be connected to or did not answer in
time. The pause before the next attempt and the limit for connecting grow with that number, by a
random fifth more or less, as Kafka's clients do. Thread-safe: one lock, held for a few lines,
never while waiting.
"""

from __future__ import annotations

import copy
import logging
import os
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kbroker.client.address import Address, parse_address
from kbroker.client.again import again
from kbroker.client.connection import Connection
from kbroker.client.dialing import Endpoint, Endpoints
from kbroker.client.errors import (
    ConnectError,
    CorruptDataError,
    KafkaError,
    RequestTimeoutError,
    TlsError,
)
from kbroker.client.native_threads import Lock, of_socket
from kbroker.ext.client_clock import monotonic

if TYPE_CHECKING:
    from kbroker.client.config_common import ClientConfig
    from kbroker.client.tls import Tls
    from kbroker.ext.client_loop import ClientLoop

__all__ = [
    "BROKEN",
    "COUNTS",
    "ClusterSettings",
    "FinalFailure",
    "IdleLinks",
    "Limits",
    "Own",
    "PassingFailure",
    "Reach",
    "bootstrap_addresses",
    "growing",
]

T = TypeVar("T")

COUNTS = (
    "metadata-request-total", "rebootstrap-total", "request-retry-total",
)  # fmt: skip
"""Of a cluster's metrics."""
BROKEN = (ConnectError, RequestTimeoutError, CorruptDataError)
"""Errors of a connection, after which another broker or address is tried."""
_JITTER = 0.2
_LEAST_S = 0.001  # to connect: sockets take 0 for another thing
_FAIR_S = 0.1  # a broker in want of a CPU may be late by so much: its silence tells nothing
_WARNING_S = 60.0  # of an address no second one sooner

_log = logging.getLogger("kbroker.client.cluster")


class ClusterSettings(NamedTuple):
    """What a Cluster is told; seconds and bytes.

    call_timeout_s: limit of a call with its retries. patient: bootstrap addresses that cannot be
    reached are tried again within that limit; the command line says at once that nobody is there.
    login: authenticates a new connection. tls: None without. controllers: it is these that are
    spoken to.
    """

    client_id: str = "kbroker"
    timeout_s: float = 30.0
    call_timeout_s: float = 30.0
    patient: bool = False
    metadata_max_age_s: float = 300.0
    rebootstraps: bool = True
    rebootstrap_trigger_s: float = 300.0
    reconnect_backoff_s: float = 0.05
    reconnect_backoff_max_s: float = 1.0
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    setup_timeout_s: float = 30.0
    setup_timeout_max_s: float = 30.0
    idle_max_s: float = 540.0
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    canonical_names: bool = False
    login: Callable[[Connection], None] | None = None
    tls: Tls | None = None
    controllers: bool = False

    @classmethod
    def of(cls, config: ClientConfig) -> ClusterSettings:
        """Those that a client's configuration names."""
        login, tls = None, None
        if config.security_protocol.startswith("SASL"):
            from kbroker.client.sasl import login_of

            login = login_of(config)
        if config.security_protocol.endswith("SSL"):
            from kbroker.client.tls import tls_of

            tls = tls_of(config)
        canonical = config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only"
        idle_ms = config.connections_max_idle_ms
        given = config.given
        return cls(
            client_id=config.client_id,
            timeout_s=config.request_timeout_ms / 1e3,
            call_timeout_s=config.default_api_timeout_ms / 1e3,
            patient=True,
            metadata_max_age_s=config.metadata_max_age_ms / 1e3,
            rebootstraps=config.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_trigger_s=config.metadata_recovery_rebootstrap_trigger_ms / 1e3,
            reconnect_backoff_s=config.reconnect_backoff_ms / 1e3,
            reconnect_backoff_max_s=config.reconnect_backoff_max_ms / 1e3,
            retry_backoff_s=config.retry_backoff_ms / 1e3,
            retry_backoff_max_s=config.retry_backoff_max_ms / 1e3,
            setup_timeout_s=config.socket_connection_setup_timeout_ms / 1e3,
            setup_timeout_max_s=config.socket_connection_setup_timeout_max_ms / 1e3,
            idle_max_s=idle_ms / 1e3 if idle_ms >= 0 else float("inf"),
            # Kafka's defaults, once they are set, keep the system from growing a busy socket's
            # buffers, and every 64 KiB costs a wake-up. So only what the user said is set.
            send_buffer_bytes=config.send_buffer_bytes if "send_buffer_bytes" in given else -1,
            receive_buffer_bytes=(
                config.receive_buffer_bytes if "receive_buffer_bytes" in given else -1
            ),
            canonical_names=canonical,
            login=login,
            tls=tls,
            controllers=bool(getattr(config, "bootstrap_controllers", ())),
        )


def growing(first_s: float, most_s: float, failures: int) -> float:
    """first_s doubled with each failure but the first, up to most_s, a fifth more or less."""
    grown = first_s * 2.0 ** min(max(failures - 1, 0), 30)
    jittered = grown * random.uniform(1 - _JITTER, 1 + _JITTER) if grown else 0.0
    return min(jittered, most_s)


def bootstrap_addresses(servers: Iterable[str], *, canonical: bool) -> list[Address]:
    """Addresses as given, or with `canonical` those of the names that their addresses bear.

    Raises ValueError for one that is none. What cannot be resolved stays as it was given.
    """
    given = [parse_address(server) for server in servers if server.strip()]
    if not given:
        raise ValueError("no bootstrap server given; write HOST:PORT")
    if not canonical:
        return given
    found: dict[Address, None] = {}
    for address in given:
        try:
            told = of_socket("getaddrinfo")(address.host, address.port, type=socket.SOCK_STREAM)
            for *_, where in told:
                name, _ = of_socket("getnameinfo")(where, socket.NI_NUMERICSERV)
                found[Address(name, address.port)] = None
        except OSError:
            found[address] = None
    return list(found)


class _Attempts(NamedTuple):
    """Attempts that failed in a row, and before when (monotonic) there is to be no other. error:
    why the last one failed, after took_s; None: that is not known."""

    failures: int
    not_before_s: float
    error: KafkaError | None
    took_s: float


def _bare(error: KafkaError) -> KafkaError:
    """Without tracebacks, whose frames lead back to who keeps it: none is to need the garbage
    collector."""
    kept = again(error)
    kept.__cause__ = copy.copy(error.__cause__)
    return kept


class Reach:
    """The attempts at each address, and connecting."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._attempts: dict[Address, _Attempts] = {}
        self._warn_at_s: dict[Address, float] = {}
        self._endpoints = Endpoints()

    def pause_s(self, address: Address) -> float:
        """How long to wait before the next attempt."""
        with self._lock:
            known = self._attempts.get(address)
        return max(known.not_before_s - monotonic(), 0.0) if known else 0.0

    def pause_within(self, address: Address, left_s: Callable[[float], float]) -> float:
        """The same in a call that has so much time left; where that is too little for another
        attempt, why the last one failed is raised."""
        pause_s = self.pause_s(address)
        if left_s(pause_s) < pause_s:
            self.raise_last(address)
        return left_s(pause_s)

    def connect(
        self,
        address: Address,
        born: Callable[[Connection], None],
        left_s: Callable[[float], float],
    ) -> Connection:
        """An authenticated connection. born: see Connection. All of it within the limit for
        connecting, so that a node which takes connections and says nothing is found out; left_s:
        see Limits, whose call the connection's own answers keep to as well."""
        limit_s = max(left_s(self.setup_timeout_s(address)), _LEAST_S)
        began_s = monotonic()
        try:
            made = self._connect_any(address, born, left_s, began_s + limit_s)
        except KafkaError as error:
            took_s = monotonic() - began_s
            if isinstance(error.__cause__, TimeoutError):  # which is the call's limit, perhaps
                self.raise_last(address, longer_than_s=took_s - _FAIR_S)
            self.failed(address, error, took_s)
            raise
        self.reached(address)
        made.timeout_s = self._settings.timeout_s
        made.on_silence = self.failed
        return made

    def _connect_any(
        self,
        address: Address,
        born: Callable[[Connection], None],
        left_s: Callable[[float], float],
        deadline: float,
    ) -> Connection:
        """Connect to one of the endpoints of a name. One that takes connections and does not
        answer, or closes, gets its share of the time only, and the next one is tried."""
        endpoints = self._endpoints.of(address)
        used: list[Endpoint] = []

        def note(connection: Connection) -> None:
            used.append(connection.endpoint)
            born(connection)

        while True:
            limit_s = max(deadline - monotonic(), _LEAST_S)
            share_s = limit_s / len(endpoints)
            try:
                made = self._connect_one(address, endpoints, (limit_s, share_s), note, left_s)
            except KafkaError as error:
                if used:
                    self._endpoints.failed(address, used[-1])
                endpoints = [each for each in endpoints if each not in used]
                passes = isinstance(error, BROKEN) and not isinstance(error, TlsError)
                over = not used or not endpoints or monotonic() >= deadline
                if over or not passes or left_s(_LEAST_S) <= 0:
                    raise
                _log.info("%s: %s; trying its next address", address, error)
                used.clear()
            else:
                self._endpoints.worked(address, made.endpoint)
                return made

    def _connect_one(
        self,
        address: Address,
        endpoints: Sequence[Endpoint],
        limits_s: tuple[float, float],
        born: Callable[[Connection], None],
        left_s: Callable[[float], float],
    ) -> Connection:
        settings, (limit_s, share_s) = self._settings, limits_s
        made = Connection(
            address,
            tls=settings.tls,
            client_id=settings.client_id,
            timeout_s=min(settings.timeout_s, share_s),
            connect_timeout_s=limit_s,
            answer_timeout_s=share_s,
            endpoints=endpoints,
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            born=born,
            left_s=left_s,
        )
        if settings.login is not None:
            try:
                settings.login(made)
            except BaseException:
                made.close()
                raise
        return made

    def failures(self, address: Address) -> int:
        """Attempts and answers that failed since a connection stood."""
        with self._lock:
            known = self._attempts.get(address)
        return known.failures if known else 0

    def setup_timeout_s(self, address: Address) -> float:
        """The limit for connecting."""
        settings = self._settings
        return growing(
            settings.setup_timeout_s, settings.setup_timeout_max_s, self.failures(address) + 1
        )

    def failed(
        self, address: Address, error: KafkaError | None = None, took_s: float = 0.0
    ) -> None:
        """The address could not be reached, or did not answer in time."""
        settings = self._settings
        with self._lock:
            known = self._attempts.get(address)
            failures = known.failures + 1 if known else 1
            pause = growing(
                settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, failures
            )
            kept = None if error is None else _bare(error)
            self._attempts[address] = _Attempts(failures, monotonic() + pause, kept, took_s)

    def raise_last(self, address: Address, longer_than_s: float = 0.0) -> None:
        """Raise why the last attempt failed, if that is known and it took longer than that: an
        attempt with less time would name its limit alone."""
        with self._lock:
            known = self._attempts.get(address)
        if known is not None and known.error is not None and known.took_s > longer_than_s:
            raise again(known.error)

    def tell(self, address: Address, error: KafkaError) -> None:
        """Logs a failed attempt. As a warning the first time and then once a minute, since what
        is tried again looks like waiting; who is not patient gets the error at once."""
        now = monotonic()
        with self._lock:
            warns = self._settings.patient and now >= self._warn_at_s.get(address, now)
            if warns:
                self._warn_at_s[address] = now + _WARNING_S
        text = str(error) if str(address) in str(error) else f"{address}: {error}"
        _log.log(logging.WARNING if warns else logging.INFO, "%s", text)

    def reached(self, address: Address) -> None:
        """A connection stands."""
        with self._lock:
            self._attempts.pop(address, None)


class Connections(dict[Address, Connection]):
    """Connections of one thread, closed with it. After a fork they are the parent's."""

    pid = 0  # where an exception has cut __init__ off

    def __init__(self) -> None:
        self.pid = os.getpid()
        super().__init__()

    def __del__(self) -> None:
        if os.getpid() == self.pid:
            for connection in self.values():
                connection.close()


class Own:
    """What belongs to one thread (see native_threads.per_thread): its connections."""

    def __init__(self) -> None:
        self.connections = Connections()


class Limits:
    """The limits of the call that a thread is in. Connections look at them as well."""

    def __init__(self) -> None:
        self.deadline_s: float | None = None
        """No further try after it."""
        self.until_s: float | None = None
        """Nor does it wait for anything any longer."""

    def run(self, limit_s: float, ends: bool, call: Callable[[float], T]) -> T:
        """Run a call, which gets its deadline, within limits of its own. ends: see until_s. An
        exception at any point resets them."""
        deadline_s = monotonic() + limit_s
        self.until_s = deadline_s if ends else None
        self.deadline_s = deadline_s
        try:
            return call(deadline_s)
        finally:
            self.deadline_s = self.until_s = None

    def left_s(self, most_s: float) -> float:
        """How long to wait for something that may take so long."""
        until_s = self.until_s
        return most_s if until_s is None else max(min(most_s, until_s - monotonic()), 0.0)

    @property
    def are_over(self) -> bool:
        """Nothing is waited for any more."""
        return self.until_s is not None and monotonic() >= self.until_s


class IdleLinks:
    """Links of a loop that send nothing: dropped after idle_max_s."""

    def __init__(self, loop: ClientLoop, idle_max_s: float) -> None:
        self.look_s = min(max(idle_max_s / 8, 0.01), 30.0)
        self._loop = loop
        self._idle_max_s = idle_max_s
        self._seen: dict[int, tuple[int, float]] = {}  # link: requests, since when (monotonic)

    def drop(self, links: Iterable[int]) -> None:
        """To be called with all links every `look_s`."""
        now, seen = monotonic(), self._seen
        self._seen = {}
        for link in links:
            told = self._loop.link_stats(link)
            if told is None:
                continue
            requests, since_s = seen.get(link, (-1, now))
            if requests != told["requests"] or told["in_flight"]:
                requests, since_s = told["requests"], now
            elif now - since_s > self._idle_max_s:
                self._loop.drop_link(link, idle_since=requests)
            self._seen[link] = requests, since_s


class FinalFailure(KafkaError):  # noqa: N818 - never leaves the cluster
    """Carries an error out of a retry at once."""

    def __init__(self, told: KafkaError) -> None:
        super().__init__(str(told))
        self.told = told


class PassingFailure(FinalFailure):
    """Carries an error that passes, whatever its code."""

    retriable = True
