"""kafka-configs beside Kafka's."""

from __future__ import annotations

from pathlib import Path

from tests.kafka_scripts.conftest import Both


def test_settings_of_topics_brokers_groups_and_metrics(both: Both, tmp_path: Path) -> None:
    both("topics --create --topic t@ --config retention.ms=1000000")
    (tmp_path / "more").write_text("# some\nsegment.bytes = 1048577\nflush.ms: 9\n")
    topic = "configs --entity-type topics --entity-name t@"
    both(f"{topic} --describe")
    both(f"{topic} --alter --add-config cleanup.policy=[compact,delete],max.message.bytes=77777")
    both(f"{topic} --alter --add-config-file {tmp_path}/more --delete-config retention.ms")
    both("configs --topic t@ --describe")
    both(f"{topic} --alter --delete-config nope", status=None)
    both(f"{topic} --alter --add-config nope=1", status=1)
    both(f"{topic} --alter --add-config retention.ms", status=1)
    both("configs --describe --topic none@")
    both("configs --alter --topic none@ --add-config retention.ms=1", status=1)
    broker = "configs --entity-type brokers"
    both(f"{broker} --entity-name 1 --alter --add-config log.cleaner.threads=1")
    both(f"{broker} --entity-default --alter --add-config message.max.bytes=1048599")
    both(f"{broker} --describe")
    both(f"{broker} --entity-name 1 --describe")
    both(f"{broker} --entity-default --describe")
    both("configs --broker 1 --alter --delete-config log.cleaner.threads", status=None)
    both("configs --broker-defaults --alter --delete-config message.max.bytes", status=None)
    both(f"{broker} --entity-name 77 --describe")
    group = "configs --entity-type groups --entity-name g@"
    both(f"{group} --alter --add-config consumer.session.timeout.ms=7000")
    both(f"{group} --describe")
    both(f"{group} --alter --delete-config consumer.session.timeout.ms")
    both("configs --describe --group none@")


def test_all_settings(both: Both) -> None:
    """With defaults, and with where each could come from."""
    both("topics --create --topic t@ --config retention.ms=1000000")
    both("configs --describe --all --topic t@")


def test_command_lines(both: Both) -> None:
    """No broker is needed for these."""
    server = "--bootstrap-server a:1"
    for words in (
        "", "--help", "--version", "--describe", "--describe --alter", f"--describe {server}",
        f"--describe {server} --entity-type nope", f"--describe {server} --add-config a=b",
        f"--describe {server} --entity-type topics --entity-type users",
        f"--describe {server} --entity-type topics --entity-type topics",
        f"--describe {server} --entity-type topics --topic t",
        f"--describe {server} --entity-type brokers --entity-name x",
        f"--describe {server} --entity-type topics --entity-default",
        f"--alter {server} --entity-type topics --add-config a=b",
        f"--alter {server} --entity-type users --add-config a=b",
        f"--alter {server} --topic t", f"--alter {server} --entity-type topics --entity-name",
        f"--alter {server} --topic t --add-config a=b --add-config-file c",
        f"--describe {server} --bootstrap-controller b:1 --topic t",
        f"--describe {server} --entity-type broker-loggers",
    ):  # fmt: skip
        both.bare(f"configs {words}")
