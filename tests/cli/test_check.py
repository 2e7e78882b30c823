"""`kbroker check`: what speaks against a start, and what does not."""

from __future__ import annotations

import datetime
import email.utils
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.cli import check, check_clock, check_disk, root
from kbroker.client import Admin
from kbroker.client.admin_users import ScramUpsertion
from tests.support import guarded, wire
from tests.support.certificates import Authority
from tests.support.kbroker import KbrokerProcess

ROOT = Path(__file__).parents[2]
Run = Callable[..., tuple[int, dict[str, tuple[str, str]]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit status, and verdict and text of each check."""

    def run(*words: str) -> tuple[int, dict[str, tuple[str, str]]]:
        status = root.run(["check", *words, "-o", "json"])
        rows = json.loads(capsys.readouterr().out)
        return status, {row["check"]: (row["verdict"], row["text"]) for row in rows}

    return run


def test_a_directory_that_is_fit(run: Run, tmp_path: Path) -> None:
    status, told = run("-D", str(tmp_path / "new"))
    assert status == 0
    assert told["settings"][0] == check.OK
    assert told["data directory"][0] == check.OK
    assert told["data directory"][1].startswith(f"{tmp_path}/new is not there yet")
    assert "ms for 4 KiB" in told["sync"][1]
    assert list(tmp_path.iterdir()) == []


def test_stray_folders_are_named(run: Run, tmp_path: Path) -> None:
    assert "stray folders" not in run("-D", str(tmp_path))[1]
    for index in range(6):
        (tmp_path / f"t-{index}.{'0' * 32}-stray").mkdir()
    (tmp_path / f"t-0.{'0' * 32}-delete").mkdir()
    status, told = run("-D", str(tmp_path))
    verdict, text = told["stray folders"]
    assert (status, verdict) == (0, check.WARNING)
    assert text.startswith("6 belong to no partition: t-0.") and "t-4." in text
    assert "t-5." not in text and "kbroker log strays" in text


def test_a_broker_that_runs(run: Run, kbroker: KbrokerProcess, tmp_path: Path) -> None:
    status, told = run("-D", str(kbroker.data_dir))
    assert status == 0, told
    assert told["data directory"][1].endswith(f"served by process {kbroker.pid}")
    assert told["answers"][1].startswith(kbroker.bootstrap)
    assert told["partitions"][1].endswith("all led and in sync")
    assert int(told["open files"][1].split()[0]) > 3
    assert int(told["memory maps"][1].split()[0]) > 3
    address = "PLAINTEXT://127.0.0.1:1"
    runfile.prepare(
        tmp_path, listeners=[address], durability="page-cache", version="1",
        produce_refused="kbroker.disk.bytes.max", open_listeners=[address],
    )()  # fmt: skip
    status, told = run("-D", str(tmp_path))
    assert status == 1
    assert told["data directory"][1].endswith(f"served by process {os.getpid()}")
    assert [told[name][0] for name in ("answers", "produce", "durability")] == [
        check.FAILED, check.FAILED, check.WARNING,
    ]  # fmt: skip


def test_directories_that_the_user_may_not_see(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that does not show them is no broker whose disk failed."""
    broker = KbrokerProcess(tmp_path, {"authorizer.class.name": guarded.STANDARD})
    broker.start()
    try:
        status, told = run("-D", str(broker.data_dir))
        assert (status, told["partitions"][0]) == (0, check.OK), told
        assert told["log directories"][0] == check.WARNING
        assert "this user may not see them" in told["log directories"][1]
        assert root.run(["cluster", "health", "-b", broker.bootstrap]) == 0
        said = capsys.readouterr().out
        assert said.startswith("healthy: ") and "may not see them" in said
    finally:
        broker.kill()


def test_who_may_come_in_where_a_broker_runs(run: Run, tmp_path: Path) -> None:
    for name, settings, told in (
        ("open", {}, "whoever can connect to INSIDE://0.0.0.0:"),
        ("meant", {"kbroker.insecure": "true"}, ""),
        ("guarded", {"authorizer.class.name": guarded.STANDARD}, ""),
        ("lax", {"authorizer.class.name": guarded.STANDARD,
                 "allow.everyone.if.no.acl.found": "true"},
         "whoever can connect to INSIDE://0.0.0.0:"),
    ):  # fmt: skip
        broker = KbrokerProcess(
            tmp_path, settings, data_dir=tmp_path / name, listeners=("INSIDE",)
        )
        broker.start()
        try:
            info = runfile.running(broker.data_dir)
            assert info is not None
            everywhere = info._replace(listeners=[f"INSIDE://0.0.0.0:{broker.ports['INSIDE']}"])
            runfile._put(broker.data_dir, everywhere)
            status, found = run("-D", str(broker.data_dir))
        finally:
            broker.kill()
        assert status == 0, found
        assert ("exposure" in found) == bool(told), found
        assert found.get("exposure", ("", ""))[1].startswith(told)


def test_an_open_listener_beside_logins_where_a_broker_runs(run: Run, tmp_path: Path) -> None:
    """On this machine too, whether the users are of PLAIN, in the settings, or of SCRAM."""
    plain = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.inside.plain.sasl.jaas.config":
            'a.PlainLoginModule required user_admin="secret";',
    }  # fmt: skip
    for name, settings in (("plain", plain), ("scram", {}), ("none", {})):
        protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT"}
        (tmp_path / name).mkdir()
        broker = KbrokerProcess(tmp_path / name, protocols | settings, listeners=("INSIDE",))
        broker.start()
        try:
            if name == "scram":
                with Admin(bootstrap_servers=broker.bootstrap) as admin:
                    change = ScramUpsertion("alice", "SCRAM-SHA-256", "secret")
                    admin.alter_scram_users([change]).checked()
            found = run("-D", str(broker.data_dir))[1]
        finally:
            broker.kill()
        warned = "there are users, but it asks nobody"
        assert (warned in found.get("exposure", ("", ""))[1]) == (name != "none"), found
        assert (warned in broker.log_text()) == (name == "plain")


def test_what_a_data_directory_holds(run: Run, tmp_path: Path) -> None:
    broker = KbrokerProcess(tmp_path)
    broker.start()
    wire.create_topic(broker.port, "t", 3)
    broker.kill()
    place = ("-D", str(broker.data_dir))
    status, told = run(*place)
    assert (status, told["last stop"][0]) == (0, check.WARNING), told
    assert told["contents"][1].endswith("node 1, 3 partitions")
    assert run(*place, "--set", "node.id=7")[0] == 1
    broker.start()
    assert broker.stop() == 0
    status, told = run(*place)
    assert (status, "last stop" in told) == (0, False)
    meta = broker.data_dir / "meta.properties"
    meta.write_text("version=1\n")
    status, told = run(*place)
    assert (status, told["contents"][0]) == (1, check.FAILED)
    assert "cluster.id is missing" in told["contents"][1]


@pytest.mark.skipif(os.geteuid() != 0, reason="the service is root's: run as root")
def test_root_is_told_of_the_settings_of_the_service(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    monkeypatch.delenv("KBROKER_DATA_DIR", raising=False)
    monkeypatch.setattr("kbroker.cli.places.SERVICE_FILE", file)
    file.write_text(f"log.dirs={tmp_path}/d\n")
    status, told = run()
    assert (status, told["settings"][1]) == (0, f"{file}, all valid")
    assert told["data directory"][1].startswith(f"{tmp_path}/d ")
    file.write_text(f"log.dirs={tmp_path}/d\nnum.partition=3\n")
    status, told = run()
    assert (status, told["settings"][0]) == (1, check.FAILED)
    assert "num.partition" in told["settings"][1]
    assert told["data directory"][1].startswith(f"{tmp_path}/d ")
    assert str(file) not in run("-D", str(tmp_path / "d"))[1]["settings"][1]


def test_settings_that_no_broker_takes(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=many\n")
    status, told = run("--config", str(file))
    assert status == 1
    assert told["settings"][0] == check.FAILED
    assert "num.partitions" in told["settings"][1]
    file.write_text(f"log.dirs={tmp_path}/d\n")
    assert run("--config", str(file))[1]["data directory"][1].startswith(f"{tmp_path}/d ")


def test_an_address_that_is_taken(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wish = ("-D", str(tmp_path), "--set", f"listeners=PLAINTEXT://127.0.0.1:{port}")
        status, told = run(*wish)
    assert (status, told["listener"][0]) == (1, check.FAILED)
    status, told = run(*wish)
    assert (status, told["listener"][0]) == (0, check.OK)


def test_who_may_come_in(run: Run, tmp_path: Path) -> None:
    def told(listener: str, *settings: str) -> tuple[int, dict[str, tuple[str, str]]]:
        words = [f"listeners={listener}://:0", f"advertised.listeners={listener}://h:1", *settings]
        return run("-D", str(tmp_path), *(word for one in words for word in ("--set", one)))

    status, found = told("PLAINTEXT")
    assert (status, found["exposure"][0]) == (0, check.WARNING)
    assert told("PLAINTEXT", "kbroker.insecure=true")[1]["exposure"][0] == check.OK
    assert told("SASL_PLAINTEXT")[1]["exposure"][0] == check.OK
    status, found = told("SASL_PLAINTEXT", "sasl.enabled.mechanisms=PLAIN")
    assert (status, found["logins"][0]) == (1, check.FAILED)


@pytest.mark.parametrize(
    ("protocol", "wrong", "about", "told"),
    [
        ("SSL", {}, "TLS", "listener SSL: TLS needs a key and its certificate"),
        ("SSL", {"ssl.keystore.location": "{}", "ssl.principal.mapping.rules": "RULE:bad"}, "TLS",
         "listener SSL: ssl.principal.mapping.rules: no rule: RULE:bad"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN,FOO"}, "logins",
         "sasl.enabled.mechanisms: FOO for listener SASL_PLAINTEXT; there are PLAIN"),
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_plaintext."
         "sasl.jaas.config": "x"}, "logins",
         "listener.name.sasl_plaintext.sasl.jaas.config: required, or another"),
    ],
)  # fmt: skip
def test_what_check_and_validate_say_is_what_the_start_says(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, authority: Authority, *,
    protocol: str, wrong: dict[str, str], about: str, told: str,
) -> None:  # fmt: skip
    """And it says so before it has formatted the data directory."""
    store = str(authority.issue("server").pem)
    lines = [f"listeners={protocol}://127.0.0.1:0", f"log.dirs={tmp_path}/data",
             *(f"{name}={value.format(store)}" for name, value in wrong.items())]  # fmt: skip
    file = tmp_path / "server.properties"
    file.write_text("\n".join(lines))
    status, found = run("--config", str(file))
    assert (status, found[about][0]) == (1, check.FAILED) and found[about][1].startswith(told)
    assert root.run(["config", "validate", str(file)]) == 1
    assert told in capsys.readouterr().err
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", "start", "--config", str(file)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == os.EX_CONFIG and f"kbroker: {told}" in done.stderr
    assert not list((tmp_path / "data").iterdir())


def test_settings_with_tls_and_logins_that_are_valid(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, authority: Authority
) -> None:
    file = tmp_path / "server.properties"
    store = authority.issue("server").pem
    file.write_text(f"listeners=SASL_SSL://127.0.0.1:0\nssl.keystore.location={store}\n")
    assert root.run(["config", "validate", str(file)]) == 0
    assert "2 settings, all valid" in capsys.readouterr().out
    status, found = run("--config", str(file), "-D", str(tmp_path))
    assert status == 0 and not {"TLS", "logins"} & found.keys()


def test_a_clock_that_is_wrong(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "t-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.touch()
    now = time.time()
    for ahead_s, verdict in ((0, check.OK), (30, check.OK), (200, check.WARNING)):
        os.utime(log, (now + ahead_s, now + ahead_s))
        status, told = run("-D", str(tmp_path))
        assert (status, told["clock"][0]) == (0, verdict), told["clock"]
    assert f"before {log} was written" in told["clock"][1]
    newest = (ROOT / "packaging" / "debian" / "changelog").read_text().partition("\n -- ")[2]
    dated = newest.partition(">")[2].partition("\n")[0]
    assert email.utils.parsedate_to_datetime(dated).date() == check_clock.RELEASED
    monkeypatch.setattr(check_clock, "RELEASED", datetime.date(9999, 1, 1))
    status, told = run("-D", str(tmp_path))
    assert status == 0 and "is before this version was made" in told["clock"][1]


@pytest.fixture
def seen() -> Iterator[Path]:
    """A folder that every user of the machine gets to, as those of pytest are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_what_other_users_read(run: Run, seen: Path, tmp_path: Path) -> None:
    def told(*words: str) -> tuple[str, str]:
        status, found = run(*words)
        assert status == 0, found
        return found["permissions"]

    place, file = seen / "d", seen / "server.properties"
    place.mkdir(0o700)
    file.write_text(f"log.dirs={place}\n")
    file.chmod(0o644)
    assert told("--config", str(file))[0] == check.OK
    assert told("-D", str(seen / "new"))[0] == check.OK
    file.write_text(f"log.dirs={place}\nssl.keystore.password=x\n")
    verdict, text = told("--config", str(file))
    assert verdict == check.WARNING
    assert "ssl.keystore.password in" in text and f"`chmod o-rwx {file}`" in text
    file.chmod(0o640)
    place.chmod(0o755)
    verdict, text = told("--config", str(file))
    assert verdict == check.WARNING and f"`chmod o-rwx {place}`" in text
    seen.chmod(0o700)  # nobody gets there
    assert told("-D", str(place))[0] == check.OK


def test_a_new_data_directory_is_its_users_alone(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    old.chmod(0o755)
    here = KbrokerProcess(tmp_path, data_dir=tmp_path / "far" / "new", more_dirs=(tmp_path / "2",))
    there = KbrokerProcess(tmp_path, data_dir=old)
    bare = KbrokerProcess(tmp_path, data_dir=tmp_path / "bare")
    bare.command = lambda: [  # type: ignore[method-assign]  # who starts it without `start`
        sys.executable, "-m", "kbroker.server", "--set", f"log.dirs={bare.data_dir}",
        "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "kbroker.http.listeners=",
    ]  # fmt: skip
    for broker in (here, there, bare):
        broker.start()
        broker.stop()
    made = (here.data_dir, *here.more_dirs, bare.data_dir)
    assert [one.stat().st_mode & 0o777 for one in made] == [0o700] * 3
    assert old.stat().st_mode & 0o777 == 0o755


def test_a_data_directory_that_is_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "below", tmp_path / "file" / "far" / "below"):
        status, told = run("-D", str(place))
        assert (status, told["data directory"][0]) == (1, check.FAILED)
        assert f"{tmp_path}/file is no directory" in told["data directory"][1]


def test_a_disk_that_does_not_write(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(check_disk, "try_disk", fails)
    status, told = run("-D", str(tmp_path))
    assert (status, told["write"][0]) == (1, check.FAILED)
    monkeypatch.setattr(check_disk, "try_disk", lambda _: check_disk.Tried(False, False, 50.0, 1))
    _, told = run("-D", str(tmp_path))
    assert [told[name][0] for name in ("fallocate", "O_DIRECT", "sync")] == [
        check.WARNING, check.WARNING, check.WARNING,
    ]  # fmt: skip


def test_limits(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_NOFILE: (1024, 4096), resource.RLIMIT_FSIZE: (1 << 20, 1 << 20)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    status, told = run("-D", str(tmp_path))
    assert status == 1
    assert told["open files"][0] == check.WARNING
    assert told["open files"][1].startswith("4096 open files: 2048 for segments, 2048 for")
    assert told["file size"][0] == check.FAILED


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("1 0 8:1 / / rw - ext4 /dev/sda rw", check.OK),
        ("1 0 0:1 / / rw - tmpfs tmpfs rw", check.WARNING),
        ("1 0 0:1 / / rw - fuse.sshfs x rw", check.WARNING),
        ("1 0 8:1 / / ro,relatime - ext4 /dev/sda ro", check.FAILED),
    ],
)
def test_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, verdict: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _self: line + "\n")
    assert check._file_system(tmp_path).verdict == verdict
