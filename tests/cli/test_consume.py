"""`kbroker consume`: where it begins and ends, groups and what they commit, readers that go."""

from __future__ import annotations

import json
import select
import signal
import subprocess
from typing import Any

import pytest

from kbroker.client.cluster import Cluster
from kbroker.client.group_offsets import committed_offsets
from kbroker.client.groups import describe_groups
from tests.cli.conftest import Run, Start
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for


def numbers(first: int, count: int) -> bytes:
    return b"".join(b"%d\n" % n for n in range(first, first + count))


@pytest.fixture
def timed(kbroker: KbrokerProcess, topic: str, run: Run) -> str:
    """A topic of two partitions, in each 10 records at timestamps 1000, 2000 ... ms."""
    wire.create_topic(kbroker.port, topic, 2, {"retention.ms": "-1"})
    lines = [
        json.dumps({"payload": f"{n}", "partition": n % 2, "ts": 1000 * (n // 2 + 1)})
        for n in range(20)
    ]
    run("produce", topic, "-J", "--keep-partitions", stdin="\n".join(lines).encode())
    return topic


def read(run: Run, topic: str, *options: str) -> list[int]:
    return sorted(map(int, run("consume", topic, "-e", *options).out.split()))


def committed(kbroker: KbrokerProcess, group: str) -> dict[int, int]:
    with Cluster(kbroker.bootstrap) as cluster:
        told = committed_offsets(cluster, [group])[group]
    return {index: found.offset for (_, index), found in told.items()}


def test_where_it_begins_and_ends(run: Run, timed: str) -> None:
    every = list(range(20))
    for options, expected in (
        (["-o", "start"], every),
        (["-o", "end"], []),
        (["-o", "3"], every[6:]),
        (["-o", "-2"], every[16:]),
        (["-o", "-99"], every),
        (["-o", "+4"], every[8:]),
        (["-o", "s@5000"], every[8:]),
        (["-o", "@5001"], every[10:]),
        (["-o", "@1970-01-01T00:00:09Z"], every[16:]),
        (["-o", "s@2000", "-o", "e@4000"], every[2:6]),
        (["-o", "e@2000"], every[:2]),
        (["-o", "@10m ago"], []),
        (["-p", "1"], every[1::2]),
        (["-p", "-1"], every),
        (["-c", "20"], every),
    ):
        assert read(run, timed, *options) == expected, options
    assert len(read(run, timed, "-c", "7")) == 7
    assert "offset 11 is not in" in run("consume", timed, "-o", "11", status=1).err
    for wrong in (["-o", "x"], ["-o", "3", "-o", "4"], ["-o", "stored"], ["-f", "%x"], ["-O"]):
        assert run("consume", timed, *wrong, status=2).err.count("\n") == 1


def test_several_topics_and_patterns(kbroker: KbrokerProcess, run: Run, timed: str) -> None:
    other = f"{timed}-other"
    wire.create_topic(kbroker.port, other)
    run("produce", other, stdin=b"100\n")
    assert read(run, timed, "-t", other) == [*range(20), 100]
    assert read(run, f"^{timed}") == [*range(20), 100]
    assert read(run, f"^{timed}$") == [*range(20)]
    assert "no topic matches" in run("consume", "^no-such-", status=1).err
    assert "'^a(': missing )" in run("consume", "^a(", status=2).err


def test_committed_offsets_without_a_group_to_join(
    kbroker: KbrokerProcess, run: Run, timed: str
) -> None:
    options = ("-o", "stored", "-X", f"group.id={timed}", "-X", "auto.offset.reset=smallest")
    assert len(read(run, timed, *options, "-c", "5")) == 5
    assert sum(committed(kbroker, timed).values()) == 5
    assert len(read(run, timed, *options)) == 15
    assert committed(kbroker, timed) == {0: 10, 1: 10}


def test_only_what_is_committed_in_transactions(run: Run, timed: str) -> None:
    assert len(read(run, timed, "--isolation-level", "read_committed")) == 20
    assert len(read(run, timed, "--read-committed", "-o", "-1")) == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_commits_what_was_printed(
    kbroker: KbrokerProcess, run: Run, timed: str, protocol: str
) -> None:
    options = ["-G", timed, timed, "-X", f"group.protocol={protocol}", "-o", "beginning"]
    first = run("consume", *options, "-c", "7").out.split()
    assert sum(committed(kbroker, timed).values()) == len(first) == 7
    rest = run("consume", *options, "-e").out.split()
    assert sorted(map(int, first + rest)) == list(range(20))
    assert committed(kbroker, timed) == {0: 10, 1: 10}
    with Cluster(kbroker.bootstrap) as cluster:  # it has left, and not just gone away
        assert describe_groups(cluster, [timed])[timed].members == ()
    for wrong in (["-p", "1"], ["-o", "5"], ["-o", "e@5"]):
        assert "-G" in run("consume", "-G", timed, timed, *wrong, status=2).err


@pytest.mark.parametrize(("told", "count"), [((), 20), (("-X", "auto.offset.reset=end"), 0)])
def test_a_new_group_begins_at_the_beginning(
    run: Run, timed: str, told: tuple[str, ...], count: int
) -> None:
    assert len(run("consume", "-G", timed, timed, "-e", *told).out.split()) == count


def test_a_group_begins_at_a_time(kbroker: KbrokerProcess, run: Run, timed: str) -> None:
    found = run("consume", "-G", timed, f"^{timed}$", "-o", "@5000", "-e").out.split()
    assert sorted(map(int, found)) == list(range(8, 20))


@pytest.mark.parametrize(
    ("protocol", "number"), [("classic", signal.SIGINT), ("consumer", signal.SIGTERM)]
)
def test_a_signal_commits_and_leaves_at_once(
    kbroker: KbrokerProcess, start: Start, timed: str, protocol: str, number: int
) -> None:
    options = ["-G", timed, timed, "-X", f"group.protocol={protocol}", "-o", "beginning"]
    process = start("consume", *options)
    lines = read_lines(process, 20)
    process.send_signal(number)
    _, error = process.communicate(timeout=10)
    assert (process.returncode, error) == (0, b"")
    assert sorted(map(int, lines.split())) == list(range(20))
    assert committed(kbroker, timed) == {0: 10, 1: 10}
    with Cluster(kbroker.bootstrap) as cluster:
        assert describe_groups(cluster, [timed])[timed].members == ()


def read_lines(process: subprocess.Popen[bytes], count: int, of: bytes = b"\n") -> bytes:
    """What a process prints, until it has so many lines, or so many of what is sought."""
    assert process.stdout is not None
    held = b""

    def enough() -> bool:
        nonlocal held
        if select.select([process.stdout], [], [], 0.1)[0]:
            held += process.stdout.read1(1 << 16)  # type: ignore[union-attr]
        return held.count(of) >= count

    wait_for(f"{count} of {of!r}", enough, 60)
    return held


@pytest.mark.parametrize("form", [["-u"], ["-J"], []], ids=["unbuffered", "json", "bulk"])
def test_a_reader_that_goes_away_ends_it_with_the_right_commits(
    kbroker: KbrokerProcess, run: Run, start: Start, topic: str, form: list[str]
) -> None:
    """The pipe is full, its reader has seen a part: nothing behind what fitted is committed."""
    wire.create_topic(kbroker.port, topic)
    count = 20_000
    run("produce", topic, stdin=b"".join(b"%099d\n" % n for n in range(count)))
    process = start("consume", "-G", topic, topic, "-o", "beginning", *form)
    assert process.stdout is not None
    seen = process.stdout.readline()
    assert b"0" * 90 in seen
    process.stdout.close()
    process.wait(60)
    assert process.stderr is not None
    assert process.stderr.read() == b""
    (at,) = committed(kbroker, topic).values()
    assert 1 <= at < count  # a pipe and a buffer of ours hold less than all of it
    (line,) = run("consume", "-G", topic, topic, "-c", "1").out.split()
    assert int(line) == at


def test_a_reader_that_goes_away_is_missed_without_another_record(
    start: Start, timed: str
) -> None:
    process = start("consume", timed)
    read_lines(process, 20)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_slow_reader_does_not_keep_a_signal_waiting(
    kbroker: KbrokerProcess, run: Run, start: Start, topic: str
) -> None:
    wire.create_topic(kbroker.port, topic)
    count = 20_000
    run("produce", topic, stdin=b"".join(b"%099d\n" % n for n in range(count)))
    process = start("consume", "-G", topic, topic, "-o", "beginning")
    assert process.stdout is not None
    process.stdout.read(100)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    printed = process.stdout.read()
    assert process.returncode == 0
    (at,) = committed(kbroker, topic).values()
    assert at == (100 + len(printed)) // 100


def test_two_members_share(kbroker: KbrokerProcess, run: Run, start: Start, timed: str) -> None:
    options: list[Any] = ["consume", "-G", timed, timed, "-o", "beginning", "-f", "%p %s\\n"]
    members = [start(*options, "-X", "partition.assignment.strategy=range") for _ in range(2)]

    def shared() -> bool:
        with Cluster(kbroker.bootstrap) as cluster:
            if timed not in (found := describe_groups(cluster, [timed])):
                return False
        return len([member for member in found[timed].members if member.assigned]) == 2

    wait_for("two members with a partition each", shared, 60)
    lines = [json.dumps({"payload": f"new{n}", "partition": n % 2}) for n in range(20)]
    run("produce", timed, "-J", "--keep-partitions", stdin="\n".join(lines).encode())
    found = [read_lines(member, 10, b"new") for member in members]
    for member in members:
        member.send_signal(signal.SIGINT)
        assert member.wait(60) == 0
    new = [sorted(line for line in held.splitlines() if b"new" in line) for held in found]
    assert sorted(new) == [
        sorted(b"%d new%d" % (n % 2, n) for n in range(at, 20, 2)) for at in (0, 1)
    ]
