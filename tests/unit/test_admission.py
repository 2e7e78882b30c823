"""Whether listeners can let anybody in, and what was set at run time and has gone bad since."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, ConfigError
from kbroker.security import admission
from tests.support.certificates import Authority
from tests.support.sasl_control import JAAS

PREFIX = "listener.name.sasl_plaintext."
USERS = f"{PREFIX}plain.sasl.jaas.config"
ENABLED = f"{PREFIX}sasl.enabled.mechanisms"
BAD = 'PlainLoginModule required user_app="x'
KEY_STORE = "listener.name.ssl.ssl.keystore.location"


def settings(protocol: str, **more: str) -> BrokerConfig:
    listeners = {"listeners": f"{protocol}://localhost:1"}
    return BrokerConfig(listeners | {key.replace("__", "."): one for key, one in more.items()})


def plain(jaas: str | None = JAAS) -> BrokerConfig:
    config = settings("SASL_PLAINTEXT", sasl__enabled__mechanisms="PLAIN")
    if jaas is not None:
        config.static[USERS] = jaas
    return config


def test_bad_users_that_were_set_at_run_time_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = plain()
    config.set_dynamic({USERS: BAD, "log.retention.ms": "7"}, {})
    admission.pass_over_bad(config)
    assert config.dynamic_broker == {"log.retention.ms": "7"}
    assert config.text(USERS) == JAAS
    (line,) = caplog.messages
    assert line.startswith(f"{USERS}, set at run time, cannot be used and is passed over: {USERS}:")


def test_mechanisms_without_users_give_way_to_the_static_ones() -> None:
    """The bad users stay, which nobody asks for then."""
    config = settings("SASL_PLAINTEXT")
    config.set_dynamic({USERS: BAD}, {})
    admission.pass_over_bad(config)
    assert config.dynamic_broker == {USERS: BAD}
    config.set_dynamic({USERS: BAD, ENABLED: "PLAIN"}, {})
    admission.pass_over_bad(config)
    assert config.dynamic_broker == {USERS: BAD}


@pytest.mark.parametrize(
    ("jaas", "told"), [(None, f"{USERS} is not set"), ("none", f"{USERS}: required, or another")]
)
def test_where_the_static_ones_are_bad_too_there_is_no_start(
    caplog: pytest.LogCaptureFixture, jaas: str | None, told: str
) -> None:
    config = plain(jaas)
    config.set_dynamic({USERS: BAD}, {})
    with pytest.raises(ConfigError, match=told):
        admission.pass_over_bad(config)
    assert len(caplog.messages) == 1 and USERS in caplog.messages[0]
    caplog.clear()
    with pytest.raises(ConfigError, match=told):
        admission.pass_over_bad(plain(jaas))
    assert not caplog.messages
    admission.pass_over_bad_logins(config)  # in the middle of a change: told alone
    assert caplog.records[-1].levelno == logging.ERROR and told in caplog.messages[-1]


def test_static_ones_that_are_bad_do_no_harm_where_dynamic_ones_hold() -> None:
    """As in Apache Kafka (KAFKA-17431)."""
    config = plain(None)
    config.set_dynamic({USERS: JAAS}, {})
    admission.pass_over_bad(config)
    assert config.dynamic_broker == {USERS: JAAS}


def test_a_store_of_tls_goes_alone(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether clients are asked for a certificate is none of the key store's."""
    store = str(authority.issue("server").pem)
    config = settings("SSL", ssl__keystore__location=store,
                      ssl__truststore__location=str(authority.certificate))  # fmt: skip
    own = {"listener.name.ssl.ssl.client.auth": "required"}
    rules = "listener.name.ssl.ssl.principal.mapping.rules"
    gone = str(tmp_path / "gone")
    for bad in (
        {KEY_STORE: gone, "listener.name.ssl.ssl.keystore.password": "secret"},
        {"listener.name.ssl.ssl.truststore.location": gone},
        {rules: "RULE:bad"},
        {KEY_STORE: gone, rules: "RULE:bad"},
    ):
        caplog.clear()
        config.set_dynamic(own | bad, {})
        admission.pass_over_bad(config)
        assert config.dynamic_broker == own
        assert all(name in caplog.text for name in bad) and "secret" not in caplog.text
