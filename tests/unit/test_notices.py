"""What a start warns of beside who gets in: tests/cli/test_user.py has that."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig
from kbroker.server.notices import notices


def told_of(settings: dict[str, str], about: str) -> list[str]:
    lines = list(notices(BrokerConfig(settings), users=False))
    assert not any("\n" in line for line in lines)
    return [line for line in lines if about in line]


def test_settings_of_listeners_that_there_are_not() -> None:
    wrong = ("listener.name.sasl_plaintex.plain.sasl.jaas.config",
             "listener.name.SASL_PLAINTEXT.sasl.enabled.mechanisms")  # fmt: skip
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "controller.listener.names": "CONTROLLER",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.controller.ssl.client.auth": "required",
    }
    about = "settings of listeners that there are not"
    assert not told_of(settings, about)
    (line,) = told_of(settings | dict.fromkeys(wrong, "PLAIN"), about)
    known = "controller, sasl_plaintext"
    assert line == f"{about}: {wrong[1]}, {wrong[0]}; there are {known}, in lower case"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"listeners": "SSL://127.0.0.1:1"}, 0),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.client.auth": "required"}, 1),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.client.auth": "requested"}, 1),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.client.auth": "required",
          "ssl.truststore.location": "ca.pem"}, 0),
        ({"listeners": "SSL://127.0.0.1:1", "ssl.client.auth": "required",
          "listener.name.ssl.ssl.truststore.certificates": "PEM"}, 0),
        ({"listeners": "SASL_SSL://127.0.0.1:1", "ssl.client.auth": "required"}, 0),
        ({"listeners": "SASL_SSL://127.0.0.1:1",
          "listener.name.sasl_ssl.ssl.client.auth": "required"}, 1),
        ({"listeners": "PLAINTEXT://127.0.0.1:1", "ssl.client.auth": "required"}, 0),
    ],
)  # fmt: skip
def test_clients_that_the_public_vouches_for(settings: dict[str, str], told: int) -> None:
    assert len(told_of(settings, "the system's public authorities")) == told
