"""`kbroker cluster`, `config get` and `config set`, Apache Kafka first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.messages import VERSIONS
from tests.cli.conftest import ran
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports, wait_for

Run = Callable[..., Any]


@pytest.fixture
def run(
    target: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """What a command prints, JSON read; with a status other than 0 its standard error."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", target.bootstrap)

    def run(*words: str, status: int = 0) -> Any:
        ended, out, err = ran(capfd, words)
        assert ended == status, err
        if status:
            return err
        return json.loads(out) if words[-1] == "json" else out

    return run


def test_info(run: Run, target: BrokerProcess, topic: str) -> None:
    run("topic", "create", topic, "-p", "3")
    told = run("cluster", "info", "-o", "json")
    (broker,) = told["brokers"]
    assert f"{broker['host']}:{broker['port']}".endswith(f":{target.port}")
    assert broker["controller"]
    assert not broker["fenced"]
    assert told["topics"] >= 1
    assert told["partitions"] >= 3
    assert told["cluster_id"] in run("cluster", "info")


def test_health(run: Run) -> None:
    told = run("cluster", "health", "-o", "json")
    assert told["healthy"]
    assert told["brokers"] == 1
    assert run("cluster", "health", "--wait", "5").startswith("healthy: 1 broker, ")
    (free,) = free_ports(1)
    nobody = run("cluster", "health", "-b", f"127.0.0.1:{free}", "--wait", "0.3", status=1)
    assert "no broker listens" in nobody


def test_api_versions(run: Run) -> None:
    rows = {row["api"]: row for row in run("cluster", "api-versions", "-o", "json")}
    metadata = rows["METADATA"]
    assert metadata["key"] == 3
    assert metadata["min"] <= metadata["used"] <= metadata["max"]
    assert metadata["used"] <= max(high for _, high in VERSIONS.values())
    assert "there is no broker 77" in run("cluster", "api-versions", "--broker", "77", status=2)


