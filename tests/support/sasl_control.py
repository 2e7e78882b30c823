"""A control plane with a SASL listener, and exchanges with it, without a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kio.index import load_request_schema

from kbroker.client.scram import Scram
from kbroker.protocol import ApiKey
from kbroker.security import credentials, scram
from kbroker.security.principals import Principal
from tests.support.control import ControlPlane, FakeRequest, with_timeout
from tests.support.messages import encode

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required user_alice="alice\'s secret" user_bob="b";'
SETTINGS = {
    "listeners": "SASL://localhost:9092",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
}
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Stand:
    """A control plane with a SASL listener."""

    def __init__(self, directory: Path, **settings: str) -> None:
        more = {name.replace("__", "-").replace("_", "."): one for name, one in settings.items()}
        self.control = ControlPlane(directory, SETTINGS | more)
        self.peer = ("127.0.0.1", 1)

    def ask(self, key: ApiKey, version: int, state: bytes = b"", **fields: Any) -> FakeRequest:
        """A request of a connection in the SASL stage that remembers `state`."""
        body = encode(load_request_schema(key, version), fields)
        request = FakeRequest(
            key, version, body, listener="SASL", open=False, state=state, peer=self.peer
        )
        return self.control.serve(request)

    def call(self, *request: Any, **fields: Any) -> dict[str, Any]:
        """The answer to what `send` sends."""
        return self.control.decoded(self.send(*request, **fields))

    def send(
        self, who: Principal | None, key: ApiKey, version: int, /, *, by_token: bool = False,
        **fields: Any,
    ) -> FakeRequest:  # fmt: skip
        """A request of somebody who has logged in, None for who has not."""
        number = 0
        if who is not None:
            number = self.control.services.principals.number(who, by_token=by_token)
        body = encode(load_request_schema(key, version), with_timeout(key, version, fields))
        request = FakeRequest(key, version, body, listener="SASL", principal=number)
        return self.control.serve(request)

    def told(self, request: FakeRequest) -> dict[str, Any]:
        return self.control.decoded(request)

    def handshake(self, mechanism: str, state: bytes = b"", version: int = 1) -> FakeRequest:
        return self.ask(ApiKey.SASL_HANDSHAKE, version, state, mechanism=mechanism)

    def step(self, state: bytes, message: bytes, version: int = 2) -> FakeRequest:
        return self.ask(ApiKey.SASL_AUTHENTICATE, version, state, auth_bytes=message)

    def plain(self, user: str, password: str, state: bytes = b"") -> FakeRequest:
        begun = self.handshake("PLAIN", state)
        return self.step(begun.state, f"\0{user}\0{password}".encode())

    def scram(self, mechanism: str, user: str, password: str, **how: Any) -> FakeRequest:
        client = Scram(HASHES[mechanism], user, password, **how)
        state = self.handshake(mechanism).state
        first = self.step(state, client.first())
        challenge = self.told(first)["auth_bytes"]
        last = self.step(first.state, client.final(challenge))
        if last.refused_ms is None:
            client.verify(self.told(last)["auth_bytes"])
        return last

    def add_user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        one = scram.MECHANISMS[mechanism]
        credential = scram.credential_of(one, password, 4096)
        self.control.store.append([credentials.record_of(name, one, credential)])

    def who(self, request: FakeRequest) -> Principal:
        return self.control.services.principals.principal(request.principal)
