"""The temporary folder of a test session."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.java import java
from tests.support.tree import ROOT

pytest_plugins = ["pytester"]

LEAVES = """
import tempfile
def test_it():
    assert "kbroker-tests-" in tempfile.mkdtemp()
"""
CLEANS_UP = """
import os, tempfile
def test_it():
    os.rmdir(tempfile.mkdtemp())
"""


@pytest.mark.parametrize(("source", "errors"), [(LEAVES, 1), (CLEANS_UP, 0)])
def test_session_that_leaves_a_folder_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, source: str, errors: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(source)
    result = pytester.runpytest_subprocess("-p", "tests.support.leftovers")
    result.assert_outcomes(passed=1, errors=errors)
    assert ("left in the temporary folder" in result.stdout.str()) == bool(errors)


def test_jvms_use_a_folder_that_the_session_removes(temporary_folder: Path) -> None:
    assert Path(tempfile.gettempdir()) == temporary_folder
    command = [java(), "-XshowSettings:properties", "-version"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert f"java.io.tmpdir = {temporary_folder / 'java'}" in shown
