"""Damage of a coordinator's topic, and everything that is to tell of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbroker.cli import root
from kbroker.cli.finding import FAILED
from kbroker.cli.scrape import metrics_url, scrape
from tests.support.kbroker import KbrokerProcess


def flip(path: Path, at: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def check_is_told(
    broker: KbrokerProcess, capsys: pytest.CaptureFixture[str], kind: str, log: Path
) -> None:
    """One place of this log was passed over: the log, metrics, `check` and `status` say so, until
    `log repair` took it out. `kind`: of the metrics. Leaves the broker running."""
    topic = log.parent.name.rpartition("-")[0]
    name = f"{kind}s"
    assert f"{log.parent.name} is damaged in 1 places" in broker.log_text()
    assert "kbroker log repair --drop" in broker.log_text()
    now = scrape(metrics_url(broker.data_dir))
    assert now.total(f"kbroker_{kind}_state_passed_over") == 1
    assert now.total(f"kbroker_{kind}_partitions_failed") == 0
    assert now.total(f"kbroker_{kind}_partitions_loading") == 0
    assert root.run(["check", "-D", str(broker.data_dir), "-o", "json"]) == 1
    checks = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert checks[name]["verdict"] == FAILED
    assert root.run(["status", "-D", str(broker.data_dir)]) == 0
    assert f"1 damaged places of {topic}" in capsys.readouterr().out
    assert broker.stop() == 0
    assert root.run(["log", "repair", str(log), "--drop"]) == 0
    capsys.readouterr()
    broker.start()
    assert root.run(["status", "-D", str(broker.data_dir), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[name] is None
