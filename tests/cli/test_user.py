"""`kbroker user`, `kbroker start --user`, and the warning of a broker that is open to everybody."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.cli.passwords import password_of, split_user
from kbroker.client import Admin
from kbroker.client.errors import AuthenticationError
from kbroker.config import BrokerConfig
from kbroker.config.definitions_security import AUTHORIZERS
from kbroker.errors import OperatorError
from kbroker.server.exposure import closed_line, open_line
from tests.support.kbroker import KbrokerProcess
from tests.support.sasl import SecuredBroker

ROOT = ("admin", "s:cret=, \u00fc")
SASL = "SASL_PLAINTEXT"


class Guarded(KbrokerProcess):
    """`kbroker start --user`."""

    def command(self) -> list[str]:
        return [*super().command(), "--user", ":".join(ROOT)]

    def is_ready(self) -> bool:
        found = re.search(rf"^listening on {SASL}://127\.0\.0\.1:(\d+)", self.log_text(), re.M)
        if found is None:
            return False
        self.port = int(found[1])
        return True


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(tmp_path_factory.mktemp("guarded"), {"kbroker.durability": "page-cache"})
    one.start()
    yield one
    one.kill()


def settings(
    broker: Guarded, user: str, password: str, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.port}", "security.protocol": SASL,
        "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password,
    }  # fmt: skip


def gets_in(broker: Guarded, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    try:
        with Admin(settings(broker, user, password, mechanism)) as admin:
            return bool(admin.describe_cluster().brokers)
    except AuthenticationError:
        return False


def run(
    broker: Guarded, tmp_path: Path, *words: str, status: int = 0, stdin: str = "", **environ: str
) -> str:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in settings(broker, *ROOT).items()))
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", *words, "-X", str(file)], input=stdin,
        capture_output=True, text=True, env={**os.environ, **environ}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_start_with_a_user_asks_everybody(guarded: Guarded) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert gets_in(guarded, *ROOT, mechanism)
    assert not gets_in(guarded, ROOT[0], "wrong")
    assert not gets_in(guarded, "nobody", ROOT[1])
    for what in (Path(f"/proc/{guarded.pid}/environ"), guarded.log_path):
        assert ROOT[1].encode() not in what.read_bytes()


def test_users(guarded: Guarded, tmp_path: Path) -> None:
    """Created, seen, given another password, deleted; passwords from everywhere but the words."""
    secret = tmp_path / "secret"
    secret.write_text("from a file\nand more\n")
    told = run(guarded, tmp_path, "user", "create", "a", "--password-file", str(secret))
    assert "user a created" in told
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert gets_in(guarded, "a", "from a file", mechanism)
    told = run(guarded, tmp_path, "user", "create", "a", status=1, KBROKER_PASSWORD="x")
    assert "is there already" in told and gets_in(guarded, "a", "from a file")
    run(guarded, tmp_path, "user", "create", "b", "-m", "SCRAM-SHA-256", "--iterations", "5000",
        KBROKER_PASSWORD="from outside")  # fmt: skip
    assert gets_in(guarded, "b", "from outside", "SCRAM-SHA-256")
    assert not gets_in(guarded, "b", "from outside")
    run(guarded, tmp_path, "user", "passwd", "b", "--password-file", "-", stdin="another\n")
    assert gets_in(guarded, "b", "another", "SCRAM-SHA-256")
    assert not gets_in(guarded, "b", "from outside", "SCRAM-SHA-256")
    told = run(guarded, tmp_path, "user", "list")
    assert re.search(r"^b +SCRAM-SHA-256 +8192$", told, re.M)
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["a", "a", "admin", "admin", "b"]
    assert "would be deleted" in run(guarded, tmp_path, "user", "delete", "a", "--dry-run")
    told = run(guarded, tmp_path, "user", "delete", "a", "nobody", status=1)
    assert "user a deleted" in told and "there is no user nobody" in told
    assert not gets_in(guarded, "a", "from a file")
    assert "there is no user a" in run(guarded, tmp_path, "user", "passwd", "a", status=1)
    told = run(guarded, tmp_path, "user", "create", "c", status=1)
    assert "no password for c: there is no terminal" in told


def test_a_password_is_asked_for_twice_and_not_shown(guarded: Guarded, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in settings(guarded, *ROOT).items()))
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "kbroker.cli", "user", "create", "typed", "-X", str(file)],
        stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    said = b""
    for prompt in (b"Password of typed: ", b"Once more: "):
        while prompt not in said:
            said += os.read(leader, 1000)
        os.write(leader, b"by hand\n")
    try:
        while part := os.read(leader, 1000):
            said += part
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    assert child.wait(60) == 0 and b"created" in said and b"by hand" not in said
    assert gets_in(guarded, "typed", "by hand")


def test_passwords(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert split_user("a:b:c") == ("a", "b:c") and split_user("a") == ("a", None)
    for wrong in ("", ":x", "a:"):
        with pytest.raises(OperatorError):
            split_user(wrong)
    for content in ("", "\nx", "a\0b"):
        (tmp_path / "file").write_text(content)
        with pytest.raises(OperatorError):
            password_of("u", tmp_path / "file")
    monkeypatch.setenv("KBROKER_PASSWORD", "")
    with pytest.raises(OperatorError):
        password_of("u")


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, False),
        ({"listeners": "PLAINTEXT://localhost:1,X://[::1]:2",
          "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,X:PLAINTEXT"}, False),
        ({"listeners": "PLAINTEXT://:1"}, True),
        ({"listeners": "PLAINTEXT://broker.example:1"}, True),
        ({"listeners": "PLAINTEXT://:1", "kbroker.insecure": "true"}, False),
        ({"listeners": "SASL_PLAINTEXT://:1"}, False),
        ({"listeners": "SASL_PLAINTEXT://:1,PLAINTEXT://10.0.0.1:2"}, True),
        ({"listeners": "PLAINTEXT://:1", "authorizer.class.name": "kbroker"}, False),
        ({"listeners": "PLAINTEXT://:1", "authorizer.class.name": AUTHORIZERS[1],
          "super.users": "User:admin"}, False),
        ({"listeners": "PLAINTEXT://:1", "authorizer.class.name": "kbroker",
          "allow.everyone.if.no.acl.found": "true"}, True),
        ({"listeners": "PLAINTEXT://:1", "authorizer.class.name": AUTHORIZERS[1],
          "allow.everyone.if.no.acl.found": "true"}, True),
        ({"listeners": "PLAINTEXT://:1", "authorizer.class.name": "kbroker",
          "super.users": "User:admin; User:ANONYMOUS"}, True),
        ({"listeners": "PLAINTEXT://127.0.0.1:1", "authorizer.class.name": "kbroker",
          "allow.everyone.if.no.acl.found": "true"}, False),
    ],
)  # fmt: skip
def test_a_broker_that_is_open_to_everybody_says_so(settings_: dict[str, str], told: bool) -> None:
    line = open_line(BrokerConfig(settings_))
    assert (line is not None) == told
    assert line is None or ("--insecure" in line and "\n" not in line)


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, True),
        ({"listeners": "SASL_PLAINTEXT://:2,SSL://[::1]:1"}, True),
        ({"listeners": "SSL://[::1]:1", "ssl.client.auth": "required"}, False),
        ({"listeners": "SASL_PLAINTEXT://:1,SASL_SSL://:2"}, False),
        ({"listeners": "PLAINTEXT://127.0.0.1:1", "kbroker.insecure": "true"}, False),
        ({"listeners": "PLAINTEXT://127.0.0.1:1", "authorizer.class.name": "kbroker"}, False),
    ],
)
def test_users_and_a_listener_that_asks_for_none(settings_: dict[str, str], told: bool) -> None:
    line = open_line(BrokerConfig(settings_), users=True)
    assert (line is not None) == told
    assert line is None or ("1:1 may" in line and "make a user" not in line and "\n" not in line)


@pytest.mark.parametrize(
    ("settings_", "told"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, ""),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:1"}, "kbroker start --user NAME:PASSWORD"),
        ({"listeners": "SASL_SSL://:1", "ssl.client.auth": "required"}, "kbroker start --user"),
        ({"listeners": "SASL_PLAINTEXT://:1,PLAINTEXT://127.0.0.1:2"}, "kbroker user create NAME"),
        ({"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"},
         ""),
        ({"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "SCRAM-SHA-256"},
         "kbroker start --user"),
    ],
)  # fmt: skip
def test_a_listener_that_nobody_can_log_in_at(settings_: dict[str, str], told: str) -> None:
    line = closed_line(BrokerConfig(settings_))
    assert (told in line and "\n" not in line) if line is not None else not told


def test_who_gets_in_is_told_by_the_next_start_too(tmp_path: Path) -> None:
    """By the users that are there, not by the options of this start."""
    guarded = Guarded(tmp_path / "guarded", {"kbroker.durability": "page-cache"})
    guarded.start()
    assert guarded.stop() == 0
    assert not re.search("whoever can connect|nobody can log in", guarded.log_text())
    opened = KbrokerProcess(tmp_path / "opened", guarded.settings, guarded.data_dir)
    opened.start()
    opened.kill()
    assert opened.log_text().count("there are users, but it asks nobody") == 1


def test_a_start_that_lets_nobody_in_says_so(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path, {"sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    broker.start()
    broker.add_user("alice", "pw")
    broker.stop()
    assert broker.log_text().count("nobody can log in at SASL://127.0.0.1:0") == 1
    broker.settings["kbroker.insecure"] = "true"
    broker.start()
    broker.kill()
    assert broker.log_text().count("nobody can log in") == 1
    assert "whoever can connect" not in broker.log_text()


def test_a_user_does_not_go_with_an_open_listener(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", "start", "-D", str(tmp_path / "d"), "--user", "a:b",
         "--listen", "PLAINTEXT://127.0.0.1:0"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "asks for no password" in done.stderr


def test_a_user_is_given_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", "start", "-D", str(tmp_path / "d"), "--user", "a:b",
         "--user", "a:c"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "--user: a is given twice" in done.stderr


def test_who_does_not_say_who_it_is_is_told_how(guarded: Guarded) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", "user", "list", "-b", f"127.0.0.1:{guarded.port}"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "security.protocol has to say so" in done.stderr
    assert len(done.stderr.splitlines()) == 1
