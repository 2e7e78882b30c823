"""README's operations part, word by word, on a fresh system under systemd with the package.

Each command of `say` stands in README as it is here; what is between is what README says in prose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packaging.test_boot import DEADLINE_S, shown
from tests.support.debs import built, variant
from tests.support.roots import RELEASES, Booted, make_root
from tests.support.tree import text_of
from tests.support.waits import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

CONFIG = "/etc/kbroker/server.properties"
LOG = "/var/lib/kbroker/t-0/00000000000000000000.log"
Say = Callable[..., str]


@pytest.fixture(params=RELEASES)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Booted]:
    deb = built(request.param).path
    root = make_root(tmp_path / "root", request.param)
    root.install("systemd", "systemd-sysv", "dbus", "curl")
    (root.path / "dist").mkdir()
    for package in (deb, variant(deb, tmp_path, "99.0")):
        (root.path / "dist" / package.name).write_bytes(package.read_bytes())
    root.run(f"cd / && apt-get -q -y install ./dist/{deb.name}")
    with root.booted() as up:
        yield up


@pytest.fixture
def say(system: Booted) -> Say:
    """Runs a command that README has; `instead` replaces a word that stands for another."""
    readme = re.sub(r"\s+", " ", text_of(Path("README.md")).replace(" \\\n", " "))

    def say(command: str, *instead: tuple[str, str], status: int = 0) -> str:
        assert command in readme, command
        for word, other in instead:
            assert word in command
            command = command.replace(word, other)
        told = system.run(f"cd /root; {command}; echo exit $?")
        assert told.splitlines()[-1] == f"exit {status}", told
        return told

    return say


def test_word_by_word(system: Booted, say: Say) -> None:
    assert "active (running)" in say("systemctl status kbroker")
    say("kbroker topic create events -p 4")
    system.run("seq 1000 | kbroker produce events")
    watch(system, say)
    settings(system, say)
    look(say)
    more_of_them(system, say)
    back_it_up(system, say)
    repair(system, say)
    upgrade(system, say)
    system.run("apt-get remove -y kbroker")
    assert "events-0" in system.run("ls /var/lib/kbroker")
    assert "num.partitions=3" in system.run(f"cat {CONFIG}")
    system.run("apt-get purge -y kbroker")
    assert "meta.properties" in system.run("ls /var/lib/kbroker-shop")
    system.run(f"test ! -e /var/lib/kbroker && test ! -e {CONFIG}")


def watch(system: Booted, say: Say) -> None:
    assert "events" in say("kbroker top", ("kbroker top", "kbroker top -n 1"))
    told = say("curl http://127.0.0.1:9308/metrics")
    assert 'kafka_topic_partitions{topic="events"} 4' in told
    assert "ok" in system.run("curl -s http://127.0.0.1:9308/readyz")
    assert "kbroker-broker.json" in say("kbroker dashboard export --directory grafana")
    say("kbroker dashboard alerts --file kbroker-rules.yml")
    say("kafka-configs --bootstrap-server 127.0.0.1:9092 --alter --entity-type broker-loggers"
        " --entity-name 1 --add-config kbroker.group=DEBUG")  # fmt: skip


def settings(system: Booted, say: Say) -> None:
    system.run(f"sed -i 's/^#log.retention.hours=.*/log.retention.hours=5/; "
               f"s/^#num.partitions=.*/num.partitions=3/' {CONFIG}")  # fmt: skip
    say("kbroker config validate /etc/kbroker/server.properties")
    say("systemctl reload kbroker")

    def told() -> bool:
        journal = system.run("journalctl -u kbroker --no-pager -o cat")
        return ("reload: log.retention.hours" in journal
                and "with the next start: num.partitions" in journal)  # fmt: skip

    wait_for("the reload", told, DEADLINE_S)
    say("systemctl restart kbroker")
    assert system.run("kbroker config get num.partitions").split()[-1] != "1"


def look(say: Say) -> None:
    assert "serving PLAINTEXT://127.0.0.1:9092" in say("systemctl status kbroker")
    assert "next start" in say("journalctl -u kbroker -p warning")
    say("journalctl -u kbroker LOGGER=kbroker.storage")
    say("kbroker status")
    say("kbroker check")


def more_of_them(system: Booted, say: Say) -> None:
    lines = ("listeners=PLAINTEXT://127.0.0.1:9192",
             "kbroker.http.listeners=HTTP://127.0.0.1:9309")  # fmt: skip
    for line in lines:
        assert f"\n    {line}\n" in text_of(Path("README.md"))
        system.run(f"echo {line} >> /etc/kbroker/shop.properties")
    say("systemctl enable --now kbroker@shop")
    system.run("kbroker topic create other -b 127.0.0.1:9192")
    assert 'topic="other"' in system.run("curl -s http://127.0.0.1:9309/metrics")
    assert 'topic="other"' not in system.run("curl -s http://127.0.0.1:9308/metrics")
    system.run("test -d /var/lib/kbroker-shop/other-0 && systemctl stop kbroker@shop kbroker")
    say("systemctl enable --now kbroker.socket")
    assert "events" in system.run("kbroker topic list -b 127.0.0.1:9092")
    assert shown(system, "ActiveState")["ActiveState"] == "active"


def back_it_up(system: Booted, say: Say) -> None:
    before = system.run("kbroker consume events -o beginning -e | sort -n | md5sum")
    say("kbroker backup create /backup/monday")
    say("kbroker backup create /backup/tuesday --since /backup/monday")
    assert "all good" in say("kbroker backup verify /backup/tuesday")
    system.run("kbroker topic delete events")
    say("systemctl stop kbroker && mv /var/lib/kbroker /var/lib/kbroker.old",
        ("systemctl stop kbroker", "systemctl stop kbroker.socket kbroker"))  # fmt: skip
    say("kbroker backup restore /backup/tuesday /var/lib/kbroker")
    say("systemctl start kbroker")
    assert system.run("kbroker consume events -o beginning -e | sort -n | md5sum") == before


def repair(system: Booted, say: Say) -> None:
    """A batch in the middle is damaged; what is around it stays."""
    system.run("kbroker topic create t -p 1")
    system.run("for n in 1 2 3; do echo $n | kbroker produce t; done")
    system.run("systemctl stop kbroker")
    assert "all good" in say("kbroker log verify")
    system.run(f"printf x | dd of={LOG} bs=1 seek=134 conv=notrunc")
    assert "t-0" in say("kbroker log verify", status=1)
    say("kbroker log repair", status=1)
    assert "left out" in say("kbroker log repair t-0 --drop --dry-run")
    say("kbroker log verify", status=1)
    say("kbroker log repair t-0 --drop --dry-run", (" --dry-run", ""))
    say("systemctl start kbroker")
    assert system.run("kbroker consume t -o beginning -e").split() == ["1", "3"]
    say("systemctl stop kbroker")
    system.run(f"printf x | dd of={LOG} bs=1 seek=10 conv=notrunc")
    say("kbroker log repair t-0 --truncate")
    system.run("printf xxxxxxxx | dd of=/var/lib/kbroker/events-0/00000000000000000000.index"
               " bs=1 conv=notrunc")  # fmt: skip
    say("kbroker log repair t-0 --rebuild", ("t-0", "events-0"))
    say("kbroker log verify")
    say("systemctl start kbroker")
    assert system.run("kbroker consume t -o beginning -e").split() == []


def upgrade(system: Booted, say: Say) -> None:
    assert "metadata.version" in say("kbroker cluster features")
    say("apt-get install ./kbroker_NEW.deb", ("./kbroker_NEW.deb", "-y /dist/kbroker_99.0.deb"))
    assert shown(system, "ActiveState")["ActiveState"] == "active"
    assert system.run("kbroker consume events -o beginning -e | wc -l").strip() == "1000"
    assert "num.partitions=3" in system.run(f"cat {CONFIG}")
    older = system.run("ls /dist | grep -v 99.0").strip()
    system.run(f"apt-get install -y --allow-downgrades /dist/{older}")
    assert system.run("kbroker consume events -o beginning -e | wc -l").strip() == "1000"
