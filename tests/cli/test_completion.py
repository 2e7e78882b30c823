"""Completion, driven the way a shell drives it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import shutil
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.cli import tree
from tests.support import wire
from tests.support.needs import need_command
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports, wait_for

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
def complete(command: Path, script: Path) -> Complete:
    """What bash offers for the last of these words; nothing may be said besides."""
    bash = shutil.which("bash")
    assert bash is not None

    def complete(*words: str, **environment: str) -> list[str]:
        done = subprocess.run(
            [bash, "--norc", "-c", DRIVER, "bash", str(script), "kbroker", *words],
            capture_output=True, text=True, timeout=LIMIT_S, check=True,
            env=surroundings(command, **environment),
        )  # fmt: skip
        assert done.stderr == "", done.stderr
        return done.stdout.split()

    return complete


def test_commands_and_options(complete: Complete) -> None:
    assert complete("topi") == ["topic"]
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


def test_a_broker_that_is_slow_is_not_waited_for(complete: Complete) -> None:
    """It takes the connection and answers nothing, for longer than anybody holds a key down."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = {
            "KBROKER_BOOTSTRAP_SERVER": f"127.0.0.1:{listener.getsockname()[1]}",
            "KBROKER_COMPLETION_TIMEOUT": "0.2",
        }
        for words in (("topic", "describe", "x"), ("consume", "x"), ("group", "describe", "x")):
            began = time.monotonic()
            assert complete(*words, **here) == []
            assert time.monotonic() - began < 25  # any other command waits for 30 s


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A `kbroker` in a folder of its own."""
    command = tmp_path / "bin" / "kbroker"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kbroker.cli "$@"\n')
    command.chmod(0o755)
    return command


def surroundings(command: Path, **more: str) -> dict[str, str]:
    """The environment of a shell that finds this command, no profile and no broker."""
    home = str(command.parent.parent)
    path = f"{command.parent}:{os.environ['PATH']}"
    known = {"PATH": path, "XDG_CONFIG_HOME": home, "HOME": home,
             "KBROKER_DATA_DIR": f"{home}/none", "KBROKER_COMPLETION_TIMEOUT": "20"}  # fmt: skip
    return dict(os.environ) | known | more


def test_fish(command: Path, tmp_path: Path, target: BrokerProcess, topic: str) -> None:
    fish = need_command("fish", "fish")
    script = written("fish", tmp_path)
    wire.create_topic(target.port, f"fish-{topic}", 1)

    def offered(line: str) -> list[str]:
        done = subprocess.run(
            [fish, "--no-config", "-c", f"source {script}; complete -C '{line}'"],
            capture_output=True, text=True, timeout=LIMIT_S, check=True,
            env=surroundings(command, KBROKER_BOOTSTRAP_SERVER=target.bootstrap),
        )  # fmt: skip
        assert done.stderr == "", done.stderr
        return done.stdout.splitlines()

    def complete(line: str) -> list[str]:
        return sorted(line.split("\t")[0] for line in offered(line))

    assert offered("kbroker topi") == [f"topic\t{tree.ROOT['topic'][2]}"]  # with its commas
    assert complete("kbroker backup ") == ["create", "restore", "verify"]
    assert complete("kbroker topic de") == ["delete", "describe"]
    assert complete("kbroker topic list --int") == ["--internal"]
    assert complete("kbroker topic describe fish-") == [f"fish-{topic}"]


#: zsh as a user has it, its first prompt and the line under the cursor told by files.
ZSHRC = """\
PROMPT='$ '
autoload -Uz compinit && compinit -u -d "$ZDOTDIR/dump"
source "$ZDOTDIR/script"
zle-line-init() { : > "$ZDOTDIR/ready" }
show() { print -r -- "$BUFFER" > "$ZDOTDIR/line.new"; mv "$ZDOTDIR/line.new" "$ZDOTDIR/line" }
zle -N zle-line-init
zle -N show
bindkey '^O' show
"""


class Zsh:
    """An interactive zsh on a terminal of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.shown = ""
        program = need_command("zsh", "zsh")
        self.terminal, end = pty.openpty()
        self.process = subprocess.Popen(
            [program, "-d", "-i"], stdin=end, stdout=end, stderr=end, start_new_session=True,
            env=environment | {"ZDOTDIR": str(folder), "TERM": "vt100", "COLUMNS": "100"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )  # fmt: skip
        os.close(end)
        os.set_blocking(self.terminal, False)
        wait_for("a prompt", (folder / "ready").exists, LIMIT_S)

    def line_after(self, keys: str) -> str:
        """What stands on the command line after these keys, which begin with an empty one."""
        line = self.folder / "line"
        line.unlink(missing_ok=True)
        os.write(self.terminal, f"\x15{keys}\x0f".encode())
        wait_for(f"the line after {keys!r}", lambda: self._read() or line.exists(), LIMIT_S)
        return line.read_text().removesuffix("\n")

    def _read(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.shown += os.read(self.terminal, 65536).decode(errors="replace")
        return False

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


def test_zsh(command: Path, tmp_path: Path, target: BrokerProcess, topic: str) -> None:
    written("zsh", tmp_path)
    (tmp_path / ".zshrc").write_text(ZSHRC)
    wire.create_topic(target.port, f"zsh-{topic}", 1)
    zsh = Zsh(tmp_path, surroundings(command, KBROKER_BOOTSTRAP_SERVER=target.bootstrap))
    try:
        assert zsh.line_after("kbroker topic descr\t") == "kbroker topic describe "
        assert zsh.line_after("kbroker backup cr\t") == "kbroker backup create "
        assert zsh.line_after("kbroker topic list --int\t") == "kbroker topic list --internal "
        ended = f"kbroker topic describe zsh-{topic} "
        assert zsh.line_after("kbroker topic describe zsh-\t") == ended
        zsh.shown = ""
        assert zsh.line_after("kbroker group de\t") == "kbroker group de"
        for shown in ("describe", "delete", "Show a group's offsets"):
            assert shown in zsh.shown
    finally:
        zsh.end()


def test_the_script_is_one_of_bash(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n", str(written("bash", tmp_path))], check=True, timeout=LIMIT_S)
