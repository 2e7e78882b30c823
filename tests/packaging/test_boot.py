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
    """At boot; told ready; fed; reloaded; killed and back; socket and instance; stopped cleanly."""
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

    the_socket_waits_for_the_broker(system)
    an_instance_beside_it(system)


def journal(system: Booted) -> str:
    return system.run("journalctl -u kbroker --no-pager -o cat")


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


def the_socket_waits_for_the_broker(system: Booted) -> None:
    """systemd holds the port; the first client has the broker started."""
    system.run("systemctl start kbroker.socket")
    assert shown(system, "ActiveState")["ActiveState"] == "inactive"
    assert "events" in system.run("kbroker topic list -b 127.0.0.1:9092")
    assert shown(system, "ActiveState")["ActiveState"] == "active"
    system.run("systemctl stop kbroker.socket kbroker.service")


def an_instance_beside_it(system: Booted) -> None:
    system.run(
        "systemctl start kbroker; "
        "echo 'listeners=PLAINTEXT://127.0.0.1:9192' > /etc/kbroker/shop.properties; "
        "systemctl start kbroker@shop && kbroker topic create other -b 127.0.0.1:9192"
    )
    assert "other" not in system.run("kbroker topic list -b 127.0.0.1:9092")
    assert "other-0" in system.run("ls /var/lib/kbroker-shop")
    system.run("systemctl stop kbroker@shop kbroker")
