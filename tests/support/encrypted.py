"""The engine alone with a TLS listener, and clients of Python's OpenSSL for it."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from kbroker.ext import testing_network as handlers
from kbroker.ext.engine import SECURITY_PROTOCOLS, Engine
from kbroker.ext.tls_context import TlsContext
from tests.support.certificates import Authority
from tests.support.engine import KEYS, Client
from tests.support.waits import wait_for

SSL = SECURITY_PROTOCOLS.index("SSL")
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class Secured:
    """An engine with a TLS listener and a plain one."""

    def __init__(self, store: Path, fd: int = -1, **settings: int) -> None:
        told = {name.replace("_", "."): value for name, value in settings.items()}
        self.engine = Engine({"num.network.threads": 1, "num.io.threads": 1} | told)
        self.port = self.engine.listen("127.0.0.1", 0, "SSL", SSL)
        self.plain = self.engine.listen("127.0.0.1", 0, "PLAINTEXT")
        handlers.install(self.engine, fd)
        self.engine.set_api_versions({0: b"zero", 3: b"three", 4: b"four"}, KEYS)
        self.context = identity(store)
        self.engine.set_tls("SSL", self.context)
        self.engine.start()
        self.told: list[str] = []

    def said(self, text: str) -> None:
        """Waits until the data plane has logged it."""

        def found() -> bool:
            self.told += [line for _, line in self.engine.next_log_lines()]
            return any(text in line for line in self.told)

        try:
            wait_for(f"the log says {text!r}", found, 60)
        except TimeoutError as error:
            raise AssertionError(f"{error}; it says {self.told}") from None


def identity(store: Path) -> TlsContext:
    context = TlsContext(server=True)
    context.identity_pem(store.read_bytes(), store.read_bytes(), None, "store")
    return context


@contextlib.contextmanager
def secured(store: Path, fd: int = -1, **settings: int) -> Iterator[Secured]:
    one = Secured(store, fd, **settings)
    try:
        yield one
    finally:
        one.engine.stop(2000)
        handlers.post_once()


def client_context(
    authority: Authority, version: ssl.TLSVersion | None = None, store: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if store is not None:
        context.load_cert_chain(store)
    return context


class TlsClient(Client):
    """A client of the tests over TLS."""

    def __init__(
        self, port: int, context: ssl.SSLContext, receive_buffer: int | None = None
    ) -> None:
        super().__init__(port, receive_buffer)
        self.socket.settimeout(60)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


class Memory:
    """The client's side of a handshake without a socket: what it would send."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def hello(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def shake(self, connected: socket.socket) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                connected.sendall(self.outgoing.read())
                got = connected.recv(65536)
                assert got, "closed during the handshake"
                self.incoming.write(got)
            else:
                connected.sendall(self.outgoing.read())
                return
