"""Upgrades and removal of the package under a real systemd: which units run, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.test_boot import DEADLINE_S, is_active, shown
from tests.support.debs import built, variant
from tests.support.roots import RELEASES, Booted, make_root
from tests.support.waits import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

OLDER, NEWER = "98.0", "99.0"


@pytest.fixture(params=RELEASES)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Booted]:
    """With the older of two packages in /dist."""
    root = make_root(tmp_path / "root", request.param)
    root.install("systemd", "systemd-sysv", "dbus")
    (root.path / "dist").mkdir()
    for version in (OLDER, NEWER):
        deb = variant(built(request.param).path, tmp_path, version)
        (root.path / "dist" / deb.name).write_bytes(deb.read_bytes())
    root.run(f"apt-get -q -y install /dist/kbroker_{OLDER}.deb")
    with root.booted() as up:
        yield up


def install(system: Booted, version: str) -> str:
    return system.run(f"apt-get -q -y --allow-downgrades install /dist/kbroker_{version}.deb")


def process(system: Booted, unit: str) -> str:
    return shown(system, "MainPID", unit=unit)["MainPID"]


def test_what_ran_before_runs_after(system: Booted) -> None:
    only_what_ran(system)
    a_start_that_fails_is_told(system)
    no_old_broker_by_the_socket(system)


def only_what_ran(system: Booted) -> None:
    """Enabled or not; and what did not run stays as it was."""
    for name, port in ("shop", 9192), ("idle", 9292):
        system.run(f"echo listeners=PLAINTEXT://127.0.0.1:{port} > /etc/kbroker/{name}.properties")
    system.run("systemctl disable kbroker && systemctl enable kbroker@idle "
               "&& systemctl start kbroker kbroker@shop")  # fmt: skip
    before = [process(system, unit) for unit in ("kbroker", "kbroker@shop")]
    install(system, NEWER)
    assert is_active(system, "kbroker") and is_active(system, "kbroker@shop")
    assert not is_active(system, "kbroker@idle") and not is_active(system, "kbroker.socket")
    after = [process(system, unit) for unit in ("kbroker", "kbroker@shop")]
    assert not set(before) & set(after), "it was stopped for the files to be replaced"
    assert system.run("systemctl is-enabled kbroker", check=False).strip() == "disabled"

    system.run("systemctl enable kbroker && systemctl stop kbroker")
    install(system, OLDER)
    assert not is_active(system, "kbroker") and is_active(system, "kbroker@shop")
    system.run("systemctl stop kbroker@shop && systemctl disable kbroker@idle")
    system.run("test ! -e /run/kbroker.active")


def a_start_that_fails_is_told(system: Booted) -> None:
    system.run("systemctl start kbroker@shop && echo listeners=none > /etc/kbroker/shop.properties")
    assert "kbroker@shop.service ran before and does not start" in install(system, NEWER)
    system.run("systemctl reset-failed kbroker@shop; systemctl stop kbroker@shop")


def no_old_broker_by_the_socket(system: Booted) -> None:
    """Clients that come all the time have none started of files that are about to go."""
    system.run("systemctl start kbroker.socket")
    knock = "while test ! -e /tmp/enough; do : 3<>/dev/tcp/127.0.0.1/9092; sleep 0.05; done"
    system.run(f"(bash -c '{knock}' > /dev/null 2>&1 &)")
    system.run("kbroker topic list -b 127.0.0.1:9092")
    before = process(system, "kbroker")
    install(system, OLDER)
    system.run("kbroker topic list -b 127.0.0.1:9092; touch /tmp/enough")
    assert is_active(system, "kbroker.socket") and is_active(system, "kbroker")
    assert process(system, "kbroker") != before
    # dpkg writes down when it has unpacked; seconds, so the second of it is the broker's as well.
    unpacked = system.run("date +%s -d \"$(grep 'status unpacked kbroker' /var/log/dpkg.log | "
                          "tail -1 | cut -d ' ' -f 1,2)\"")  # fmt: skip
    started = system.run("stat -c %Y /proc/$(systemctl show kbroker --value -p MainPID)")
    assert int(started) >= int(unpacked)


def test_nothing_of_its_units_is_left(system: Booted) -> None:
    """After remove none runs or listens; after purge no link leads nowhere."""
    system.run("echo listeners=PLAINTEXT://127.0.0.1:9192 > /etc/kbroker/shop.properties")
    system.run("systemctl stop kbroker && systemctl enable --now kbroker.socket kbroker@shop")
    system.run("apt-get -q -y remove kbroker")
    told = system.run("systemctl list-units --plain --no-legend --state=active 'kbroker*'")
    assert ".socket" not in told and ".service" not in told
    system.run("! bash -c ': 3<>/dev/tcp/127.0.0.1/9092' 2> /dev/null")
    system.run("apt-get -q -y purge kbroker")
    assert not system.run("find /etc/systemd /run/systemd/units -name 'kbroker*'")
    assert system.run("test ! -e /var/lib/kbroker && ls /var/lib/kbroker-shop")
    a_mount_stays_and_is_empty(system)


def a_mount_stays_and_is_empty(system: Booted) -> None:
    """A disk of its own for the data is no reason for a purge to fail."""
    system.run("mkdir /var/lib/kbroker && mount -t tmpfs data /var/lib/kbroker")
    install(system, NEWER)
    wait_for("it serves", lambda: is_active(system, "kbroker"), DEADLINE_S)
    assert "meta.properties" in system.run("ls /var/lib/kbroker")
    system.run("apt-get -q -y purge kbroker")
    assert not system.run("mountpoint -q /var/lib/kbroker && ls -A /var/lib/kbroker")
    system.run("umount /var/lib/kbroker && rmdir /var/lib/kbroker")
