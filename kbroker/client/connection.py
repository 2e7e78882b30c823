"""One TCP connection to a broker: frames, correlation ids, versions, time limits.

Not thread-safe: one thread uses a connection at a time. Requests may be sent ahead (`send`), and
their answers are taken in the same order (`receive`), as the protocol demands of both sides. After
any error on the way the connection is closed and stays so: what was in flight is not known.
"""

from __future__ import annotations

import collections
import contextlib
import math
import re
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker import __version__
from kbroker.client.address import Address
from kbroker.client.dialing import Endpoint, dial, resolve, text_of
from kbroker.client.errors import (
    BrokerError,
    ClosedError,
    ConnectError,
    CorruptDataError,
    RequestTimeoutError,
    TlsError,
    UnsupportedApiError,
)
from kbroker.client.messages import VERSIONS, decode_response, encode_request, versions_of
from kbroker.client.native_threads import Lock, wait_for_io
from kbroker.ext.client_clock import monotonic
from kbroker.ext.greenlets import cooperative
from kbroker.limits import CLIENT_FRAME_MAX_BYTES
from kbroker.protocol import ApiKey

if TYPE_CHECKING:
    from kbroker.client.tls import Tls
    from kbroker.ext.client_loop import ClientLoop
    from kbroker.ext.tls_context import TlsChannel

__all__ = ["SOFTWARE", "Connection", "told_version"]

_UNSUPPORTED_VERSION = 35
_FIRST_REQUESTS = 2  # ApiVersions, and one more
_LEAST_S = 0.001  # to send: sockets take 0 for another thing


def told_version(version: str) -> str:
    """As KIP-511 has it: letters, digits, dots and hyphens, without which brokers refuse."""
    return re.sub(r"[^a-zA-Z0-9.]", "-", version)


SOFTWARE = {
    "client_software_name": "kbroker",
    "client_software_version": told_version(__version__),
}
"""What ApiVersions tells of this client."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request whose answer has not been read."""

    api: ApiKey
    version: int
    correlation_id: int


