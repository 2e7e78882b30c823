"""What the broker tells a service manager, in which order, and what it takes from one."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from kbroker.client import Admin, Producer
from kbroker.server import journald
from kbroker.server.service import Notifier
from tests.support.kbroker import KbrokerProcess

DEADLINE_S = 120.0
WATCHDOG_S = 2
_number = count(1)


class Manager:
    """The end of a service manager: messages as they come, each a dict of its lines."""

    def __init__(self) -> None:
        self.address = f"@kbroker-test-{os.getpid()}-{next(_number)}"
        self._way = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._way.bind("\0" + self.address[1:])
        self.seen: list[dict[str, str]] = []

    def close(self) -> None:
        self._way.close()

    def until(self, name: str) -> list[dict[str, str]]:
        """The messages up to the next that has `name`, that one too."""
        self._way.settimeout(DEADLINE_S)
        came = []
        while True:
            lines = self._way.recv(65536).decode().split("\n")
            came.append(dict(line.split("=", 1) for line in lines))
            if name in came[-1]:
                return came

    def rest(self) -> list[dict[str, str]]:
        """What has come and was not asked for."""
        self._way.setblocking(False)
        came = []
        while True:
            try:
                lines = self._way.recv(65536).decode().split("\n")
            except BlockingIOError:
                return came
            came.append(dict(line.split("=", 1) for line in lines))


class Service(KbrokerProcess):
    """kbroker as a service manager starts it, with a file of settings."""

    def __init__(self, home: Path, manager: Manager) -> None:
        super().__init__(home)
        self.manager = manager
        self.config = home / "server.properties"
        self.config.write_text("num.partitions=2\n")

    def command(self) -> list[str]:
        return [*super().command(), "--config", str(self.config)]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "NOTIFY_SOCKET": self.manager.address,
            "WATCHDOG_USEC": str(WATCHDOG_S * 1_000_000),
        }


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    manager = Manager()
    broker = Service(tmp_path, manager)
    yield broker
    broker.kill()
    manager.close()


def names(messages: list[dict[str, str]]) -> list[str]:
    return [name for message in messages for name in message if name != "STATUS"]


def test_each_message_in_its_turn(service: Service) -> None:
    told = service.manager
    service.launch()
    came = told.until("READY")
    assert all(one["STATUS"] != "recovering" for one in came), "there is nothing to recover"
    assert came[-1]["READY"] == "1"
    port = re.search(r"^serving PLAINTEXT://127\.0\.0\.1:(\d+)", came[-1]["STATUS"])
    assert port is not None
    socket.create_connection(("127.0.0.1", int(port[1])), timeout=DEADLINE_S).close()

    assert set(names(told.until("WATCHDOG"))) == {"WATCHDOG"}

    service.config.write_text("num.partitions=3\nlog.retention.hours=5\nkbroker.log.level=DEBUG\n")
    before_us = time.monotonic_ns() // 1000
    service.process.send_signal(signal.SIGHUP)
    reloading = told.until("RELOADING")[-1]
    assert before_us <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert told.until("READY")[-1]["STATUS"].startswith("serving ")
    log = service.log_text()
    assert '"reload: kbroker.log.level, log.retention.hours"' in log
    assert '"reload: with the next start: num.partitions"' in log

    service.config.write_text("log.retention.hours=never\n")
    service.process.send_signal(signal.SIGHUP)
    told.until("RELOADING")
    told.until("READY")
    assert '"level": "error", "logger": "kbroker.server", "msg": "reload: ' in service.log_text()

    service.wait_until_ready()
    with Admin(bootstrap_servers=service.bootstrap) as admin:
        admin.create_topic("t", partitions=3)
    with Producer(bootstrap_servers=service.bootstrap) as producer:
        producer.send("t", b"one").result()
    told.rest()
    service.kill()

    service.config.write_text("")
    service.launch()
    came = told.until("READY")
    assert names(came)[0] == "EXTEND_TIMEOUT_USEC", "recovery asks for time before it begins"
    assert came[0]["STATUS"] == "recovering"
    assert names(came)[-1] == "READY" and set(names(came)) == {"EXTEND_TIMEOUT_USEC", "READY"}
    assert "3 partitions" in came[-1]["STATUS"]

    assert service.stop() == 0
    came = [message for message in told.rest() if "WATCHDOG" not in message]
    assert came[0]["STOPPING"] == "1"
    assert set(names(came[1:])) <= {"EXTEND_TIMEOUT_USEC"}


def test_a_start_that_fails_says_why() -> None:
    manager = Manager()
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.server", "--set", "log.retention.hours=never"],
        env={**os.environ, "NOTIFY_SOCKET": manager.address}, capture_output=True, check=False,
        timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == os.EX_CONFIG, "it is not to be tried again"
    (told,) = manager.rest()
    assert told["STATUS"].startswith("not started: ") and "log.retention.hours" in told["STATUS"]
    manager.close()


def test_sockets_are_taken_over(tmp_path: Path) -> None:
    """A client that came before the broker is served; LISTEN_PID is the broker's."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    early = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    early.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))  # ApiVersions 0, correlation id 7
    command = [sys.executable, "-m", "kbroker.cli", "start", "--data-dir", str(tmp_path / "data"),
               "--listen", f"127.0.0.1:{port}"]  # fmt: skip
    shim = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3); "
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", shim, str(listening.fileno()), *command],
            pass_fds=[listening.fileno()], stdout=log, stderr=log,
        )  # fmt: skip
    try:
        assert early.recv(8)[4:] == struct.pack(">i", 7), (tmp_path / "log").read_text()
        early.close()
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
    # It was the broker's to use, not to end: who comes now waits for the next start.
    socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S).close()
    listening.close()


