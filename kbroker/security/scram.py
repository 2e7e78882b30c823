"""SCRAM, the server's half (RFC 5802, RFC 7677), as Apache Kafka speaks it.

    C: n,,n=user,r=CLIENT                        client first; only gs2 header "n" (no binding)
    S: r=CLIENT+SERVER,s=SALT,i=ITERATIONS
    C: c=biws,r=CLIENT+SERVER,p=PROOF            client final
    S: v=SIGNATURE

A user that is not there gets a challenge as well, the same at every try, and fails with its proof:
neither error nor timing nor salt tells who has a credential. The shape of its challenge is that of
some user who has one, by chance, but for a name always the same. Apache Kafka refuses such a user
at once. One `ScramServer` is one exchange; it is not thread-safe. `Scram` is the mechanism, whose
exchanges are put away between the two messages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from kbroker.salts import is_number, new_salt, number_of
from kbroker.security.mechanism import AuthenticationError, Step
from kbroker.security.principals import USER, Principal

ITERATIONS_MAX: Final = 16_384
_NONCE_BYTES: Final = 24
_SALT_BYTES: Final = 25  # most that Kafka's tools make
_MESSAGE_MAX_BYTES: Final = 32_768


class Mechanism(NamedTuple):
    """`number` is the one of records and requests (KIP-554)."""

    number: int
    name: str
    digest: str
    iterations_min: int


SHA_256: Final = Mechanism(1, "SCRAM-SHA-256", "sha256", 4096)
SHA_512: Final = Mechanism(2, "SCRAM-SHA-512", "sha512", 4096)
MECHANISMS: Final = {one.name: one for one in (SHA_256, SHA_512)}


class Credential(NamedTuple):
    """What is kept of a password: nothing that lets one log in elsewhere."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Shape(NamedTuple):
    """What everybody is told of a credential: how long its salt is, whether that is a number as
    Kafka's tools make them, and the iterations."""

    salt_bytes: int
    number: bool
    iterations: int


def shape_of(salt: bytes, iterations: int) -> Shape:
    """The shape of a credential with this salt."""
    return Shape(len(salt), is_number(salt), iterations)


def keys_of(mechanism: Mechanism, salted_password: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of a salted password, which is what clients send (KIP-554)."""
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    stored = hashlib.new(mechanism.digest, client_key).digest()
    return stored, _hmac(mechanism, salted_password, b"Server Key")


def credential_of(
    mechanism: Mechanism, password: str, iterations: int = 8192, salt: bytes | None = None
) -> Credential:
    """The credential of a new password."""
    salt = new_salt() if salt is None else salt
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
    return Credential(salt, *keys_of(mechanism, salted), iterations)


_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_VALUE = r"[^,\0]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,[A-Za-z]+={_VALUE})*)"
    rf",p=(?P<proof>{_BASE64})"
)


class ScramServer:
    """One exchange: `first` with the client's first message, then `final` with its last."""

    def __init__(
        self,
        mechanism: Mechanism,
        find: Callable[[str], Credential | None],
        secret: bytes,
        *,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
        shapes: Mapping[Shape, int] | None = None,
    ) -> None:
        """`find` gives a user's credential for this mechanism; `secret` makes the challenges of
        users that have none, whose `shapes` are those of users who have, with how many have each;
        it stays the same for good.
        """
        self.user: str | None = None
        """Who it claims to be after `first`, and is after `final`."""
        self.token_authenticated = False
        """The client says that the user is a delegation token's id."""
        self.complete = False
        self._mechanism = mechanism
        self._find = find
        self._secret = secret
        self._nonce = nonce
        self._shapes = shapes or {Shape(_SALT_BYTES, True, mechanism.iterations_min): 1}
        self._credential: Credential | None = None
        self._transcript = ""
        self._gs2 = b""
        self._whole_nonce = ""
        self._known = False

    def first(self, message: bytes) -> bytes:
        """The challenge. Raises AuthenticationError."""
        if self.user is not None:
            raise AuthenticationError("a second first message")
        found = _FIRST.fullmatch(_text(message))
        if found is None:
            raise AuthenticationError("a first message that is none")
        self.user = name = _unescaped(found["name"])
        if found["authzid"] is not None and _unescaped(found["authzid"]) != name:
            raise AuthenticationError("an authorization id that is not the user", name)
        self.token_authenticated = "tokenauth=true" in found["extensions"].split(",")
        self._credential = self._look_up(name)
        if self._credential.iterations < self._mechanism.iterations_min:
            raise AuthenticationError(f"the credential has {self._credential.iterations} rounds")
        self._gs2 = found["gs2"].encode()
        self._whole_nonce = found["nonce"] + self._nonce()
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._whole_nonce},s={salt},i={self._credential.iterations}"
        self._transcript = f"{found['bare']},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """The server's signature: the client is who it claims to be. Raises AuthenticationError."""
        credential, self._credential = self._credential, None  # one try
        if credential is None:
            raise AuthenticationError("a final message out of turn")
        found = _FINAL.fullmatch(_text(message))
        if found is None:
            raise AuthenticationError("a final message that is none")
        if not hmac.compare_digest(found["nonce"], self._whole_nonce):
            raise AuthenticationError("another nonce")
        if not hmac.compare_digest(_decoded(found["binding"]), self._gs2):
            raise AuthenticationError("another channel binding")
        signed = f"{self._transcript},{found['unproved']}".encode()
        proof = _decoded(found["proof"])
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        stored = hashlib.new(self._mechanism.digest, key).digest()
        fits = hmac.compare_digest(stored, credential.stored_key) & (len(proof) == len(signature))
        if not fits or not self._known:
            raise AuthenticationError("a wrong password, or no such user")
        self.complete = True
        answer = _hmac(self._mechanism, credential.server_key, signed)
        return b"v=" + base64.b64encode(answer)

    def put_away(self) -> list[Any]:
        """After `first`: plain data from which `resume` goes on."""
        return [self.user, self.token_authenticated, self._transcript, self._gs2.decode(),
                self._whole_nonce]  # fmt: skip

    def resume(self, state: list[Any]) -> None:
        """Go on where another object was put away. The credential is looked up again, so that one
        that was taken away meanwhile is of no use."""
        self.user, self.token_authenticated, self._transcript, gs2, self._whole_nonce = state
        self._gs2 = gs2.encode()
        self._credential = self._look_up(self.user or "")

    def _look_up(self, name: str) -> Credential:
        credential, made_up = self._find(name), self._made_up(name)
        self._known = credential is not None
        return credential or made_up

    def _made_up(self, name: str) -> Credential:
        """A credential that no password fits, the same for a name at every try."""
        mark = f"{self._mechanism.name}\0{name}".encode()
        salt, stored, server = (
            _hmac(self._mechanism, self._secret, what + mark) for what in (b"salt", b"s", b"k")
        )
        shape = self._shape(mark)
        while len(salt) < shape.salt_bytes:
            salt += _hmac(self._mechanism, self._secret, salt)
        if shape.number:
            salt = number_of(shape.salt_bytes, int.from_bytes(salt, "big"))
        return Credential(salt[: shape.salt_bytes], stored, server, shape.iterations)

    def _shape(self, mark: bytes) -> Shape:
        """One of the shapes, as often as users have it. Rendezvous hashing with weights: where
        users come and go, few names get another shape than before, which would tell of them."""

        def distance(shape: Shape) -> float:
            drawn = _hmac(self._mechanism, self._secret, b"shape" + repr(shape).encode() + mark)
            chance = (int.from_bytes(drawn[:6], "big") + 1) / ((1 << 48) + 1)
            return -math.log(chance) / self._shapes[shape]

        return min(self._shapes, key=distance)


