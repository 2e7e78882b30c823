"""Standard streams that are closed or full are told in one line, and nothing is taken for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import wire
from tests.support.kbroker import KbrokerProcess


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("consume -e {} >&-", "standard output: Bad file descriptor"),
        ("consume -e -J {} >/dev/full", "standard output: No space left on device"),
        ("topic list >&-", "standard output: Bad file descriptor"),
        ("version -o json >/dev/full", "standard output: No space left on device"),
        ("produce {} <&-", "standard input: Bad file descriptor"),
        ("user create u --password-file - <&-", "standard input: Bad file descriptor"),
    ],
)
def test_one_line(kbroker: KbrokerProcess, topic: str, words: str, told: str) -> None:
    wire.create_topic(kbroker.port, topic)
    if "consume" in words:
        assert command(kbroker, f"produce {topic}", b"a\n").returncode == 0
    done = command(kbroker, words.format(topic))
    assert done.returncode == 1, done.stderr
    assert f"kbroker: {told}\n" in done.stderr.decode()
    assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr


def command(
    kbroker: KbrokerProcess, words: str, data: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """A command as a shell runs it."""
    here = {"KBROKER_BOOTSTRAP_SERVER": kbroker.bootstrap, "PYTHONUNBUFFERED": ""}
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m kbroker.cli {words}', sys.executable], input=data,
        env=os.environ | here, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
