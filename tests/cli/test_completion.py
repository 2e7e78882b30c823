"""Completion, driven the way a shell drives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports

LIMIT_S = 60

#: Completes the words it is given in a real bash, with the function that the script registers,
#: and prints what bash would offer.
DRIVER = """\
source "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
function=$(complete -p kbroker | sed -E 's/.* -F ([^ ]+).*/\\1/')
"$function" kbroker "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

Complete = Callable[..., list[str]]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `kbroker completion bash` prints."""
    return written("bash", tmp_path_factory.mktemp("completion"))


def written(shell: str, folder: Path) -> Path:
    """The script of a shell, in a file."""
    script = folder / "script"
    with script.open("w") as file:
        subprocess.run(
            [sys.executable, "-m", "kbroker.cli", "completion", shell],
            check=True, timeout=LIMIT_S, stdout=file,
        )  # fmt: skip
    assert "_KBROKER_COMPLETE" in script.read_text()
    return script


@pytest.fixture
def complete(tmp_path: Path, script: Path) -> Complete:
    """What bash offers for the last of these words; nothing may be said besides."""
    command = tmp_path / "bin" / "kbroker"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kbroker.cli "$@"\n')
    command.chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None

    def complete(*words: str, **environment: str) -> list[str]:
        known = {"PATH": f"{command.parent}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path),
                 "KBROKER_DATA_DIR": str(tmp_path / "none"),
                 "KBROKER_COMPLETION_TIMEOUT": "20"}  # fmt: skip
        done = subprocess.run(
            [bash, "--norc", "-c", DRIVER, "bash", str(script), "kbroker", *words],
            capture_output=True, text=True, timeout=LIMIT_S, check=True,
            env=dict(os.environ) | known | environment,
        )  # fmt: skip
        assert done.stderr == "", done.stderr
        return done.stdout.split()

    return complete


def test_commands_and_options(complete: Complete) -> None:
    assert complete("to") == ["topic"]
    assert complete("topic", "de") == ["describe", "delete"]
    assert complete("topics", "li") == ["list"]
    assert complete("topic", "list", "--int") == ["--internal"]
    assert complete("topic", "list", "-o", "") == ["table", "wide", "json"]
    assert complete("config", "explain", "num.par") == ["num.partitions"]
    assert complete("topic", "describe", "no broker", "--all-") == ["--all-configs"]


def test_topics_groups_and_profiles(
    complete: Complete, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from kbroker.client import Consumer
    from kbroker.client.admin import create_topic
    from kbroker.client.cluster import Cluster

    with Cluster(target.bootstrap) as cluster:
        for name in (f"complete-{topic}-a", f"complete-{topic}-b"):
            create_topic(cluster, name, partitions=1)
    with Consumer(bootstrap_servers=target.bootstrap, group_id=f"group-{topic}") as consumer:
        consumer.assign([(f"complete-{topic}-a", 0)])
        consumer.seek((f"complete-{topic}-a", 0), 0)
        consumer.poll(0.0)
        consumer.commit()
    begun, here = f"complete-{topic}-", {"KBROKER_BOOTSTRAP_SERVER": target.bootstrap}
    assert complete("topic", "describe", begun, **here) == [begun + "a", begun + "b"]
    assert complete("topic", "delete", begun + "a", begun, **here) == [begun + "b"]
    assert complete("consume", "-b", target.bootstrap, begun + "b") == [begun + "b"]
    assert complete("group", "describe", f"group-{topic}", **here) == [f"group-{topic}"]
    assert complete("topic", "list", "--profile", "") == []
    folder = tmp_path / "kbroker"
    folder.mkdir()
    (folder / "profiles.toml").write_text(
        f'[profile.here]\n"bootstrap.servers" = "{target.bootstrap}"\n'
    )
    assert complete("topic", "list", "--profile", "h") == ["here"]
    assert complete("topic", "describe", "--profile", "here", begun + "a") == [begun + "a"]


def test_without_a_broker_it_is_quick_and_says_nothing(complete: Complete) -> None:
    (free,) = free_ports(1)
    began = time.monotonic()
    assert complete("topic", "describe", "x", KBROKER_BOOTSTRAP_SERVER=f"127.0.0.1:{free}") == []
    assert complete("topic", "describe", "x", KBROKER_BOOTSTRAP_SERVER="h:x") == []
    assert complete("topic", "describe", "x", KBROKER_PROFILE="gone") == []
    assert time.monotonic() - began < LIMIT_S


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])]
)
def test_the_script_is_one_of_its_shell(shell: str, words: list[str], tmp_path: Path) -> None:
    script = written(shell, tmp_path)
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not there: install the package {shell}")
    subprocess.run([found, *words, str(script)], check=True, timeout=LIMIT_S)
