"""What packaging/ holds is accepted by the tools that will read it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import need_command
from tests.support.tree import ROOT

PREINST = ROOT / "packaging" / "debian" / "kbroker.preinst.in"
UNITS = ROOT / "packaging" / "systemd"
EXPOSURE_MAX = 1.5
FILES_PER_SEGMENT, MAPS_PER_SEGMENT = 1, 2


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units; systemd-analyze looks for their program, so these name one that is there."""
    for path in UNITS.iterdir():
        told = path.read_text()
        assert path.suffix != ".service" or "/usr/bin/kbroker start" in told
        name = path.name.replace("@.", "@shop.")
        (tmp_path / name).write_text(told.replace("/usr/bin/kbroker", "/bin/true"))
    return tmp_path


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    command = [need_command("systemd-analyze", "systemd"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_units_are_such_as_systemd_takes(units: Path) -> None:
    found = [str(path) for path in units.iterdir() if path.suffix != ".sysusers"]
    assert len(found) == 3
    done = analyze("verify", "--man=no", *found)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["kbroker.service", "kbroker@shop.service"])
def test_the_units_are_hardened(units: Path, name: str) -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(units / name))
    told = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert told is not None, done.stdout + done.stderr
    assert float(told[1]) <= EXPOSURE_MAX, done.stdout


def test_one_hardening_for_both(units: Path) -> None:
    def sandbox(name: str) -> list[str]:
        return (units / name).read_text().partition("WorkingDirectory=")[2].split("\n")[1:]

    ours = [line for line in sandbox("kbroker.service") if not line.startswith("#")]
    assert ours == sandbox("kbroker@shop.service")


def test_wrong_settings_are_not_tried_again(units: Path) -> None:
    for name in ("kbroker.service", "kbroker@shop.service"):
        told = re.search(r"^RestartPreventExitStatus=(.*)$", (units / name).read_text(), re.M)
        assert told is not None and str(os.EX_CONFIG) in told[1].split()


def test_mappings_allow_what_descriptors_allow() -> None:
    """The arithmetic of the comments: half of the descriptors are segments', each mapped twice."""
    limit = re.search(r"^LimitNOFILE=(\d+)", (UNITS / "kbroker.service").read_text(), re.M)
    sysctl = (ROOT / "packaging" / "sysctl.d" / "30-kbroker.conf").read_text()
    maps = re.search(r"^vm.max_map_count = (\d+)", sysctl, re.M)
    assert limit is not None and maps is not None
    segments = int(limit[1]) // 2 // FILES_PER_SEGMENT
    assert int(maps[1]) >= MAPS_PER_SEGMENT * segments + 1000


def test_a_downgrade_looks_into_every_data_directory(tmp_path: Path) -> None:
    """Those of the settings and of instances; with levels told by a stand-in for the reader."""
    need_command("dpkg", "dpkg")
    reader = tmp_path / "levels"
    reader.write_text('#!/bin/sh\ncat "$1/levels"\n')
    reader.chmod(0o755)
    script = tmp_path / "preinst"
    text = PREINST.read_text()
    for name, other in (
        ("/opt/kbroker/libexec/levels", reader), ("/etc/kbroker", tmp_path),
        ("/var/lib/kbroker", tmp_path / "kbroker"), ("#VERSION#", "1.0"),
        ("#LEVELS#", "metadata.version 7 29"),
    ):  # fmt: skip
        assert name in text
        text = text.replace(name, str(other))
    script.write_text(text)
    settings = f"log.dirs = {tmp_path}/first, {tmp_path}/second disk\n"
    (tmp_path / "server.properties").write_text(settings)
    folders = [tmp_path / name for name in ("kbroker", "kbroker-shop", "first", "second disk")]
    for folder in folders:
        (folder / "__cluster_metadata-0").mkdir(parents=True)
        (folder / "levels").write_text("metadata.version 29\n")

    def told(*words: str) -> tuple[int, str]:
        done = subprocess.run(["sh", str(script), *words], capture_output=True, text=True,
                              timeout=120, check=False)  # fmt: skip
        return done.returncode, done.stderr

    assert told("upgrade", "2.0") == (0, "")
    for folder in folders:
        (folder / "levels").write_text("metadata.version 30\nnew.version 1\n")
        status, text = told("upgrade", "2.0")
        assert status == 1 and f"{folder}: metadata.version 30 (here 7 to 29)" in text
        assert f"{folder}: new.version 1 (not known here)" in text and "refused" in text
        assert told("upgrade", "0.9") == told("install") == (0, "")
        (folder / "levels").write_text("metadata.version 29\n")