class Connection:
    """A connection that has agreed on versions with its broker.

    tls: what tls_of made of the configuration. timeout_s: limit for connecting, for the handshake,
    for agreeing on versions and for each answer, unless a call or connect_timeout_s (of the first
    three) or answer_timeout_s (of the second and third) says otherwise. endpoints: of the address,
    to be tried in this order; `endpoint` is the one that was connected to. born: told of it as
    soon as it has a socket, so that another thread can interrupt it. on_silence: called when an
    answer does not come in time. left_s: how long to wait at most for what may take so long, by the
    call that the thread is in.
    send_buffer_bytes, receive_buffer_bytes: -1 leaves them to the system. renew_at: the monotonic
    time from which on the connection is to be replaced, because its SASL session ends.
    """

    def __init__(
        self,
        address: Address,
        *,
        tls: Tls | None = None,
        client_id: str = "kbroker",
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        answer_timeout_s: float = math.inf,
        endpoints: Sequence[Endpoint] | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        born: Callable[[Connection], None] | None = None,
        left_s: Callable[[float], float] = float,
    ) -> None:
        self.address = address
        self.on_silence: Callable[[Address], None] | None = None
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._left_s = left_s
        self.renew_at = math.inf
        self._used_s = monotonic()
        self._claim = Lock()  # of sending the next request, or of ending an idle one
        self.broker_versions: dict[int, tuple[int, int]] = {}
        self._sent: collections.deque[_Sent] = collections.deque()
        self._correlation_id = 0
        self._channel: TlsChannel | None = None
        connect_timeout_s = timeout_s if connect_timeout_s is None else connect_timeout_s
        endpoints = resolve(address) if endpoints is None else endpoints
        self._socket, self.endpoint = dial(address, endpoints, connect_timeout_s)
        self._closed = False
        answer_s = min(connect_timeout_s, answer_timeout_s)
        try:
            _set_up(
                self._socket,
                {socket.SO_SNDBUF: send_buffer_bytes, socket.SO_RCVBUF: receive_buffer_bytes},
            )
            if born is not None:
                born(self)
            if tls is not None:
                self._channel = tls.open(self._socket, address, left_s(answer_s))
            self._negotiate(answer_s)
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """True after close() and after any error."""
        return self._closed

    @property
    def idle_s(self) -> float:
        """Seconds since a request was sent; 0 while one waits for its answer."""
        return 0.0 if self._sent else monotonic() - self._used_s

    def close(self) -> None:
        """Closes the socket; calling it again does nothing."""
        self._closed = True
        self._sent.clear()
        if self._channel is not None:
            self._channel.close()
        self._socket.close()

    def interrupt(self) -> None:
        """Ends the connection under a thread that waits for an answer on it, from another one: the
        wait ends with ConnectError, and the waiting thread closes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end_if_idle(self, idle_max_s: float) -> None:
        """From any thread: ends the connection where no request was sent for so long and no answer
        is due. Whoever has it finds it closed before it sends the next one."""
        with self._claim:
            if not self._closed and self.idle_s > idle_max_s:
                self._closed = True
                self.interrupt()

    def hand_over(self, loop: ClientLoop) -> int:
        """Makes it a link of the loop; the link's id. This connection ends here, come what may."""
        if self._closed or self._sent:
            raise ConnectError(f"connection to {self.address} is closed or has answers due")
        try:
            link = loop.add_link(self._socket.fileno(), self.broker_versions, self._channel)
        except RuntimeError as error:  # its client was closed meanwhile
            self.close()
            raise ClosedError(str(error)) from None
        except BaseException:
            self.close()
            raise
        self._closed = True
        self._socket.detach()
        return link

    def version_of(self, api: ApiKey, *, by_id: bool = False, most: int | None = None) -> int:
        """The highest version that both sides speak, or UnsupportedApiError. by_id: the request
        tells topics' ids, where a version knows them. most: none above this one."""
        if api not in self.broker_versions:
            raise UnsupportedApiError(f"broker {self.address} does not offer {api.name}")
        low, high = versions_of(api, by_id=by_id)
        high = high if most is None else min(high, most)
        broker_low, broker_high = self.broker_versions[api]
        version = min(high, broker_high)
        if version < max(low, broker_low):
            raise UnsupportedApiError(
                f"broker {self.address} speaks {api.name} {broker_low}-{broker_high},"
                f" this client {low}-{high}"
            )
        return version

    def call(
        self,
        api: ApiKey,
        values: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        by_id: bool = False,
        most: int | None = None,
    ) -> Any:
        """Sends a request and waits for its answer, kio's dataclass; see version_of."""
        version = self.version_of(api, by_id=by_id, most=most)
        try:
            self._send(api, version, values, True)
            return self.receive(timeout_s)
        except BaseException:
            if self._sent:  # an exception of a signal handler: the answer is another call's then
                self.close()
            raise

    def send(self, api: ApiKey, values: Mapping[str, Any], *, answered: bool = True) -> int:
        """Sends a request; returns its version. answered: False for Produce with acks=0."""
        version = self.version_of(api)
        self._send(api, version, values, answered)
        return version

    def receive(self, timeout_s: float | None = None) -> Any:
        """The answer to the oldest request that has none yet."""
        sent = self._sent[0]
        try:
            frame = self._read_frame(sent.api, self.timeout_s if timeout_s is None else timeout_s)
        except BaseException:  # part of the answer may have been read
            self.close()
            raise
        self._sent.popleft()
        try:
            correlation_id, body = decode_response(sent.api, sent.version, frame)
            if correlation_id != sent.correlation_id:
                raise CorruptDataError(
                    f"broker {self.address} answered request {correlation_id}"
                    f" where {sent.correlation_id} was due"
                )
        except CorruptDataError:
            self.close()
            raise
        return body

    def _send(self, api: ApiKey, version: int, values: Mapping[str, Any], answered: bool) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        body = encode_request(api, version, self._correlation_id, values, self.client_id)
        framed = struct.pack(">i", len(body)) + body
        with self._claim:
            if self._closed:
                raise ConnectError(f"connection to {self.address} is closed")
            self._used_s = monotonic()
            if answered:
                self._sent.append(_Sent(api, version, self._correlation_id))
        limit_s = max(self._left_s(self.timeout_s), _LEAST_S)
        try:
            if self._channel is not None:
                self._channel.sendall(framed, limit_s)
            elif cooperative():
                self._send_in_greenlet(framed, monotonic() + limit_s)
            else:
                self._socket.settimeout(limit_s)
                self._socket.sendall(framed)
        except OSError as error:
            broken = self._broken(error)
            self.close()
            raise broken from error

    def _send_in_greenlet(self, framed: bytes, until_s: float) -> None:
        self._socket.setblocking(False)
        left = memoryview(framed)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                wait_for_io(self._socket.fileno(), select.POLLOUT, until_s)

    def _negotiate(self, timeout_s: float) -> None:
        """Asks for ApiVersions, newest first; a broker that knows it not answers in version 0."""
        api = ApiKey.API_VERSIONS
        version = VERSIONS[api][1]
        self._send(api, version, SOFTWARE, True)
        frame = self._read_frame(api, timeout_s)
        self._sent.popleft()
        # Error code first in every version; an UNSUPPORTED_VERSION answer is always in version 0.
        if len(frame) >= 6 and struct.unpack_from(">h", frame, 4)[0] == _UNSUPPORTED_VERSION:
            _, offered = decode_response(api, 0, frame)
            highs = [int(k.max_version) for k in offered.api_keys if int(k.api_key) == api]
            version = min([version, *highs]) if highs else 0
            self._send(api, version, SOFTWARE, True)
            body = self.receive(timeout_s)
        else:
            _, body = decode_response(api, version, frame)
        if int(body.error_code) != 0:
            raise BrokerError(int(body.error_code), f"broker {self.address}")
        self.broker_versions = {
            int(key.api_key): (int(key.min_version), int(key.max_version)) for key in body.api_keys
        }

    def _read_frame(self, api: ApiKey, timeout_s: float) -> bytes:
        timeout_s = self._left_s(timeout_s)
        deadline = monotonic() + timeout_s
        try:
            (length,) = struct.unpack(">i", self._read(4, deadline))
            if not 4 <= length <= CLIENT_FRAME_MAX_BYTES:
                raise CorruptDataError(
                    f"{self.address} does not speak the Kafka protocol (frame of {length} bytes);"
                    " is this the right port?"
                )
            return self._read(length, deadline)
        except TimeoutError as error:
            self.close()
            if self.on_silence is not None:
                self.on_silence(self.address)
            raise RequestTimeoutError(
                f"broker {self.address} did not answer {api.name} within {timeout_s:.3g} s"
            ) from error
        except OSError as error:
            broken = self._broken(error)
            self.close()
            raise broken from error
        except (CorruptDataError, ConnectError):
            self.close()
            raise

    def _advice(self) -> str:
        """What may be wrong where a broker closes instead of one of its first two answers."""
        if self._correlation_id > _FIRST_REQUESTS:
            return ""
        if any(one.api is ApiKey.SASL_HANDSHAKE for one in self._sent):
            return ""
        if self._channel is not None:
            return "; where it asks who clients are, security.protocol has to be SASL_SSL"
        return "; where it asks who clients are, or speaks TLS, security.protocol has to say so"

    def _broken(self, error: OSError) -> ConnectError:
        if self._channel is not None and isinstance(error, ConnectionAbortedError):
            return _refused(self.address, str(error))
        ended = isinstance(error, (ConnectionResetError, BrokenPipeError))
        advice = self._advice() if ended else ""
        return ConnectError(f"connection to {self.address} broke: {text_of(error)}{advice}")

    def _read(self, size: int, deadline: float) -> bytes:
        into = bytearray(size)
        view = memoryview(into)
        while view:
            left_s = deadline - monotonic()
            if left_s <= 0:
                raise TimeoutError
            if self._channel is not None:
                got = self._channel.recv_into(view, left_s)
            else:
                if cooperative():
                    wait_for_io(self._socket.fileno(), select.POLLIN, deadline)
                    left_s = max(deadline - monotonic(), _LEAST_S)
                self._socket.settimeout(left_s)
                got = self._socket.recv_into(view)
            if got == 0:
                raise ConnectError(f"broker {self.address} closed the connection{self._advice()}")
            view = view[got:]
        return bytes(into)


def _set_up(made: socket.socket, buffers: Mapping[int, int]) -> None:
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, size in buffers.items():
        if size >= 0:
            made.setsockopt(socket.SOL_SOCKET, option, size)
    _skip_pacing(made)


def _skip_pacing(made: socket.socket) -> None:
    """To a broker on this machine: see ext/listener.pxd."""
    with contextlib.suppress(OSError):
        if made.getsockname()[0] == made.getpeername()[0]:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def _refused(address: Address, why: str) -> TlsError:
    """For an alert of the broker behind the handshake: in TLS 1.3 it judges us only then."""
    help_ = ""
    if any(word in why for word in ("certificate required", "bad certificate", "unknown ca")):
        help_ = "; it wants a certificate that it trusts: ssl.keystore.location"
    return TlsError(f"TLS with {address}: {why}{help_}")
