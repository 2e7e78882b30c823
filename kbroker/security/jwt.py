"""JSON web tokens and the keys that sign them (RFC 7515, 7517, 7518): RS, PS and ES, 256 to 512.

    base64url(header) . base64url(claims) . base64url(signature)

Verifying needs no secret, so nothing here has to take the same time whatever it reads. RSA with a
public exponent is quick in Python, elliptic curves are OpenSSL's (`kbroker.ext.tls_key`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kbroker.ext.tls_key import fits

_TOKEN_MAX_BYTES: Final = 65_536
_RSA_MIN_BITS: Final = 2048
_RSA_MAX_BITS: Final = 8192
_DIGEST_INFO: Final = {
    "sha256": "3031300d060960864801650304020105000420",
    "sha384": "3041300d060960864801650304020205000430",
    "sha512": "3051300d060960864801650304020305000440",
}


class TokenError(Exception):
    """A token that says nothing, or whose signature is not its signer's."""


class Token(NamedTuple):
    """A token taken apart; `signed` is what its signature is over."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


def take_apart(text: str) -> Token:
    """Nothing of it is verified. Raises TokenError."""
    parts = text.split(".")
    if len(text) > _TOKEN_MAX_BYTES or len(parts) != 3:
        raise TokenError("no token of three parts")
    header, claims = _object(parts[0]), _object(parts[1])
    return Token(header, claims, f"{parts[0]}.{parts[1]}".encode(), decoded(parts[2]))


def decoded(text: str) -> bytes:
    """base64url without padding. Raises TokenError."""
    try:
        return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise TokenError("a part that is no base64url") from None


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(decoded(text))
    except (ValueError, RecursionError):
        raise TokenError("a part that is no JSON") from None
    if not isinstance(found, dict):
        raise TokenError("a part that is no JSON object")
    return found


def verify(token: Token, key: Mapping[str, Any]) -> None:
    """Whether a JWK's owner signed it. Raises TokenError."""
    algorithm = token.header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise TokenError("an algorithm that is not served")
    if "crit" in token.header:
        raise TokenError("a header with demands")
    if key.get("alg", algorithm) != algorithm or key.get("use", "sig") != "sig":
        raise TokenError("a key for something else")
    kind, digest = _ALGORITHMS[algorithm]
    fits = _ec_fits if kind.startswith("P-") else _rsa_fits
    try:
        good = fits(kind, digest, token, key)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f": {error}" if str(error) else ""
        raise TokenError(f"a key that is none{why}") from None
    if not good:
        raise TokenError("a signature of somebody else")


_ALGORITHMS: Final = {
    **{f"RS{bits}": ("pkcs1", f"sha{bits}") for bits in (256, 384, 512)},
    **{f"PS{bits}": ("pss", f"sha{bits}") for bits in (256, 384, 512)},
    "ES256": ("P-256", "sha256"),
    "ES384": ("P-384", "sha384"),
    "ES512": ("P-521", "sha512"),
}


def _number(text: Any) -> int:
    return int.from_bytes(decoded(text))


# ---- RSA (RFC 8017)


def _rsa_fits(kind: str, digest: str, token: Token, key: Mapping[str, Any]) -> bool:
    n, e = _number(key["n"]), _number(key["e"])
    size = (n.bit_length() + 7) // 8
    if key["kty"] != "RSA" or not _RSA_MIN_BITS <= n.bit_length() <= _RSA_MAX_BITS:
        raise ValueError
    if e < 3 or e % 2 == 0 or e.bit_length() > 64:
        raise ValueError
    value = int.from_bytes(token.signature)
    if len(token.signature) != size or value >= n:
        return False
    message = pow(value, e, n)
    hashed = hashlib.new(digest, token.signed).digest()
    if kind == "pss":
        bits = n.bit_length() - 1
        return _is_pss(message.to_bytes(size)[size - (bits + 7) // 8 :], bits, hashed, digest)
    info = bytes.fromhex(_DIGEST_INFO[digest]) + hashed
    padding = b"\xff" * (size - len(info) - 3)
    return message.to_bytes(size) == b"\0\1" + padding + b"\0" + info


def _is_pss(encoded: bytes, bits: int, hashed: bytes, digest: str) -> bool:
    """EMSA-PSS-VERIFY with a salt as long as the digest."""
    size = len(hashed)
    if len(encoded) < 2 * size + 2 or encoded[-1] != 0xBC:
        return False
    masked, told = encoded[: -size - 1], encoded[-size - 1 : -1]
    spare = 8 * len(encoded) - bits
    if masked[0] >> (8 - spare):
        return False
    mask = b"".join(
        hashlib.new(digest, told + counter.to_bytes(4)).digest()
        for counter in range(len(masked) // size + 1)
    )
    block = bytearray(a ^ b for a, b in zip(masked, mask, strict=False))
    block[0] &= 0xFF >> spare
    zeros = len(block) - size - 1
    if any(block[:zeros]) or block[zeros] != 1:
        return False
    return hashlib.new(digest, bytes(8) + hashed + block[-size:]).digest() == told


# ---- elliptic curves, by OpenSSL


class _Curve(NamedTuple):
    oid: bytes
    """Of the curve, DER."""
    size: int
    """Bytes of a coordinate, and of half a signature."""


_CURVES: Final = {
    "P-256": _Curve(bytes.fromhex("06082a8648ce3d030107"), 32),
    "P-384": _Curve(bytes.fromhex("06052b81040022"), 48),
    "P-521": _Curve(bytes.fromhex("06052b81040023"), 66),
}
_EC_PUBLIC_KEY: Final = bytes.fromhex("06072a8648ce3d0201")
_SEQUENCE, _INTEGER, _BIT_STRING = 0x30, 0x02, 0x03
_UNCOMPRESSED: Final = 4


def _ec_fits(kind: str, digest: str, token: Token, key: Mapping[str, Any]) -> bool:
    curve = _CURVES[kind]
    x, y = _number(key["x"]), _number(key["y"])
    if key["kty"] != "EC" or key["crv"] != kind or max(x, y).bit_length() > 8 * curve.size:
        raise ValueError
    if len(token.signature) != 2 * curve.size:
        return False
    halves = token.signature[: curve.size], token.signature[curve.size :]
    signature = _der(_SEQUENCE, b"".join(_der_number(int.from_bytes(half)) for half in halves))
    return fits(_public_key(curve, x, y), digest, signature, token.signed)


def _public_key(curve: _Curve, x: int, y: int) -> bytes:
    """SubjectPublicKeyInfo (RFC 5480)."""
    point = bytes([0, _UNCOMPRESSED]) + x.to_bytes(curve.size) + y.to_bytes(curve.size)
    return _der(
        _SEQUENCE, _der(_SEQUENCE, _EC_PUBLIC_KEY + curve.oid) + _der(_BIT_STRING, point)
    )


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x81, size])
    return bytes([tag]) + length + content


def _der_number(value: int) -> bytes:
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1))
