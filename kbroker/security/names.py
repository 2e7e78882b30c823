"""Distinguished names of certificates as Java prints them, and what else is asked of a certificate.

`X500Principal.getName()` is RFC 2253: the last part of the name first, a keyword for the nine types
that the RFC has one for, else the number of the type with the value's DER in hex. Unlike OpenSSL it
leaves letters beyond ASCII as they are. Rules and ACLs are written for this form.
"""

from __future__ import annotations

from typing import Final

from kbroker.security import der

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8, Printable, T61, IA5, General, Universal and BMP strings.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACE: Final = " \r"
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_EXTENSIONS: Final = 0xA3
_VERSION: Final = 0xA0


def rfc2253(name: bytes) -> str:
    """A name (DER) as text. Raises ValueError for what is no name."""
    parts = der.value(name).parts()
    return ",".join("+".join(map(_pair, part.parts())) for part in reversed(parts))


def _pair(pair: der.Value) -> str:
    kind, value = pair.parts()
    number = der.oid_text(kind.contents)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.contents.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    told = "".join(
        "\\00" if one == "\0" else f"\\{one}" if one in _ESCAPED else one for one in text
    )
    lead = len(told) - len(told.lstrip(_SPACE))
    if lead == len(told):
        return "".join(f"\\{one}" for one in told)
    trail = len(told.rstrip(_SPACE))
    return (
        "".join(f"\\{one}" for one in told[:lead])
        + told[lead:trail]
        + "".join(f"\\{one}" for one in told[trail:])
    )


def _fields(certificate: bytes) -> list[der.Value]:
    """Of TBSCertificate, without the version: serial, algorithm, issuer, validity, subject ..."""
    fields = der.value(certificate).parts()[0].parts()
    return fields[1:] if fields[0].tag == _VERSION else fields


def subject_of(certificate: bytes) -> bytes:
    """The subject (DER) of a certificate (DER)."""
    return _fields(certificate)[4].whole


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """The names of its subjectAltName, each as DER."""
    for field in _fields(certificate):
        if field.tag != _EXTENSIONS:
            continue
        for extension in der.value(field.contents).parts():
            kind, *_, contents = extension.parts()
            if der.oid_text(kind.contents) == _ALTERNATIVE_NAMES:
                return frozenset(one.whole for one in der.value(contents.contents).parts())
    return frozenset()
