"""kcat's letters for how much is said, how long is waited and what is gone on after."""

from __future__ import annotations

import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Start
from tests.support import wire
from tests.support.kbroker import KbrokerProcess

LIMIT_S = 120


@pytest.fixture
def one(kbroker: KbrokerProcess, topic: str) -> str:
    wire.create_topic(kbroker.port, topic)
    return topic


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_the_wait_for_a_silent_cluster_has_a_limit(run: Run, one: str, silent: str) -> None:
    for command in ("produce", "consume"):
        began = time.monotonic()
        told = run(command, one, "-b", silent, "-m", "0.2", stdin=b"a", status=1).err
        assert time.monotonic() - began < LIMIT_S
        assert told.startswith("kbroker: ")
        assert told.count("\n") == 1
    assert "-m" in run("consume", one, "-m", "0", status=2).err
    assert "1 record" in run("produce", one, "-m", "60", "-X", f"transactional.id={one}",
                             stdin=b"a").err  # fmt: skip


def test_a_file_of_librdkafkas_settings(
    kbroker: KbrokerProcess, run: Run, one: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", "127.0.0.1:1")
    conf = tmp_path / "kcat.conf"
    conf.write_text(f"# mine\nmetadata.broker.list={kbroker.bootstrap}\ncompression.codec=lz4\n")
    run("produce", one, "-F", str(conf), stdin=b"a\n")
    assert run("consume", "-F", str(conf), "-et", one).out == b"a\n"
    servers = ("-b", kbroker.bootstrap)
    assert run("consume", *servers, "-F", "none", "-F", "-", "-et", one).out == b"a\n"
    assert "no/such" in run("consume", *servers, "-F", "no/such", one, status=1).err


def test_where_records_went_and_what_goes_on(
    kbroker: KbrokerProcess, run: Run, start: Start, one: str
) -> None:
    told = run("produce", one, "-v", stdin=b"a\nb\n").err.splitlines()
    assert told == [f"% {one} [0]: offsets 0 to 1", f"2 records acknowledged to {one} partition 0"]
    assert run("produce", one, "-vq", stdin=b"c").err == f"% {one} [0]: offset 2\n"
    assert run("produce", one, "-vq", "--acks", "0", stdin=b"d").err == f"% {one} [0]: 1 record\n"
    words = ("consume", "-G", one, one, "-o", "beginning", "-c", "3")
    assert f"% group {one} assigned: {one} [0]" in run(*words, "-v").err
    process = start("consume", one, "-v", "-o", "end")
    assert process.stderr is not None
    assert process.stderr.readline() == b"% at the end; waiting for more, Ctrl-C ends\n"


def test_the_log_of_the_client(start: Start, run: Run, one: str) -> None:
    run("produce", one, stdin=b"a")
    for words, names in (
        (["-d", "broker"], {"cluster"}),
        (["-d", "fetch,cgrp"], {"consumer", "group"}),
        (["-vvv"], {"cluster", "consumer", "group"}),
        (["-vv"], {"group"}),
        (["-v"], set()),
    ):
        process = start("consume", one, "-c", "1", "-G", f"{one}{words}", *words,
                        "-o", "beginning")  # fmt: skip
        out, error = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out) == (0, b"a\n")
        found = set(re.findall(r" (?:DEBUG|INFO) kbroker\.client\.(\w+): ", error.decode()))
        assert found == names, error.decode()
    assert "'brokers' is none of all generic" in run("consume", one, "-d", "brokers", status=2).err


def test_going_on_behind_what_cannot_be_read(run: Run, one: str) -> None:
    lines = b'{"payload":"a"}\nno\n{"payload":"b"}\n[]\n'
    told = run("produce", one, "-JE", stdin=lines, status=1).err.splitlines()
    assert told == [
        "kbroker: line 2: no JSON: Expecting value, at column 1",
        "kbroker: line 4: no JSON object",
        f"2 records acknowledged to {one} partition 0",
        "kbroker: 2 records failed: not in the form of --json",
    ]
    run("produce", one, "-D", "#", stdin=struct.pack(">i", 7))
    said = run("consume", one, "-eE", "-s", "i")
    assert said.out == b"\n\n7\n"
    assert said.err.splitlines() == [
        "kbroker: -s i: b'a' ends before its i", "kbroker: -s i: b'b' ends before its i",
    ]  # fmt: skip


def test_going_on_after_an_error_of_a_partition(
    kbroker: KbrokerProcess, start: Start, run: Run, topic: str
) -> None:
    """One partition has no offset to begin with, and nobody says where else: the other is read."""
    wire.create_topic(kbroker.port, topic, 2)
    run("produce", topic, "-p", "0", stdin=b"a\nb\n")
    group = ("-X", f"group.id={topic}", "-X", "auto.offset.reset=none", "-o", "stored")
    run("consume", "-p", "0", "-c", "1", "-X", f"group.id={topic}", "-o", "stored", topic,
        "-X", "auto.offset.reset=earliest")  # fmt: skip
    told = run("consume", topic, *group, "-X", "enable.auto.commit=false", status=1).err
    assert "has no position" in told
    process = start("consume", topic, *group, "-Eu")
    assert process.stdout is not None and process.stderr is not None
    assert b"has no position" in process.stderr.readline()
    assert process.stdout.readline() == b"b\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
