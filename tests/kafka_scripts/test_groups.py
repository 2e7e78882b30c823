"""kafka-consumer-groups beside Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kbroker.client import Consumer
from tests.kafka_scripts.conftest import Both
from tests.support import wire
from tests.support.kafka_scripts import JavaScripts
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for


def fill(both: Both, topic: str = "t@", partitions: int = 2) -> None:
    """A topic with some records, and a group of its own that has read three."""
    both(f"topics --create --topic {topic} --partitions {partitions}")
    both(f"console-producer --topic {topic} --reader-property parse.key=true",
         stdin="".join(f"the same\t{number}\n" for number in range(5)))  # fmt: skip
    both(f"console-consumer --topic {topic} --group g@ --from-beginning --max-messages 3"
         " --formatter-property print.value=false")  # fmt: skip


@contextmanager
def member(target: BrokerProcess, group: str, topic: str, **settings: str) -> Iterator[Consumer]:
    """A member with all partitions of a topic."""
    with Consumer(
        bootstrap_servers=target.bootstrap, group_id=group, auto_offset_reset="earliest",
        client_id="reader", **settings,
    ) as consumer:  # fmt: skip
        consumer.subscribe([topic])
        wait_for("an assignment", lambda: consumer.poll(0.1) or consumer.assignment(), 30)
        yield consumer


def test_offsets_from_their_commit_to_their_end(both: Both, tmp_path: Path) -> None:
    fill(both)
    reset = "consumer-groups --reset-offsets --group g@"
    both(f"{reset} --to-current --all-topics --execute")  # without leader epochs
    for more in ("", "--offsets", "--offsets --verbose", "--members", "--members --verbose",
                 "--state", "--state --verbose"):  # fmt: skip
        both(f"consumer-groups --describe --group g@ {more}")
    for scope, where in (
        ("--topic t@", "--to-latest"), ("--topic t@:1,0", "--to-earliest"),
        ("--all-topics", "--to-offset 1"), ("--all-topics", "--shift-by 1"),
        ("--all-topics", "--to-current"), ("--topic t@", "--shift-by -99"),
        ("--topic t@", "--to-offset 77"), ("--topic t@", "--to-datetime 2001-02-03T04:05:06.789"),
        ("--topic t@", "--to-datetime 2201-02-03T04:05:06.789+02:00"),
        ("--topic t@", "--by-duration P1DT2H"), ("--topic t@", "--by-duration PT0S"),
        ("--topic t@:7", "--to-latest"), ("--topic nope@", "--to-latest"),
        ("--topic t@", "--to-datetime yesterday"), ("--topic t@", "--by-duration 3h"),
    ):  # fmt: skip
        both(f"{reset} {scope} {where} --execute")
    for mark in both.marks:
        (tmp_path / f"plan{mark}").write_text(f"t{mark},0,1\nt{mark},1,99\n")
    both(f"{reset} --from-file {tmp_path}/plan@ --execute")
    both(f"{reset} --topic t@ --to-earliest --export --dry-run")
    both("consumer-groups --describe --group g@")
    both("consumer-groups --delete-offsets --group g@ --topic t@:0 --topic nope@")
    both("consumer-groups --delete-offsets --group g@ --topic t@")
    both("consumer-groups --describe --group g@")
    both("consumer-groups --delete --group g@ --group none@")
    for action in ("--describe", "--delete", "--delete-offsets --topic t@",
                   "--reset-offsets --to-latest --topic t@"):  # fmt: skip
        both(f"consumer-groups {action} --group none@")


def test_members(both: Both, target: BrokerProcess, topic: str) -> None:
    """One group of each protocol, each with a member at work."""
    wire.create_topic(target.port, topic, 3)
    both(f"console-producer --topic {topic}", stdin="a\nb\nc\n")
    with ExitStack() as stack:
        for protocol in ("classic", "consumer"):
            group = f"{protocol}-{topic}"
            settings = {"group_protocol": protocol, "group_instance_id": f"i-{protocol}"}
            consumer = stack.enter_context(member(target, group, topic, **settings))
            consumer.commit()
        both("consumer-groups --list")
        both("consumer-groups --list --state --type")
        both("consumer-groups --list --state stable --type consumer,classic")
        for protocol in ("classic", "consumer"):
            group = f"--group {protocol}-{topic}"
            for more in ("", "--verbose", "--members", "--members --verbose", "--state --verbose"):
                both(f"consumer-groups --describe {group} {more}")
            both(f"consumer-groups --delete {group}")
            both(f"consumer-groups --delete-offsets {group} --topic {topic}")
            both(f"consumer-groups --reset-offsets {group} --topic {topic} --to-latest --execute")


def test_command_lines(both: Both) -> None:
    """No broker is needed for these."""
    for words in (
        "", "--help", "--version", "--list", "--bootstrap-server a:1",
        "--list --describe --bootstrap-server a:1", "--list --members --bootstrap-server a:1",
        "--bootstrap-server a:1 --describe", "--bootstrap-server a:1 --delete --group g --topic t",
        "--bootstrap-server a:1 --describe --group g --members --state",
        "--bootstrap-server a:1 --describe --group g --state Stable",
        "--bootstrap-server a:1 --delete-offsets --group g",
        "--bootstrap-server a:1 --reset-offsets --group g --execute --dry-run",
        "--bootstrap-server a:1 --reset-offsets --execute",
        "--bootstrap-server a:1 --reset-offsets --execute --group g --to-latest --to-earliest",
        "--bootstrap-server a:1 --list --group g", "--bootstrap-server a:1 --list --topic g",
        "--validate-regex a.*b", "--validate-regex a(b", "--validate-regex a)b",
        "--validate-regex [a", "--validate-regex a**", "--validate-regex *a",
        "--validate-regex a\\", "--validate-regex [z-a]", "--validate-regex (?=a)",
        "--validate-regex a{1001}", "--validate-regex \\8",
        "--validate-regex (?P<n", "--validate-regex \\pX", "--validate-regex [[:no:]]",
    ):  # fmt: skip
        both.bare(f"consumer-groups {words}")


@pytest.mark.long
def test_what_is_refused(both: Both) -> None:
    fill(both)
    reset = "consumer-groups --reset-offsets --group g@"
    both(f"{reset} --to-latest", status=1)
    both(f"{reset} --topic t@", status=1)
    both(f"{reset} --topic t@ --to-offset x")
    both(f"{reset} --topic t@:x --to-latest", status=1)
    both(f"{reset} --topic t@:1:2 --to-latest", status=1)
    both("consumer-groups --reset-offsets --group new@ --topic t@ --shift-by 1", status=1)
    both("consumer-groups --list --state nope", status=1)
    both("consumer-groups --list --type share", status=1)
    both("consumer-groups --list --timeout x")
    both(f"{reset} --from-file nowhere", status=None)
    both("consumer-groups --delete-offsets --group g@ --topic a:b:c", status=1)


@pytest.mark.long
def test_all_groups(
    start_target: Callable[..., BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a broker without others' groups; nothing is changed until the last."""
    both = Both(start_target(), JavaScripts(), monkeypatch, 99)
    fill(both)
    both.marks = ("-none", "-none")  # the groups of both are looked at by both
    groups = "consumer-groups --all-groups"
    for what in ("--describe", "--describe --state", "--describe --members --verbose"):
        both(f"{groups} {what}")
    both(f"{groups} --reset-offsets --all-topics --to-latest --dry-run")
    both(f"{groups} --reset-offsets --all-topics --to-latest --export --dry-run")
    ours = both.ways[1]("kafka-consumer-groups", [*both.server, "--all-groups", "--delete"])
    assert "('g-j99', 'g-k99') was successful" in ours.out
    assert both(f"{groups} --describe").out == ""


@pytest.mark.long
def test_several_groups_at_once(both: Both, tmp_path: Path) -> None:
    """--export and --from-file with groups in the file; names that CSV has to quote."""
    fill(both, "a-topic-with-a-long-name@")
    reset = "consumer-groups --reset-offsets --group g@ --group h@"
    told = both(f"{reset} --topic a-topic-with-a-long-name@ --to-latest --export --execute").out
    assert told.count('"a-topic-with-a-long-name') == 4
    for mark in both.marks:
        (tmp_path / f"plan{mark}").write_text(told.replace(both.marks[1], mark))
    both(f"{reset} --from-file {tmp_path}/plan@ --execute")
    both("consumer-groups --describe --group g@ --group h@")
    both("consumer-groups --delete --group g@ --group h@")
