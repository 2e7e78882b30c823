"""Key stores and trust stores, read for a TLS context: PEM and PKCS #12, of broker and client.

A store is known by its first bytes, whatever its *.type says: PEM, or PKCS #12 (what keytool writes
since Java 9). Java's older JKS cannot be read; the error says how to convert it. What is wrong
with a store is a ValueError of one line that names the setting and the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kbroker.ext.tls_context import VERSIONS, TlsContext

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = 0x30
_STORE_MAX_BYTES: Final = 64 << 20
_BLOCK: Final = re.compile(r"(-+BEGIN [^-]+-+)([a-zA-Z0-9/+=\s]+)(-+END [^-]+-+)")


def inline_pem(text: str) -> bytes:
    """PEM that is given as a setting; in one line as well, as Apache Kafka reads it."""

    def in_lines(block: re.Match[str]) -> str:
        lines = re.findall(r"\S{1,64}", "".join(block[2].split()))
        return "\n".join((block[1], *lines, block[3], ""))

    return _BLOCK.sub(in_lines, text).encode()


def read_store(name: str, path: str) -> bytes:
    """The bytes of a store of a kind that can be read; never empty."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_STORE_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{name} {path}: {error.strerror}") from None
    if data.startswith(_JKS):
        raise ValueError(
            f"{name} {path} is a JKS key store, which only Java reads; convert it: keytool"
            f" -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    if not data or len(data) > _STORE_MAX_BYTES:
        raise ValueError(f"{name} {path}: {len(data)} bytes are no key store")
    return data


def trust_store(context: TlsContext, name: str, path: str, password: str | None) -> None:
    """Trust every certificate of a file that the setting `name` gives."""
    data, source = read_store(name, path), f"{name} {path}"
    if data[0] == _DER_SEQUENCE:
        context.trust_pkcs12(data, password, source)
    else:
        context.trust_pem(data, source)


def identity_store(
    context: TlsContext, name: str, path: str, password: str | None, key_password: str | None
) -> None:
    """Take key and certificates of a file: who we are."""
    data, source = read_store(name, path), f"{name} {path}"
    if data[0] == _DER_SEQUENCE:
        context.identity_pkcs12(data, password or key_password, source)
    else:
        context.identity_pem(data, data, key_password, source)


def speak_versions(context: TlsContext, name: str, told: Iterable[str]) -> None:
    """The versions of TLS that the setting `name` allows, of those that are spoken here."""
    wanted = list(told)
    spoken = sorted(VERSIONS.keys() & set(wanted))
    if not spoken:
        raise ValueError(f"{name}={','.join(wanted)}: TLSv1.2 and TLSv1.3 are spoken here")
    context.speak(spoken[0], spoken[-1])


def speak_ciphers(context: TlsContext, name: str, suites: Iterable[str]) -> None:
    """The cipher suites of the setting `name`; none: OpenSSL's own choice."""
    wanted = list(suites)
    if not wanted:
        return
    try:
        context.ciphers(wanted)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
