"""The scripts as they are installed: processes of their own, ended by signals and closed pipes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for

FOLDER = Path(sys.executable).parent
NAMES = ("topics", "configs", "consumer-groups", "console-producer", "console-consumer")


@pytest.mark.parametrize("name", NAMES)
def test_each_is_there_and_loads_what_it_needs(name: str) -> None:
    """--version says whose flags these are, without the client and without click."""
    code = (
        "import sys; from importlib.metadata import entry_points as all_of;"
        f"(e,) = all_of(group='console_scripts', name='kafka-{name}'); e.load()();"
        "print([m for m in ('click', 'rich', 'kbroker.client', 'kio') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "4.3.0\n[]\n"


def test_a_consumer_leaves_its_group_when_it_is_ended(
    kbroker: KbrokerProcess, topic: str, tmp_path: Path
) -> None:
    wire.create_topic(kbroker.port, topic)
    server = ("--bootstrap-server", kbroker.bootstrap)
    subprocess.run(
        [FOLDER / "kafka-console-producer", *server, "--topic", topic], input="one\n", text=True,
        check=True, timeout=60,
    )  # fmt: skip
    out = tmp_path / "out"
    with out.open("w") as file, subprocess.Popen(
        [FOLDER / "kafka-console-consumer", *server, "--topic", topic, "--group", topic,
         "--from-beginning"],
        stdout=file, stderr=subprocess.PIPE, text=True,
    ) as consumer:  # fmt: skip
        wait_for("a record", lambda: out.read_text() == "one\n", 30)
        consumer.send_signal(signal.SIGTERM)
        told = consumer.communicate(timeout=30)[1]
    assert "Processed a total of 1 messages" in told
    assert consumer.returncode == 143
    described = subprocess.run(
        [FOLDER / "kafka-consumer-groups", *server, "--describe", "--group", topic],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "has no active members" in described.stderr
    assert described.stdout.split()[-9:-3] == [topic, topic, "0", "1", "1", "0"]


def test_a_reader_that_has_seen_enough(kbroker: KbrokerProcess, topic: str) -> None:
    """As `kafka-console-consumer ... | head -1`: the script ends by itself, without a trace."""
    wire.create_topic(kbroker.port, topic)
    server = ("--bootstrap-server", kbroker.bootstrap, "--topic", topic)
    lines = "".join(f"line {number}\n" for number in range(20_000))
    subprocess.run([FOLDER / "kafka-console-producer", *server], input=lines, text=True, check=True,
                   timeout=60)  # fmt: skip
    with subprocess.Popen(
        [FOLDER / "kafka-console-consumer", *server, "--from-beginning"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as consumer:  # fmt: skip
        assert consumer.stdout is not None and consumer.stderr is not None
        assert consumer.stdout.readline() == "line 0\n"
        consumer.stdout.close()
        told = consumer.stderr.read()
        assert consumer.wait(timeout=30) == 0
    assert "Unable to write to standard out, closing consumer." in told
    assert "Traceback" not in told
