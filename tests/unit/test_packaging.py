"""What packaging/ holds is accepted by the tools that will read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.needs import need_command
from tests.support.tree import ROOT

UNIT = ROOT / "packaging" / "systemd" / "kbroker.service"


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """systemd-analyze looks for the program, so the copy that it reads names one that is there."""
    analyze = need_command("systemd-analyze", "systemd")
    told = UNIT.read_text()
    assert "/usr/bin/kbroker start" in told
    copy = tmp_path / UNIT.name
    copy.write_text(told.replace("/usr/bin/kbroker", "/bin/true"))
    command = [analyze, "verify", "--man=no", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
