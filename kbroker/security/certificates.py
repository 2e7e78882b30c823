"""Certificates of one's own: a CA, and what it signs for a server or a client (RFC 5280).

Keys are on the curve P-256, signatures ECDSA with SHA-256. A certificate holds from a day before it
was made, for clocks that are late.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from kbroker.ext.tls_key import TlsKey
from kbroker.security import der

_ECDSA_SHA256: Final = der.put(der.SEQUENCE, der.put_oid("1.2.840.10045.4.3.2"))
_EC_KEY: Final = "1.2.840.10045.2.1"
_COMMON_NAME: Final = "2.5.4.3"
_SUBJECT_KEY: Final = "2.5.29.14"
_KEY_USAGE: Final = "2.5.29.15"
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_BASIC_CONSTRAINTS: Final = "2.5.29.19"
_AUTHORITY_KEY: Final = "2.5.29.35"
_EXTENDED_USAGE: Final = "2.5.29.37"
_SERVER: Final = "1.3.6.1.5.5.7.3.1"
_CLIENT: Final = "1.3.6.1.5.5.7.3.2"
_DNS_NAME: Final = 0x82
_ADDRESS: Final = 0x87
_SIGNS_CERTIFICATES: Final = b"\x01\x06"  # keyCertSign and cRLSign; one bit unused
_SIGNS: Final = b"\x07\x80"  # digitalSignature; seven bits unused
_GENERALIZED_FROM: Final = 2050
_SERIAL_BYTES: Final = 16
_LINE: Final = 64
_TRUE: Final = der.put(der.BOOLEAN, b"\xff")


class Owned(NamedTuple):
    """A certificate (DER) with its key."""

    certificate: bytes
    key: TlsKey


def pem(certificate: bytes) -> str:
    """A certificate as text."""
    told = base64.b64encode(certificate).decode()
    lines = [told[at : at + _LINE] for at in range(0, len(told), _LINE)]
    return "\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""))


def certificate_of(text: str) -> bytes:
    """The first certificate of a PEM text. Raises ValueError."""
    _, found, rest = text.partition("-----BEGIN CERTIFICATE-----")
    body, ended, _ = rest.partition("-----END CERTIFICATE-----")
    if not found or not ended:
        raise ValueError("no certificate in PEM form")
    return base64.b64decode(body)


def authority(name: str, days: int) -> Owned:
    """A CA of one's own."""
    key = TlsKey.generate()
    subject = _name(name)
    extensions = [
        _extension(_BASIC_CONSTRAINTS, der.put(der.SEQUENCE, _TRUE), critical=True),
        _extension(_KEY_USAGE, der.put(der.BIT_STRING, _SIGNS_CERTIFICATES), critical=True),
        _extension(_SUBJECT_KEY, der.put(der.OCTET_STRING, _key_id(key.public()))),
    ]
    return Owned(_signed(key, subject, subject, key.public(), extensions, days), key)


def issued(signer: Owned, name: str, days: int, *, hosts: Iterable[str] = ()) -> Owned:
    """A certificate that a CA signs: of a server under these hosts and addresses, or, with none, of
    a client. Raises ValueError for a CA whose key is of another kind."""
    if der.put_oid(_EC_KEY) not in signer.key.public():
        raise ValueError("the key of the CA is not on an elliptic curve, as those made here are")
    key = TlsKey.generate()
    names = [_host(host) for host in hosts]
    usage = [der.put_oid(_SERVER), der.put_oid(_CLIENT)] if names else [der.put_oid(_CLIENT)]
    signer_id = der.put(0x80, _key_id(signer.key.public()))
    extensions = [
        _extension(_BASIC_CONSTRAINTS, der.put(der.SEQUENCE), critical=True),
        _extension(_KEY_USAGE, der.put(der.BIT_STRING, _SIGNS), critical=True),
        _extension(_EXTENDED_USAGE, der.put(der.SEQUENCE, *usage)),
        _extension(_SUBJECT_KEY, der.put(der.OCTET_STRING, _key_id(key.public()))),
        _extension(_AUTHORITY_KEY, der.put(der.SEQUENCE, signer_id)),
    ]
    if names:
        extensions.append(_extension(_ALTERNATIVE_NAMES, der.put(der.SEQUENCE, *names)))
    issuer = _subject(signer.certificate)
    made = _signed(signer.key, issuer, _name(name), key.public(), extensions, days)
    return Owned(made, key)


def _subject(certificate: bytes) -> bytes:
    from kbroker.security.names import subject_of  # noqa: PLC0415  only where there is a CA

    return subject_of(certificate)


def _name(common_name: str) -> bytes:
    pair = der.put(
        der.SEQUENCE, der.put_oid(_COMMON_NAME), der.put(der.UTF8_STRING, common_name.encode())
    )
    return der.put(der.SEQUENCE, der.put(der.SET, pair))


def _host(host: str) -> bytes:
    try:
        return der.put(_ADDRESS, ipaddress.ip_address(host).packed)
    except ValueError:
        return der.put(_DNS_NAME, host.encode("idna"))


def _key_id(public: bytes) -> bytes:
    """SHA-1 of the key's bits (RFC 5280, 4.2.1.2): a name, nothing that is trusted."""
    _, bits = der.value(public).parts()
    return hashlib.sha1(bits.contents[1:], usedforsecurity=False).digest()


def _extension(kind: str, contents: bytes, *, critical: bool = False) -> bytes:
    parts = [der.put_oid(kind), *([_TRUE] if critical else [])]
    return der.put(der.SEQUENCE, *parts, der.put(der.OCTET_STRING, contents))


def _time(moment: datetime) -> bytes:
    if moment.year < _GENERALIZED_FROM:
        return der.put(der.UTC_TIME, moment.strftime("%y%m%d%H%M%SZ").encode())
    return der.put(der.GENERALIZED_TIME, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _signed(  # noqa: PLR0917
    key: TlsKey, issuer: bytes, subject: bytes, public: bytes, extensions: list[bytes], days: int
) -> bytes:
    now = datetime.now(UTC)
    wanted = der.put(
        der.SEQUENCE,
        der.put(0xA0, der.put_integer(2)),  # version 3
        der.put_integer(int.from_bytes(secrets.token_bytes(_SERIAL_BYTES), "big") | 1),
        _ECDSA_SHA256,
        issuer,
        der.put(
            der.SEQUENCE, _time(now - timedelta(days=1)), _time(now + timedelta(days=days))
        ),
        subject,
        public,
        der.put(0xA3, der.put(der.SEQUENCE, *extensions)),
    )
    signature = der.put(der.BIT_STRING, b"\0" + key.sign(wanted))
    return der.put(der.SEQUENCE, wanted, _ECDSA_SHA256, signature)
