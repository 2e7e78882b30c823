"""SCRAM-SHA-256 and SCRAM-SHA-512 as a client speaks them (RFC 5802, RFC 7677). No I/O.

    client-first   n,,n=user,r=nonce
    server-first   r=nonce+more,s=salt (base64),i=iterations
    client-final   c=biws,r=nonce+more,p=proof (base64)
    server-final   v=signature (base64), or e=what was wrong

The server's signature is checked: it proves that the server knows the password's keys as well.
Names and passwords go as UTF-8 without SASLprep, as Kafka has them. Delegation tokens (KIP-48) are
users whose name is the token's id, told by the extension tokenauth=true.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from kbroker.client.errors import AuthenticationError

__all__ = ["Scram"]

_ITERATIONS_MIN = 4096  # RFC 7677
_ITERATIONS_MAX = 1_000_000  # a second or so; more is not a broker's, but somebody's who holds us


class Scram:
    """One exchange: `first`, then `final` with the server's answer, then `verify` with the next.

    Raises AuthenticationError for answers that no server that knows the password gives.
    """

    def __init__(
        self, hash_name: str, user: str, password: str, *, token: bool = False, nonce: str = ""
    ) -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = user.replace("=", "=3D").replace(",", "=2C")
        extension = ",tokenauth=true" if token else ""
        self._first = f"n={name},r={self._nonce}{extension}"
        self._signature = b""

    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self._first}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The client's proof, from the server's salt and nonce."""
        told = _fields(server_first)
        nonce = told.get("r", "")
        if "e" in told or "m" in told:
            wrong = told.get("e", "the server demands an extension that we do not know")
            raise AuthenticationError(f"SCRAM: {wrong}")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationError("SCRAM: the server's nonce does not continue ours")
        iterations = told.get("i", "")
        count = int(iterations) if iterations.isdecimal() and len(iterations) < 10 else 0
        if not _ITERATIONS_MIN <= count <= _ITERATIONS_MAX:
            raise AuthenticationError(f"SCRAM: {iterations!r} iterations are not acceptable")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _base64(told.get("s", "")), count)
        bare = f"c=biws,r={nonce}"
        message = f"{self._first},{server_first.decode()},{bare}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        mask = self._hmac(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Checks that the server knows the keys as well."""
        told = _fields(server_final)
        if "e" in told:
            raise AuthenticationError(f"SCRAM: {told['e']}")
        signed = _base64(told.get("v", ""))
        if not self._signature or not hmac.compare_digest(signed, self._signature):
            raise AuthenticationError("SCRAM: wrong signature; this is not the broker")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("SCRAM: the server's message is no text") from None
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationError("SCRAM: the server's message is not base64") from None
