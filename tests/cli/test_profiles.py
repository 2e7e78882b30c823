"""`kbroker profile`, and who decides which broker a command talks to and how."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from kbroker.cli.options import client_settings, open_cluster
from kbroker.cli.profiles import change_profiles, profiles_file, read_profiles
from kbroker.client.errors import ConfigError
from kbroker.errors import OperatorError
from tests.cli.conftest import ran
from tests.support.processes import BrokerProcess
from tests.support.secured_kafka import PASSWORDS, SecuredKafka

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, and nothing in the environment that names a broker."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("KBROKER_DATA_DIR", str(tmp_path / "none"))
    for name in ("KBROKER_BOOTSTRAP_SERVER", "KBROKER_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Exit status, standard output and standard error of a command."""

    def run(*words: str) -> tuple[int, str, str]:
        return ran(capfd, words)

    return run


def test_a_profile_from_its_creation_to_its_end(run: Run) -> None:
    status, out, _ = run("profile", "create", "dev", "-b", "a:1,b:2", "-s", "linger.ms=7")
    assert (status, out) == (0, "profile dev created; used from now on\n")
    assert "there is a profile 'dev' already" in run("profile", "create", "dev")[2]
    secured = ("security.protocol=SASL_SSL", "sasl_mechanism=PLAIN", "sasl.username=u")
    sets = [word for pair in (*secured, "sasl.password=hush") for word in ("-s", pair)]
    run("profile", "create", "prod", "-b", "c:3", *sets)
    listed = json.loads(run("profile", "list", "-o", "json")[1])
    assert [(row["name"], row["current"]) for row in listed] == [("dev", True), ("prod", False)]
    assert listed[1]["sasl_mechanism"] == "PLAIN"
    assert run("profile", "use", "prod")[0] == 0
    shown = json.loads(run("profile", "show", "-o", "json")[1])
    assert (shown["name"], shown["settings"]["sasl.password"]) == ("prod", "[hidden]")
    url = "sasl.oauthbearer.token.endpoint.url"
    assert run("profile", "edit", "prod", "-s", f"{url}=http://ann:hush@h/t")[0] == 0
    assert json.loads(run("profile", "show", "-o", "json")[1])["settings"][url] == "http://h/t"
    assert run("profile", "edit", "prod", "-d", url)[0] == 0
    assert run("profile", "edit", "prod", "-s", "acks=1", "-d", "sasl.username")[0] == 0
    assert "sasl.username" not in read_profiles().settings["prod"]
    assert run("profile", "delete", "prod", "--dry-run")[1] == "profile prod would be deleted\n"
    assert run("profile", "delete", "prod", "gone", "--if-exists")[1] == (
        "profile prod deleted\nprofile gone does not exist\n"
    )
    assert read_profiles().current is None
    for words in (["profile", "list", "-o", "wide"], ["profile", "show", "dev"]):
        assert "hush" not in run(*words)[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["create", "x", "-s", "lingr.ms=5"], "did you mean 'linger.ms'?"),
        (["create", "x", "-s", "linger.ms=x"], "linger.ms='x': must be a whole number"),
        (["create", "x", "-s", "security.protocol=SASL_SSL"], "sasl.mechanism='GSSAPI'"),
        (["create", "x", "-b", "h:x"], "'x' is not a port"),
        (["create", "a b"], "letters, digits"),
        (["use", "dve"], "did you mean 'dev'?"),
        (["edit", "dev"], "nothing to change"),
        (["edit", "dev", "-d", "acks"], "has no setting 'acks'"),
        (["delete", "dve"], "did you mean 'dev'?"),
        (["use"], "give either PROFILE or --none"),
    ],
)
def test_a_mistake_changes_nothing(run: Run, words: list[str], told: str) -> None:
    run("profile", "create", "dev", "-b", "a:1")
    before = profiles_file().read_bytes()
    status, out, err = run("profile", *words)
    assert status != 0
    assert out == ""
    assert told in err
    assert profiles_file().read_bytes() == before


def test_the_file_is_the_owners_alone_and_survives_odd_text(run: Run) -> None:
    odd = 'quote " backslash \\ new\nline \x7f ü = # ['
    with change_profiles() as profiles:
        profiles.settings["odd"] = {"sasl.password": odd}
    assert read_profiles().settings["odd"]["sasl.password"] == odd
    assert stat.S_IMODE(os.stat(profiles_file()).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(profiles_file().parent).st_mode) == 0o700
    assert [entry.name for entry in profiles_file().parent.iterdir()] == ["profiles.toml"]


def test_a_file_written_by_hand(run: Run, home: Path) -> None:
    profiles_file().parent.mkdir()
    profiles_file().write_text('[profile.x]\nbootstrap.servers = "h:1"\n"linger.ms" = 5\n')
    assert client_settings(profile="x", kind="producer") == {
        "bootstrap.servers": "h:1",
        "linger.ms": "5",
    }
    profiles_file().write_text("current = 7\n")
    assert run("profile", "list")[0] == 1
    profiles_file().write_text("oops")
    status, _, err = run("topic", "list")
    assert status == 1
    assert str(profiles_file()) in err


def test_changes_at_the_same_time_are_all_kept() -> None:
    def add(number: int) -> None:
        with change_profiles() as profiles:
            profiles.settings[f"p{number}"] = {"bootstrap.servers": "h:1"}

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_profiles().settings) == 8


def servers(*given: str | None, **more: object) -> str:
    return client_settings(*given, **more)["bootstrap.servers"]  # type: ignore[arg-type]


