"""Addresses as users write them."""

from __future__ import annotations

import pytest

from kbroker.client.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("broker", "broker", 9092),
        ("broker:1", "broker", 1),
        ("PLAINTEXT://broker:1", "broker", 1),
        ("[::1]:19092", "::1", 19092),
        ("[::1]", "::1", 9092),
        ("::1", "::1", 9092),
        ("fe80::1%eth0", "fe80::1%eth0", 9092),
        (" 127.0.0.1:9 ", "127.0.0.1", 9),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    ["", ":9092", "a:b", "a:0", "a:65536", "a:-1", "SSL://a:1", "[::1", "[a]b", "a:b:c", "[a:1]:2"],
)
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"write \[?HOST|write a:1, and"):
        parse_address(text)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_protocol_in_an_address_names_the_setting(protocol: str) -> None:
    with pytest.raises(ValueError, match=rf"write h:9093, and security\.protocol={protocol}$"):
        parse_address(f"{protocol.lower()}://h:9093")
    with pytest.raises(ValueError, match=r"write HOST:PORT, without http://$"):
        parse_address("http://h:9093")


def test_to_bind_takes_port_0_and_every_interface() -> None:
    assert parse_address("127.0.0.1:0", to_bind=True) == Address("127.0.0.1", 0)
    assert parse_address(":9092", to_bind=True) == Address("", 9092)
    assert parse_address("INTERNAL://[::]:1", to_bind=True) == Address("::", 1)
    with pytest.raises(ValueError, match="write HOST:PORT"):
        parse_address(":", to_bind=True)


def test_shown_as_written() -> None:
    for text in ("127.0.0.1:9092", "[::1]:1"):
        assert str(parse_address(text)) == text
