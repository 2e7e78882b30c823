"""Settings from the environment."""

from __future__ import annotations

import pytest

from kbroker.config import ConfigError, load_config
from kbroker.config.definitions import BROKER
from kbroker.config.environment import environment_settings, variable_of


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KBROKER_LOG_RETENTION_MS", "log.retention.ms"),
        ("KBROKER_DURABILITY", "kbroker.durability"),
        ("KBROKER_KBROKER_DURABILITY", "kbroker.durability"),
        ("KBROKER_LISTENER_NAME_INTERNAL_SSL_KEYSTORE_TYPE",
         "listener.name.internal.ssl.keystore.type"),
        ("KBROKER_LISTENER_NAME_X_SCRAM___SHA___256_SASL_JAAS_CONFIG",
         "listener.name.x.scram-sha-256.sasl.jaas.config"),
        ("KBROKER_CONFIG_PROVIDERS_ENV__FILE", "config.providers.env_file"),
    ],
)  # fmt: skip
def test_a_variable_sets_a_key(variable, key):
    assert environment_settings({variable: "1", "KAFKA_NODE_ID": "7"}) == {key: variable}


def test_every_key_has_its_variable():
    for key in BROKER:
        assert environment_settings({variable_of(key): ""}) == {key: variable_of(key)}


def test_what_is_not_meant_as_a_setting_is_passed_over():
    others = ("KBROKER_DATA_DIR", "KBROKER_PROFILE", "KBROKER_SERVICE_HOST", "KBROKER_PORT",
              "KBROKER_PORT_9092_TCP_ADDR", "KBROKER_TEST_HOOKS", "KBROKER_DEBUG")  # fmt: skip
    assert environment_settings(dict.fromkeys(others, "1")) == {}


def test_a_mistyped_key_is_told():
    with pytest.raises(ConfigError, match="did you mean KBROKER_LOG_RETENTION_MS"):
        environment_settings({"KBROKER_LOG_RETENTON_MS": "1"})
    both = {"KBROKER_DURABILITY": "fsync", "KBROKER_KBROKER_DURABILITY": "fsync"}
    with pytest.raises(ConfigError, match=r"both set kbroker\.durability"):
        environment_settings(both)


def test_it_wins_over_the_file_and_options_win_over_it(tmp_path, monkeypatch):
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=1\nlog.roll.ms=1\nnum.partitions=1\n")
    monkeypatch.setenv("KBROKER_LOG_RETENTION_MS", "2")
    monkeypatch.setenv("KBROKER_LOG_ROLL_MS", "2")
    config = load_config(file, ["log.roll.ms=3"])
    told = {name: (config.text(name), config.source(name))
            for name in ("log.retention.ms", "log.roll.ms", "num.partitions")}  # fmt: skip
    assert told == {
        "log.retention.ms": ("2", "KBROKER_LOG_RETENTION_MS"),
        "log.roll.ms": ("3", "--set"),
        "num.partitions": ("1", f"{file}, line 3"),
    }
    monkeypatch.setenv("KBROKER_LOG_RETENTION_MS", "soon")
    with pytest.raises(ConfigError, match=r"KBROKER_LOG_RETENTION_MS: .*soon"):
        load_config()
