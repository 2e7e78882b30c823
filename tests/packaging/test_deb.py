"""The Debian package from its first installation to its purge, in fresh roots."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.debs import built, variant
from tests.support.roots import RELEASES, Root, make_root

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

START = "runuser -u kbroker -- kbroker start --detach --config /etc/kbroker/server.properties"
RECORDS = "kbroker consume events -o beginning -e | sort -n | md5sum"
LEVEL = "metadata.version 7 30"

Serving = Callable[[str], str]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(release: str, tmp_path: Path) -> Root:
    made = make_root(tmp_path / "root", release)
    made.run("apt-get -q update")
    return made


@pytest.fixture
def serving(root: Root) -> Serving:
    """Runs commands beside a broker that the package's user has started, and stops it."""

    def serve(commands: str) -> str:
        script = f"set -e; {START}; {commands}; kbroker stop"
        return root.run(script, alone=True).stdout

    return serve


def install(root: Root, deb: Path, *, check: bool = True) -> str:
    place = root.path / deb.name
    place.write_bytes(deb.read_bytes())
    done = root.run(f"apt-get -q -y --allow-downgrades install ./{deb.name}", check=check)
    assert check or done.returncode != 0, done.stdout
    return done.stdout


def version(root: Root) -> str:
    return root.run("dpkg-query -W -f '${Version} ${db:Status-Status}' kbroker").stdout


def mode(root: Root) -> str:
    return root.run("stat -c '%U %G %a' /etc/kbroker/server.properties").stdout.strip()


def test_lintian_finds_no_error(release: str) -> None:
    told = built(release).lintian
    assert not re.findall(r"^E: .*", told, re.MULTILINE), told


def test_from_installation_to_purge(root: Root, serving: Serving, tmp_path: Path) -> None:
    deb = built(root.release).path
    before = set(root.run("find / -xdev -iname '*kbroker*'").stdout.split())

    install(root, variant(deb, tmp_path, "0.0.9"))
    assert version(root) == "0.0.9 installed"
    told = serving(
        "kbroker topic create events -p 3; seq 5000 | kbroker produce events -z zstd; "
        f"kbroker consume -G readers -e events > /dev/null; {RECORDS}; kbroker group lag"
    )
    records = re.search(r"^[0-9a-f]{32} ", told, re.MULTILINE)
    lag = re.search(r"^readers +Empty .*events +0$", told, re.MULTILINE)
    assert records is not None and lag is not None, told
    root.run("sed -i 's/^#num.partitions=1/num.partitions=2/' /etc/kbroker/server.properties")
    assert mode(root) == "root kbroker 640"
    root.run("chmod 0644 /etc/kbroker/server.properties")

    install(root, deb)
    assert mode(root) == "root kbroker 644", "what the administrator has made of it stays"
    told = serving(f"{RECORDS}; kbroker group lag; kbroker config get num.partitions")
    assert records[0] in told and lag[0] in told
    assert "num.partitions=2" in (root.path / "etc/kbroker/server.properties").read_text()

    install(root, variant(deb, tmp_path, "99.0"))
    assert version(root) == "99.0 installed"
    level = (LEVEL, "metadata.version 7 29")
    told = install(root, variant(deb, tmp_path, "0.0.8", level), check=False)
    assert "metadata.version 30 (here 7 to 29)" in told
    assert "the downgrade is refused; nothing was changed" in told
    assert version(root) == "99.0 installed"
    assert records[0] in serving(RECORDS)
    install(root, deb)  # its levels are the same
    assert records[0] in serving(RECORDS)

    root.run("apt-get -q -y remove kbroker")
    assert not (root.path / "opt/kbroker").exists()
    assert (root.path / "var/lib/kbroker/meta.properties").exists()
    install(root, deb)
    assert records[0] in serving(RECORDS)

    root.run("apt-get -q -y purge kbroker && rm -f /*.deb")
    left = set(root.run("find / -xdev -iname '*kbroker*'").stdout.split()) - before
    assert not left, left

    settings = "/etc/kbroker/server.properties"
    root.run(f"dpkg-statoverride --add root root 0600 {settings}")
    install(root, deb)
    assert mode(root) == "root root 600", "an override of the administrator holds from the start"


def test_it_is_an_environment_of_its_own_wherever_it_lies(root: Root) -> None:
    """Moved to another place, and with modules of the same names in everybody's way."""
    install(root, built(root.release).path)
    told = root.run(
        "set -e; mv /opt/kbroker /srv/elsewhere; mkdir /tmp/way; cd /tmp/way; "
        "echo 'raise SystemExit(9)' | tee click.py kbroker.py > /dev/null; "
        "export PYTHONPATH=/tmp/way; /srv/elsewhere/bin/kbroker version; "
        "/srv/elsewhere/bin/kbroker start --detach --data-dir /tmp/data; "
        "/srv/elsewhere/bin/kafka-topics --bootstrap-server 127.0.0.1:9092 --create --topic t; "
        "/srv/elsewhere/bin/kbroker topic list; "
        "/srv/elsewhere/bin/kbroker stop --data-dir /tmp/data",
        alone=True,
    ).stdout
    assert "Created topic t." in told


def test_what_comes_with_it(root: Root) -> None:
    install(root, built(root.release).path)
    files = root.run("dpkg-query -L kbroker").stdout.split()
    for wanted in (
        "/usr/bin/kbroker", "/usr/bin/kafka-topics", "/usr/lib/sysctl.d/30-kbroker.conf",
        "/usr/share/bash-completion/completions/kbroker", "/usr/share/man/man1/kbroker.1.gz",
        "/usr/share/man/man1/kbroker-topic-create.1.gz", "/usr/share/man/man1/kafka-topics.1.gz",
        "/usr/share/zsh/vendor-completions/_kbroker", "/etc/default/kbroker",
    ):  # fmt: skip
        assert wanted in files
    root.run("! grep -rF build/deb/kbroker /opt/kbroker /usr/share/man")  # where it was built
    told = root.run("dpkg-query -W -f '${Conffiles}' kbroker").stdout.split()
    assert told[::2] == ["/etc/default/kbroker", "/etc/kbroker/server.properties"]
    root.run("kbroker config validate /etc/kbroker/server.properties")
    assert "kbroker:" in root.run("getent passwd kbroker").stdout
    complete = (
        "bash -c '. /usr/share/bash-completion/completions/kbroker; "
        "COMP_LINE=\"kbroker top\" COMP_POINT=11; $(complete -p kbroker | "
        "sed \"s/.*-F \\([^ ]*\\) .*/\\1/\") kbroker; echo ${COMPREPLY[@]}'"
    )
    assert "topic" in root.run(complete).stdout
