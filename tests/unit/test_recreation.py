"""Refused disk work that is tried again while the broker runs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kbroker.api.recreation import Recreations
from kbroker.ext import log_folders
from kbroker.protocol import ApiKey
from tests.support.control import ControlPlane


def test_tick_renames_a_deleted_folder_when_the_disk_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlPlane(tmp_path)
    control.create("t")
    directory = control.services.logs.directory
    with monkeypatch.context() as refused:
        refused.setattr(log_folders, "end_logs", lambda wanted: [errno.EBUSY] * len(wanted))
        fields = {"topics": [{"name": "t"}], "timeout": 30_000}
        answered = control.call(ApiKey.DELETE_TOPICS, 6, **fields)
        assert answered["responses"][0]["error_code"] == 0
        recreations = Recreations(control.services)
        recreations.tick()
        control.run_operations()
        assert (directory / "t-0").is_dir()
    recreations.tick()  # too early
    control.run_operations()
    assert (directory / "t-0").is_dir()
    control.clock.advance(1_000)
    recreations.tick()
    control.run_operations()
    assert not (directory / "t-0").exists() and not control.services.logs.unrenamed
    control.close()
