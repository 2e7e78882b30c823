"""A command imports what it needs: told by the modules that are there when it has ended.

The time of a start is theirs. `kbroker --help` costs a tenth more processor time than
`python -c pass`, and click alone would double that; kio's schemas, rich and the native client are
each as much again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.cli import root, tree
from tests.support.processes import BrokerProcess

#: What no command of these may load.
NEVER = frozenset({"asyncio", "hypothesis", "http", "numpy", "pyarrow", "rich", "ssl"})
#: What costs a start, and is for who talks to a broker or reads settings.
BROKERS = frozenset({"kbroker.client", "kbroker.config", "kbroker.ext", "kbroker.protocol", "kio",
                     "socket"})  # fmt: skip
NATIVE = frozenset({"kbroker.ext.client_loop", "kbroker.ext.client_fetch"})

CODE = """\
import sys
from kbroker.cli import main
try:
    status = main()
except SystemExit as ended:
    status = ended.code
sys.stdout.flush()
sys.stderr.write("\\nloaded: " + " ".join(sys.modules))
sys.exit(status)
"""


def loaded(*words: str, home: Path, **environment: str) -> frozenset[str]:
    """The modules of a process in which a command has run."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words], capture_output=True, text=True, timeout=60,
        env={**os.environ, "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home), **environment},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return frozenset(done.stderr.rpartition("loaded: ")[2].split())


@pytest.mark.parametrize("words", [[], ["--help"], ["topic"], ["topics", "-h"], ["config", "-h"]])
def test_help_loads_nothing(words: list[str], tmp_path: Path) -> None:
    own = {name for name in loaded(*words, home=tmp_path) if name.startswith(("kbroker", "click"))}
    assert own == {"kbroker", "kbroker.cli", "kbroker.cli.tree"}


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list", "--help"],
        ["produce", "--help"],
        ["consume", "--help"],
        ["bench", "produce", "--help"],
        ["cluster", "health", "--help"],
        ["backup", "create", "--help"],
        ["version"],
        ["profile", "list"],
        ["completion", "zsh"],
        ["completion", "bash"],
    ],
)
def test_without_a_broker_nothing_of_the_client_is_loaded(
    words: list[str], tmp_path: Path
) -> None:
    assert not loaded(*words, home=tmp_path) & (NEVER | BROKERS)


def test_an_admin_command_loads_no_more_than_the_protocol(
    kbroker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    there = {"KBROKER_BOOTSTRAP_SERVER": kbroker.bootstrap}
    assert root.run(["topic", "create", topic, "-b", kbroker.bootstrap]) == 0
    for words in (["topic", "describe", topic], ["group", "list"], ["config", "get"]):
        found = loaded(*words, home=tmp_path, **there)
        assert "kio" in found
        assert not found & (NEVER | NATIVE | {"kbroker.config"})


def test_a_client_loads_no_web(kbroker: BrokerProcess, tmp_path: Path) -> None:
    """OAUTHBEARER fetches tokens by HTTP: that and its TLS are loaded by who asks for them."""
    words = ["bench", "produce", "-n", "10", "-b", kbroker.bootstrap]
    found = loaded(*words, home=tmp_path)
    assert "kbroker.ext.client_loop" in found
    assert not found & NEVER


@pytest.mark.parametrize("columns", ["30", "60", "80", "100", "300"])
def test_quick_help_is_clicks(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    groups = [[], *([name] for name, entry in tree.ROOT.items() if not entry[0]), ["topics"]]
    for group in groups:
        for words in (group, [*group, "--help"], [*group, "-h"]):
            assert root.run(words) == 0
            told = tree.plain_help(words)
            assert told is None or told == capsys.readouterr().out.rstrip("\n")
            assert told is not None or int(columns) <= 80
            capsys.readouterr()
    for words in (["topik"], ["version"], ["topic", "list", "--help"], ["--help", "topic"]):
        assert tree.plain_help(words) is None


def test_a_developers_broker_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker.cli", "start", "--dev", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on PLAINTEXT://127.0.0.1:")
        (place,) = tmp_path.iterdir()
        assert (place / "meta.properties").exists()
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert not list(tmp_path.iterdir())