def test_a_setting_goes_back_to_its_default(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-c", "retention.ms=1000")
    unset = ["topic", "alter-config", topic, "-d", "retention.ms"]
    assert run(*unset) == f"topic {topic} changed\n"
    already = f"topic {topic} has no retention.ms of its own: it is at its default already\n"
    assert run(*unset) == already
    assert run(*unset, "-s", "retention.bytes=1") == f"topic {topic} changed\n{already}"
    assert "did you mean 'retention.ms'?" in run(*unset[:-1], "retention.m", status=1)


def test_log_directories(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "3")

    def made() -> bool:
        logs = run("cluster", "logdirs", "-p", "-o", "json")
        return sum(log["topic"] == topic for log in logs) == 3

    wait_for("its logs to be made", made, 60)
    (folder,) = run("cluster", "logdirs", "-o", "json")
    assert folder["partitions"] >= 3
    assert 0 < folder["usable_bytes"] <= folder["total_bytes"]
    logs = run("cluster", "logdirs", "-t", topic, "-p", "-o", "json")
    assert [(log["topic"], log["partition"]) for log in logs] == [(topic, n) for n in range(3)]
    assert folder["path"] in run("cluster", "logdirs")
    assert "there is none here" in run("cluster", "logdirs", "-t", "nope", status=1)


def test_features(run: Run) -> None:
    rows = {row["feature"]: row for row in run("cluster", "features", "-o", "json")}
    metadata = rows["metadata.version"]
    assert metadata["min"] <= metadata["level"] <= metadata["max"]


def test_quorum(run: Run) -> None:
    told = run("cluster", "quorum", "-o", "json")
    (replica,) = told["replicas"]
    assert (replica["node"], replica["role"]) == (told["leader"], "leader")
    assert (replica["behind"], replica["behind_ms"]) == (0, 0)
    assert 0 < told["high_watermark"] <= replica["log_end_offset"]
    assert f"leader {told['leader']}, epoch {told['leader_epoch']}," in run("cluster", "quorum")


def test_a_secret_is_not_shown(run: Run) -> None:
    name = "listener.name.x.ssl.keystore.password"
    told = run("config", "set", f"{name}=hush", "--broker", "1", "--dry-run")
    assert told == f"{name} could be hidden for broker 1\n"


def test_a_secret_is_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[dict[str, str]] = []
    monkeypatch.setattr(
        "kbroker.client.admin_configs.alter_configs",
        lambda *_, set_values, **__: sent.append(set_values),
    )
    name = "listener.name.x.ssl.keystore.key"
    file = tmp_path / "key"
    file.write_text("two\nlines\n")
    words = ("config", "set", name, "--broker", "1")
    assert run(*words, "--password-file", str(file)) == f"{name} is hidden for broker 1\n"
    assert "there is no terminal to ask; give --password-file" in run(*words, status=1)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed at {prompt}")
    assert "typed" not in run(*words)
    assert [told[name] for told in sent] == ["two\nlines", f"typed at {name}:"]
    assert "write KEY=VALUE" in run("config", "set", "log.retention.ms", status=2)
    only = "goes with one KEY of a password"
    assert only in run(*words[:2], "a=b", "--password-file", str(file), status=2)


def test_a_setting_of_a_listener_that_is_not_set(
    kbroker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "listener.name.x.ssl.keystore.type"
    status, _, said = ran(capsys, ["config", "get", name, "-b", kbroker.bootstrap])
    assert (status, said) == (0, f"{name} is not set\n")


def test_settings_of_a_running_broker(run: Run) -> None:
    def told(*words: str) -> dict[str, Any]:
        rows = run("config", "get", *words, "-o", "json")
        return {row["name"]: (row["value"], row["source"]) for row in rows}

    key = "log.message.timestamp.after.max.ms"
    assert told(key)[key][1] == "default"
    assert key in told("--all")
    could = run("config", "set", f"{key}=5000000", "--dry-run")
    assert could == f"{key} could be '5000000' for all brokers\n"
    assert key not in told()
    try:
        run("config", "set", f"{key}=5000000")
        assert told()[key] == ("5000000", "cluster default (dynamic)")
        (node,) = (row["id"] for row in run("cluster", "info", "-o", "json")["brokers"])
        run("config", "set", f"{key}=6000000", "--broker", str(node))
        assert told(key)[key] == ("6000000", "broker (dynamic)")
        run("config", "set", "-d", key, "--broker", str(node))
    finally:
        run("config", "set", "--delete", key)
    assert told(key)[key][1] == "default"


def test_settings_of_a_group(run: Run) -> None:
    key, group = "consumer.session.timeout.ms", "some-group"

    def told() -> dict[str, Any]:
        rows = run("config", "get", "--group", group, "-o", "json")
        return {row["name"]: (row["value"], row["source"]) for row in rows}

    before = told().get(key)
    says = run("config", "set", f"{key}=46000", "--group", group)
    assert says == f"{key} is '46000' for group {group}\n"
    wait_for("the setting to be told", lambda: told().get(key) == ("46000", "group"), 60)
    run("config", "set", "-d", key, "--group", group)
    wait_for("the setting to be gone", lambda: told().get(key) == before, 60)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["get", "consumer.session", "--group", "g"], 1, "groups have no setting"),
        (["set", "a=b", "--group", "g", "--broker", "1"], 2, "exclude each other"),
        (["get", "log.retention.m"], 1, "did you mean 'log.retention.ms'?"),
        (["set", "log.retention.m=1"], 1, "did you mean 'log.retention.ms'?"),
        (["set", "log.dirs=/x"], 1, "INVALID_REQUEST"),
        (["set", "log.retention.ms=x"], 1, "log.retention.ms"),
        (["set", "log.retention.ms"], 2, "write KEY=VALUE"),
        (["set", "listener.name.x.ssl.keystore.type=PEM"], 1, "; give --broker "),
        (["set"], 2, "nothing to change"),
        (["set", "a=b", "--broker", "77"], 2, "there is no broker 77"),
    ],
)
def test_settings_that_cannot_be(run: Run, words: list[str], status: int, says: str) -> None:
    told = run("config", *words, status=status)
    assert says in told
    assert told.count("\n") == 1


def test_a_cluster_whose_brokers_are_all_fenced_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that lost its session with the controller answers still, and names none."""
    monkeypatch.setattr("kbroker.client.cluster.Cluster.nodes", {})
    for words in (["config", "get"], ["cluster", "logdirs"], ["cluster", "api-versions"]):
        assert "no broker that serves" in run(*words, status=1)
