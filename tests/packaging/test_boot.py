"""The package under a real systemd as process 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.debs import built
from tests.support.roots import RELEASES, Booted, make_root
from tests.support.waits import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

DEADLINE_S = 300.0
RECORDS = "kbroker consume events -o beginning -e | sort -n | md5sum"


def shown(system: Booted, *names: str, unit: str = "kbroker") -> dict[str, str]:
    told = system.run(f"systemctl show {unit} --property={','.join(names)}")
    return dict(line.split("=", 1) for line in told.splitlines())


@pytest.fixture(params=RELEASES)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Booted]:
    deb = built(request.param).path
    root = make_root(tmp_path / "root", request.param)
    (root.path / deb.name).write_bytes(deb.read_bytes())
    root.install("systemd", "systemd-sysv", "dbus")
    root.install(f"./{deb.name}")
    with root.booted() as up:
        yield up


def test_it_is_a_service(system: Booted) -> None:
    """At boot; told ready; fed; reloaded; killed and back; stopped cleanly; socket and instance."""
    state = shown(system, "ActiveState", "Type", "StatusText", "MainPID", "WatchdogUSec", "User")
    assert state["ActiveState"] == "active", system.run("journalctl -u kbroker --no-pager")
    assert state["StatusText"].startswith("serving PLAINTEXT://127.0.0.1:9092")
    assert (state["Type"], state["User"], state["WatchdogUSec"]) == ("notify", "kbroker", "1min")
    first = state["MainPID"]
    told = system.run(f"cat /proc/{first}/status")
    assert re.search(r"NoNewPrivs:\s+1", told) and re.search(r"CapEff:\s+0+\n", told)
    assert shown(system, "LimitNOFILE")["LimitNOFILE"] == "131072"  # where the kernel lets it
    assert system.run("stat -c '%U %a' /var/lib/kbroker").split() == ["kbroker", "700"]

    system.run("kbroker topic create events -p 3 && seq 2000 | kbroker produce events")
    told = metrics(system)  # the unit hides /proc but for processes
    for name in ("start_time_seconds", "cpu_seconds_total", "resident_memory_bytes", "open_fds"):
        assert f"\nprocess_{name} " in told, told
    records = system.run(RECORDS)
    system.run("sed -i 's/^#log.retention.hours=.*/log.retention.hours=5/' "
               "/etc/kbroker/server.properties && systemctl reload kbroker")  # fmt: skip
    wait_for("the reload", lambda: "reload: log.retention.hours" in journal(system), DEADLINE_S)
    fields = system.run("journalctl -u kbroker -o verbose --no-pager LOGGER=kbroker.server")
    assert "SYSLOG_IDENTIFIER=kbroker" in fields and "THREAD_NAME=MainThread" in fields

    system.run(f"kill -9 {first}")
    wait_for("it is back", lambda: came_back(system, first), DEADLINE_S)
    assert system.run(RECORDS) == records

    watchdog_kills_what_hangs(system)
    assert system.run(RECORDS) == records

    system.run("systemctl stop kbroker")
    state = shown(system, "Result", "ActiveState")
    assert state == {"Result": "success", "ActiveState": "inactive"}
    assert "stopped" in journal(system).splitlines()
    assert system.run("ls -A /var/lib/kbroker").split().count(".kafka_cleanshutdown") == 1

    wrong_settings_are_not_tried_again(system)
    the_socket_waits_for_the_broker(system)
    an_instance_beside_it(system)
    root_by_hand(system)


def journal(system: Booted, unit: str = "kbroker") -> str:
    return system.run(f"journalctl -u {unit} --no-pager -o cat")


def metrics(system: Booted, port: int = 9308) -> str:
    url = f"http://127.0.0.1:{port}/metrics"
    read = f"from urllib.request import urlopen; print(urlopen('{url}').read().decode())"
    return system.run(f'/opt/kbroker/bin/python -I -c "{read}"')


def is_active(system: Booted, unit: str) -> bool:
    return shown(system, "ActiveState", unit=unit)["ActiveState"] == "active"


def came_back(system: Booted, before: str) -> bool:
    state = shown(system, "ActiveState", "MainPID")
    return state["ActiveState"] == "active" and state["MainPID"] not in ("0", before)


def watchdog_kills_what_hangs(system: Booted) -> None:
    """A broker that is stopped as a debugger would does not answer, and is started again."""
    system.run(
        "mkdir -p /etc/systemd/system/kbroker.service.d && "
        "printf '[Service]\\nWatchdogSec=6\\n' > /etc/systemd/system/kbroker.service.d/quick.conf "
        "&& systemctl daemon-reload && systemctl restart kbroker"
    )
    hung = shown(system, "MainPID")["MainPID"]
    system.run(f"kill -STOP {hung}")
    wait_for("it is back", lambda: came_back(system, hung), DEADLINE_S)
    assert "watchdog" in system.run("journalctl --no-pager -o cat UNIT=kbroker.service").lower()


def wrong_settings_are_not_tried_again(system: Booted) -> None:
    settings = "/etc/kbroker/server.properties"
    system.run(f"echo num.partition=3 >> {settings}; ! systemctl start kbroker")
    state = shown(system, "ActiveState", "NRestarts", "ExecMainStatus", "StatusText")
    assert (state["ActiveState"], state["NRestarts"], state["ExecMainStatus"]) == (
        "failed", "0", "78")  # fmt: skip
    assert "num.partition" in system.run("kbroker check", check=False)
    system.run(f"sed -i /^num.partition=/d {settings}; systemctl reset-failed kbroker")


def root_by_hand(system: Booted) -> None:
    """Root's commands mean the service's directory, wherever it is, and start nothing on it."""
    system.run(
        "install -d -o kbroker -g kbroker -m 0700 /srv/data && "
        "sed -i 's,^log.dirs=.*,log.dirs=/srv/data,' /etc/kbroker/server.properties && "
        "printf '[Service]\\nReadWritePaths=/srv/data\\n' "
        "> /etc/systemd/system/kbroker.service.d/place.conf && systemctl daemon-reload"
    )
    for command in ("kbroker start", "kbroker start --detach"):
        told = system.run(command, check=False)
        assert "/srv/data belongs to kbroker" in told and "`systemctl start kbroker`" in told
    assert not system.run("ls -A /srv/data")
    system.run("systemctl start kbroker && kbroker topic create there")
    assert "/srv/data" in system.run("kbroker status")
    assert "there" in system.run("kbroker log sizes")
    assert "/etc/kbroker/server.properties, all valid" in system.run("kbroker check")
    assert "there" in system.run("kbroker backup create /backup && ls /backup/data")
    assert "of /srv/data" in system.run("kbroker stop")


def the_socket_waits_for_the_broker(system: Booted) -> None:
    """systemd holds the port; the first client has the broker started."""
    system.run("systemctl start kbroker.socket")
    assert shown(system, "ActiveState")["ActiveState"] == "inactive"
    assert "events" in system.run("kbroker topic list -b 127.0.0.1:9092")
    assert shown(system, "ActiveState")["ActiveState"] == "active"
    system.run("systemctl stop kbroker.socket kbroker.service")


def an_instance_beside_it(system: Booted) -> None:
    """Each with its own topics and metrics; at boot the first is started before others."""
    system.run(
        "cd /etc/kbroker; echo listeners=PLAINTEXT://127.0.0.1:9292 > plain.properties; "
        "echo listeners=PLAINTEXT://127.0.0.1:9192 > shop.properties; "
        "echo kbroker.http.listeners=HTTP://127.0.0.1:9309 >> shop.properties; "
        "systemctl enable kbroker@plain kbroker@shop && systemctl start multi-user.target"
    )
    for unit in ("kbroker", "kbroker@plain", "kbroker@shop"):
        wait_for(unit, lambda unit=unit: is_active(system, unit), DEADLINE_S)
    system.run("kbroker topic create other -b 127.0.0.1:9192")
    assert "other" not in system.run("kbroker topic list -b 127.0.0.1:9092")
    assert "other-0" in system.run("ls /var/lib/kbroker-shop")
    assert 'topic="other"' in metrics(system, 9309) and 'topic="events"' in metrics(system, 9308)
    assert "choose another with kbroker.http.listeners" in journal(system, "kbroker@plain")
    system.run("systemctl disable --now kbroker@plain kbroker@shop; systemctl stop kbroker")