def test_a_socket_that_is_no_listeners_is_told(tmp_path: Path) -> None:
    code = (
        "import os, sys; from kbroker.server.__main__ import main; "
        "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1', LISTEN_FDNAMES='web'); "
        "os.dup2(int(sys.argv[1]), 3); sys.exit(main(sys.argv[2:]))"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = subprocess.run(
            [sys.executable, "-c", code, str(other.fileno()), "--set", f"log.dirs={tmp_path}/data",
             "--set", "listeners=PLAINTEXT://127.0.0.1:1"],
            pass_fds=[other.fileno()], capture_output=True, text=True, timeout=DEADLINE_S,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "belongs to no listener; there are PLAINTEXT" in done.stderr


def test_without_a_manager_nothing_is_sent() -> None:
    Notifier("").tell("READY=1")
    Notifier("/nowhere/at/all").tell("READY=1")


# ---- the journal's own protocol -----------------------------------------------------------------


def fields_of(entry: bytes) -> dict[str, str]:
    found = {}
    while entry:
        name = re.split(rb"[=\n]", entry, maxsplit=1)[0]
        if entry[len(name) : len(name) + 1] == b"=":
            value, _, entry = entry[len(name) + 1 :].partition(b"\n")
        else:
            at = len(name) + 1
            size = int.from_bytes(entry[at : at + 8], "little")
            value = entry[at + 8 : at + 8 + size]
            assert entry[at + 8 + size : at + 9 + size] == b"\n"
            entry = entry[at + 9 + size :]
        found[name.decode()] = value.decode()
    return found


def test_journal_entries_have_fields(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        address = f"\0kbroker-test-journal-{os.getpid()}"
        journal.bind(address)
        journal.settimeout(DEADLINE_S)
        handler = journald.JournalHandler(address)
        logger = logging.Logger("kbroker.storage")
        logger.addHandler(handler)
        logger.warning("a line\nand %s", "no other", extra={"fields": {"topic": "t"}})
        found = fields_of(journal.recv(65536))
        assert found["MESSAGE"] == "a line\\nand no other"
        assert (found["PRIORITY"], found["LOGGER"], found["TOPIC"]) == ("4", "kbroker.storage", "t")
        assert (found["SYSLOG_IDENTIFIER"], found["THREAD_NAME"]) == ("kbroker", "MainThread")
        try:
            raise ValueError("why")
        except ValueError:
            logger.exception("it failed")
        lines = fields_of(journal.recv(65536))["MESSAGE"].split("\n")
        assert lines[0] == "it failed" and lines[1].startswith("Traceback")
        assert lines[-1] == "ValueError: why"
        handler.close()


def test_the_journal_is_known_by_its_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "stream").open("wb") as stream:
        at = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{at.st_dev}:{at.st_ino}")
        assert journald.is_there(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{at.st_dev}:{at.st_ino + 1}")
        assert not journald.is_there(stream.fileno())
    monkeypatch.delenv("JOURNAL_STREAM")
    assert not journald.is_there()