class Scram:
    """A SCRAM mechanism over the users and the delegation tokens that the broker knows."""

    def __init__(
        self,
        mechanism: Mechanism,
        credentials: Credentials,
        secret: Callable[[], bytes],
    ) -> None:
        """`secret` stays the same for good, see ScramServer."""
        self._mechanism = mechanism
        self._credentials = credentials
        self._secret = secret

    def step(self, state: Any, message: bytes) -> Step:
        """See kbroker.security.mechanism."""
        if state is None:
            return self._first(message)
        by_token = bool(state[1])
        server = self._server(by_token=by_token)
        server.resume(state)
        user = server.user or ""
        try:
            answer = server.final(message)
        except AuthenticationError as error:
            raise AuthenticationError(str(error), user) from None
        if not by_token:
            return Step(answer, who=Principal(USER, user))
        owner, ends_ms = self._credentials.owner_of_token(user)
        return Step(answer, who=owner, by_token=True, ends_ms=ends_ms)

    def _first(self, message: bytes) -> Step:
        by_token = b"tokenauth=true" in message.split(b",")
        server = self._server(by_token=by_token)
        answer = server.first(message)
        if server.token_authenticated != by_token:
            raise AuthenticationError("a first message that is none", server.user)
        return Step(answer, server.put_away())

    def _server(self, *, by_token: bool) -> ScramServer:
        credentials, mechanism = self._credentials, self._mechanism
        if by_token:
            return ScramServer(
                mechanism, lambda name: credentials.of_token(mechanism, name), self._secret(),
                shapes=credentials.shapes_of_tokens(mechanism),
            )  # fmt: skip
        return ScramServer(
            mechanism, lambda name: credentials.of_user(mechanism, name), self._secret(),
            shapes=credentials.shapes_of_users(mechanism),
        )  # fmt: skip


class Credentials(Protocol):
    """Where credentials are kept (kbroker.security.credentials)."""

    def of_user(self, mechanism: Mechanism, name: str) -> Credential | None: ...
    def of_token(self, mechanism: Mechanism, token_id: str) -> Credential | None: ...
    def shapes_of_users(self, mechanism: Mechanism) -> Mapping[Shape, int]: ...
    def shapes_of_tokens(self, mechanism: Mechanism) -> Mapping[Shape, int]: ...
    def owner_of_token(self, token_id: str) -> tuple[Principal, int]: ...


def _hmac(mechanism: Mechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.digest)


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_MAX_BYTES:
        raise AuthenticationError(f"a message of {len(message)} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("a message that is no text") from None


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationError("a message that is no base64") from None
