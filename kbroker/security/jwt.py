"""JSON web tokens and the keys that sign them (RFC 7515, 7517, 7518): RS, PS and ES, 256 to 512.

    base64url(header) . base64url(claims) . base64url(signature)

Verifying needs no secret, so nothing here has to take the same time whatever it reads.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

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
    except (KeyError, TypeError, ValueError, AttributeError):
        raise TokenError("a key that is none") from None
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


# ---- elliptic curves (SEC 1), y^2 = x^3 - 3x + b


class _Curve(NamedTuple):
    p: int
    b: int
    n: int
    g: tuple[int, int]


def _hex(text: str) -> int:
    return int(text, 16)


_CURVES: Final = {
    "P-256": _Curve(
        0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF,
        0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
        0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        (
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
            0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        ),
    ),
    "P-384": _Curve(
        2**384 - 2**128 - 2**96 + 2**32 - 1,
        _hex(
            "B3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875A"
            "C656398D8A2ED19D2A85C8EDD3EC2AEF"
        ),
        _hex(
            "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF"
            "581A0DB248B0A77AECEC196ACCC52973"
        ),
        (
            _hex(
                "AA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A38"
                "5502F25DBF55296C3A545E3872760AB7"
            ),
            _hex(
                "3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C0"
                "0A60B1CE1D7E819D7A431D7C90EA0E5F"
            ),
        ),
    ),
    "P-521": _Curve(
        2**521 - 1,
        _hex(
            "0051953EB9618E1C9A1F929A21A0B68540EEA2DA725B99B315F3B8B489918EF1"
            "09E156193951EC7E937B1652C0BD3BB1BF073573DF883D2C34F1EF451FD46B50"
            "3F00"
        ),
        _hex(
            "01FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"
            "FFFA51868783BF2F966B7FCC0148F709A5D03BB5C9B8899C47AEBB6FB71E9138"
            "6409"
        ),
        (
            _hex(
                "00C6858E06B70404E9CD9E3ECB662395B4429C648139053FB521F828AF606B4D"
                "3DBAA14B5E77EFE75928FE1DC127A2FFA8DE3348B3C1856A429BF97E7E31C2E5"
                "BD66"
            ),
            _hex(
                "011839296A789A3BC0045C8A5FB42C7D1BD998F54449579B446817AFBD17273E"
                "662C97EE72995EF42640C550B9013FAD0761353C7086A272C24088BE94769FD1"
                "6650"
            ),
        ),
    ),
}

_Point = tuple[int, int, int]
"""Jacobian: x / z^2, y / z^3; z = 0 is the point at infinity."""


def _ec_fits(kind: str, digest: str, token: Token, key: Mapping[str, Any]) -> bool:
    curve = _CURVES[kind]
    x, y = _number(key["x"]), _number(key["y"])
    p, n = curve.p, curve.n
    if key["kty"] != "EC" or key["crv"] != kind or x >= p or y >= p:
        raise ValueError
    if (y * y - x * x * x + 3 * x - curve.b) % p:
        raise ValueError
    size = (n.bit_length() + 7) // 8
    if len(token.signature) != 2 * size:
        return False
    r, s = int.from_bytes(token.signature[:size]), int.from_bytes(token.signature[size:])
    if not (0 < r < n and 0 < s < n):
        return False
    hashed = int.from_bytes(hashlib.new(digest, token.signed).digest())
    hashed >>= max(hashlib.new(digest).digest_size * 8 - n.bit_length(), 0)
    w = pow(s, -1, n)
    point = _sum_of_products(curve, hashed * w % n, r * w % n, (x, y))
    if point[2] == 0:
        return False
    z = pow(point[2], -1, p)
    return point[0] * z * z % p % n == r


def _sum_of_products(curve: _Curve, u: int, v: int, q: tuple[int, int]) -> _Point:
    """u G + v Q, bit by bit of both."""
    g_point, q_point = (*curve.g, 1), (*q, 1)
    both = _add(curve, g_point, q_point)
    chosen = (None, g_point, q_point, both)
    total: _Point = (1, 1, 0)
    for at in range(max(u.bit_length(), v.bit_length()) - 1, -1, -1):
        total = _double(curve, total)
        one = chosen[(u >> at & 1) | (v >> at & 1) << 1]
        if one is not None:
            total = _add(curve, total, one)
    return total


def _double(curve: _Curve, point: _Point) -> _Point:
    x, y, z = point
    p = curve.p
    if z == 0 or y == 0:
        return 1, 1, 0
    zz, yy = z * z % p, y * y % p
    s = 4 * x * yy % p
    m = 3 * (x - zz) * (x + zz) % p
    x3 = (m * m - 2 * s) % p
    return x3, (m * (s - x3) - 8 * yy * yy) % p, 2 * y * z % p


def _add(curve: _Curve, one: _Point, other: _Point) -> _Point:
    x1, y1, z1 = one
    x2, y2, z2 = other
    p = curve.p
    if z1 == 0:
        return other
    if z2 == 0:
        return one
    zz1, zz2 = z1 * z1 % p, z2 * z2 % p
    u1, u2 = x1 * zz2 % p, x2 * zz1 % p
    s1, s2 = y1 * zz2 * z2 % p, y2 * zz1 * z1 % p
    if u1 == u2:
        return _double(curve, one) if s1 == s2 else (1, 1, 0)
    h, r = (u2 - u1) % p, (s2 - s1) % p
    hh = h * h % p
    hhh, v = h * hh % p, u1 * hh % p
    x3 = (r * r - hhh - 2 * v) % p
    return x3, (r * (v - x3) - s1 * hhh) % p, h * z1 * z2 % p
