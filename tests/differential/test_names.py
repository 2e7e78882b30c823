"""Distinguished names as Java prints them: what rules and ACLs for Apache Kafka are written for."""

from __future__ import annotations

import contextlib
import random
import ssl

import pytest

from kbroker.security import der
from kbroker.security.names import alternative_names, rfc2253, subject_of
from tests.support.certificates import Authority
from tests.support.tool_jvm import program_output

TYPES = (
    "2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11", "2.5.4.5",
    "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25", "1.2.840.113549.1.9.1", "2.5.4.12",
    "2.999.3.123456",
)  # fmt: skip
PIECES = (*'aB0 ,=+<>#;"\\/:?-.()*@_éß汉😀\t\n', "'", "  ")
PRINTABLE, UTF8, IA5 = 0x13, 0x0C, 0x16


def random_name(chosen: random.Random) -> bytes:
    parts = []
    for _ in range(chosen.randint(0, 5)):
        pairs = []
        for _ in range(chosen.choice((1, 1, 1, 2))):
            kind = chosen.choice(TYPES)
            text = "".join(chosen.choice(PIECES) for _ in range(chosen.randint(1, 8)))
            tag = chosen.choice((UTF8, UTF8, PRINTABLE, IA5)) if text.isascii() else UTF8
            pairs.append(der.put(der.SEQUENCE, der.put_oid(kind), der.put(tag, text.encode())))
        parts.append(der.put(der.SET, *sorted(set(pairs), key=lambda one: (len(one), one))))
    return der.put(der.SEQUENCE, *parts)


def test_names_are_java_s() -> None:
    chosen = random.Random(11)
    names = [der.put(der.SEQUENCE)] + [random_name(chosen) for _ in range(1500)]
    output = program_output("Names", stdin="".join(f"{name.hex()}\n" for name in names))
    expected = [bytes.fromhex(line).decode() for line in output.split("\n")[:-1]]
    assert [rfc2253(name) for name in names] == expected


def test_what_is_read_of_a_certificate(tmp_path) -> None:
    made = Authority(tmp_path).issue("broker", "DNS:one,DNS:two,IP:127.0.0.1")
    pem = made.certificate.read_text()
    certificate = ssl.PEM_cert_to_DER_cert(pem)
    assert rfc2253(subject_of(certificate)) == "CN=broker"
    assert alternative_names(certificate) == {b"\x82\x03one", b"\x82\x03two", b"\x87\x04\x7f\0\0\1"}


def test_damaged_names_are_refused() -> None:
    whole = random_name(random.Random(3))
    for at in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"cut off|length|values"):
            rfc2253(whole[:at])
    chosen = random.Random(5)
    for _ in range(3000):
        damaged = bytearray(whole)
        damaged[chosen.randrange(len(damaged))] = chosen.randrange(256)
        with contextlib.suppress(ValueError):
            rfc2253(bytes(damaged))
