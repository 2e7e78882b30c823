"""Values that stand elsewhere: Apache Kafka's config providers."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, ConfigError, load_config
from kbroker.config.report import ignored_line, show

PACKAGE = "org.apache.kafka.common.config.provider"
JAAS = "listener.name.sasl.plain.sasl.jaas.config"


def provider(name: str, kind: str, **parameters: str) -> dict[str, str]:
    """The settings of one provider."""
    prefix = f"config.providers.{name}"
    told = {f"{prefix}.param.{key.replace('_', '.')}": text for key, text in parameters.items()}
    return {"config.providers": name, f"{prefix}.class": f"{PACKAGE}.{kind}", **told}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "sec.properties").write_text("pw=real:secret\nthreads=7\n")
    (folder / "word").write_text("whole\n")
    (tmp_path / "outside").write_text("pw=other\n")
    return folder


def test_a_key_of_a_file_is_the_password(secrets):
    text = f'user_app="${{file:{secrets}/sec.properties:pw}}";'
    told = {JAAS: text, "num.io.threads": f"${{file:{secrets}/sec.properties:threads}}"}
    config = BrokerConfig({**provider("file", "FileConfigProvider"), **told})
    assert config.text(JAAS) == 'user_app="real:secret";'
    assert config.integer("num.io.threads") == 7
    assert ignored_line(config) is None
    assert "real:secret" not in str(show(config))


def test_a_file_of_a_directory_is_taken_whole(secrets):
    settings = {**provider("dir", "DirectoryConfigProvider"), JAAS: f"a ${{dir:{secrets}:word}} b"}
    assert BrokerConfig(settings).text(JAAS) == "a whole\n b"


def test_variables_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("APP_USER", "alice")
    monkeypatch.setenv("APP_WORD", "hush")
    file = tmp_path / "server.properties"
    told = provider("env", "EnvVarConfigProvider", allowlist_pattern="APP_.*")
    told[JAAS] = "${HOME} ${env:APP_USER}/${env:APP_WORD}"
    file.write_text("".join(f"{name}={text}\n" for name, text in told.items()))
    assert load_config(file).text(JAAS) == "${HOME} alice/hush"
    with pytest.raises(ConfigError, match=r"allowlist\.pattern does not allow HOME"):
        load_config(file, [f"{JAAS}=${{env:HOME}}"])
    file.write_text(f"{file.read_text()}{JAAS}=${{env:APP_NONE}}\n")
    with pytest.raises(ConfigError, match=r"server\.properties, line 5: .*no variable APP_NONE"):
        load_config(file)


@pytest.mark.parametrize(
    ("parameters", "allowed"),
    [
        ({}, True),
        ({"allowlist_pattern": "OTHER|MY_APP_WORD"}, True),
        ({"allowlist_pattern": ""}, False),
        ({"allowlist_pattern": "APP"}, False),
        ({"allowlist_pattern": "^MY_"}, False),
        ({"allowlist_pattern": "MY|WORD"}, False),
    ],
)
def test_a_pattern_of_variables_is_of_their_whole_names(monkeypatch, parameters, allowed):
    """As Kafka's Matcher.matches()."""
    monkeypatch.setenv("MY_APP_WORD", "hush")
    told = provider("env", "EnvVarConfigProvider", **parameters)
    expected = nullcontext() if allowed else pytest.raises(ConfigError, match="does not allow MY_")
    with expected:
        assert BrokerConfig({**told, JAAS: "${env:MY_APP_WORD}"}).text(JAAS) == "hush"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${file:{0}/none:pw}", "cannot read {0}/none: No such file"),
        ("${file:{0}/sec.properties:no}", "{0}/sec.properties has no key no"),
        ("${file:pw}", "no path: write"),
        ("${file:{0}/../outside:pw}", "allowed.paths does not allow {0}/../outside"),
        ("${vault:{0}:pw}", "config.providers does not name vault"),
    ],
)
def test_a_variable_is_never_taken_as_it_is_written(secrets, text, message):
    settings = provider("file", "FileConfigProvider", allowed_paths=str(secrets))
    wanted = re.escape(message.replace("{0}", str(secrets)))
    with pytest.raises(ConfigError, match=rf"^{re.escape(JAAS)}: \$\{{.*{wanted}"):
        BrokerConfig({**settings, JAAS: text.replace("{0}", str(secrets))})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config.providers": "vault"}, r"^config\.providers\.vault\.class: not set; kbroker has"),
        (provider("v", "VaultProvider"), r"VaultProvider; kbroker has .*FileConfigProvider"),
        (provider("f", "FileConfigProvider", allowed_path="/"), "unknown; of .*allowed.paths"),
        (provider("f", "FileConfigProvider", allowed_paths="etc"), "not an absolute path"),
        (provider("e", "EnvVarConfigProvider", allowlist_pattern="("), "allowlist.pattern: "),
        ({"config.providers.f.class": "x"}, "does not name this provider"),
    ],
)
def test_providers_that_there_are_not_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(settings)


def test_without_providers_values_are_what_is_written():
    assert BrokerConfig({JAAS: "${file:/a:b}"}).text(JAAS) == "${file:/a:b}"