def test_who_decides_which_broker(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert servers() == "127.0.0.1:9092"
    with change_profiles() as profiles:
        profiles.settings["now"] = {"bootstrap.servers": "now:1", "client.id": "me"}
        profiles.settings["bare"] = {"client.id": "bare"}
        profiles.current = "now"
    assert client_settings() == {"bootstrap.servers": "now:1", "client.id": "me"}
    assert client_settings("flag:1") == {"bootstrap.servers": "flag:1"}
    assert client_settings("flag:1", "now")["client.id"] == "me"
    assert servers(None, "bare") == "127.0.0.1:9092"
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", "env:1")
    assert client_settings() == {"bootstrap.servers": "env:1"}
    assert servers(None, "now") == "now:1"
    assert servers(sets=["bootstrap.servers=set:1"]) == "set:1"
    monkeypatch.setenv("KBROKER_PROFILE", "bare")
    assert client_settings() == {"bootstrap.servers": "env:1", "client.id": "bare"}
    monkeypatch.delenv("KBROKER_BOOTSTRAP_SERVER")
    monkeypatch.setenv("KBROKER_PROFILE", "gone")
    with pytest.raises(OperatorError, match="no profile 'gone'"):
        client_settings()
    assert servers(None, "now") == "now:1"


def test_settings_go_to_the_clients_that_know_them(home: Path) -> None:
    file = home / "client.properties"
    file.write_text("bootstrap.servers=f:1\nlinger.ms = 3\ngroup.id=g\nclient.id=file\n")
    told = ["client.id=set"]
    assert client_settings(sets=told, file=file) == {
        "bootstrap.servers": "f:1",
        "client.id": "set",
    }
    assert client_settings("b:1", file=file, kind="producer")["linger.ms"] == "3"
    assert client_settings(file=file, kind="consumer")["group.id"] == "g"
    with pytest.raises(ConfigError, match=r"did you mean 'linger\.ms'"):
        client_settings("b:1", sets={"linger.m": "1"})
    with pytest.raises(click.BadParameter, match="write KEY=VALUE"):
        client_settings("b:1", sets=["linger.ms"])


def test_settings_of_other_programs_in_a_file_are_skipped(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "client.properties"
    file.write_text(
        "metadata.broker.list=f:1\nschema.registry.url=http://r\nlinger.sm=3\nacks=all\n"
    )
    settings = client_settings(file=file, kind="producer")
    assert settings == {"bootstrap.servers": "f:1", "acks": "all"}
    said = capsys.readouterr().err
    assert said.startswith(f"kbroker: warning: {file}: skipping settings that no client has: ")
    assert "linger.sm (did you mean linger.ms?), schema.registry.url" in said
    with pytest.raises(ConfigError, match=r"schema\.registry\.url"):
        client_settings("b:1", sets={"schema.registry.url": "http://r"})  # asked for by hand


def test_commands_use_the_profile(run: Run, target: BrokerProcess, topic: str, home: Path) -> None:
    run("profile", "create", "here", "-b", target.bootstrap, "-s", "client.id=profiled")
    assert run("topic", "create", topic) == (0, f"topic {topic} created with 2 partitions\n", "")
    assert run("group", "list")[0] == 0
    file = home / "client.properties"
    file.write_text(f"bootstrap.servers={target.bootstrap}\nrequest.timeout.ms=9000\n")
    run("profile", "create", "dead", "-b", "127.0.0.1:1", "--use")
    assert "no broker listens on 127.0.0.1:1" in run("topic", "list")[2]
    assert topic in run("topic", "list", "--profile", "here")[1]
    assert topic in run("topic", "list", "-X", str(file))[1]
    assert topic in run("topic", "list", "-X", f"bootstrap.servers={target.bootstrap}")[1]
    assert run("topic", "list", "--profile", "her") == (
        1, "", "kbroker: there is no profile 'her'; did you mean 'here'?\n",
    )  # fmt: skip
    with open_cluster(None, settings=client_settings(profile="here")) as cluster:
        assert cluster.client_id == "profiled"
    run("topic", "delete", topic, "--profile", "here")


@pytest.mark.long
def test_a_profile_with_a_password(run: Run, secured_kafka: SecuredKafka, topic: str) -> None:
    """Every command gives it: those on an admin's connections, producers, consumers."""
    user, password = "alice", PASSWORDS["alice"]
    sets = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.username={user}",
            f"sasl.password={password}")  # fmt: skip
    words = [word for pair in sets for word in ("-s", pair)]
    assert run("profile", "create", "safe", "-b", secured_kafka.sasl_bootstrap, *words)[0] == 0
    assert run("topic", "create", topic)[0] == 0
    assert "healthy" in run("cluster", "health")[1]
    for words in (["produce", "-n", "500"], ["consume", "-n", "500"], ["e2e", "-n", "20"]):
        status, out, err = run("bench", *words, "-o", "json")
        assert (status, json.loads(out)["errors"]) == (0, 0), err
    assert run("consume", topic, "-e") == (0, "", "")
    status, out, err = run("topic", "list", "-X", "sasl.password=wrong")
    assert (status, out) == (1, "")
    assert "SASL_AUTHENTICATION_FAILED" in err
    assert err.count("\n") == 1
    assert password not in run("profile", "show")[1]


def test_a_secret_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def prompt(text: str, *, hide_input: bool, err: bool) -> str:
        asked.append((text, hide_input and err))
        return "hush"

    monkeypatch.setattr("click.prompt", prompt)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert run("profile", "create", "x", "-b", "h:1", "-s", "sasl.password")[0] == 0
    assert asked == [("sasl.password", True)]
    assert read_profiles().settings["x"]["sasl.password"] == "hush"
