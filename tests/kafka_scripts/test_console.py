"""kafka-console-producer and kafka-console-consumer beside Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_scripts.conftest import Both

PRINT_ALL = (
    "--formatter-property print.timestamp=true --formatter-property print.key=true"
    " --formatter-property print.offset=true --formatter-property print.partition=true"
    " --formatter-property print.headers=true --formatter-property print.epoch=true"
)
READ = "console-consumer --topic t@ --from-beginning --timeout-ms 8000"


def test_records_of_every_kind(both: Both, tmp_path: Path) -> None:
    both("topics --create --topic t@ --partitions 1")
    produce = "console-producer --topic t@"
    both(produce, stdin="plain\n\nzwei: ü\r\nlast without an end")
    keyed = f"{produce} --reader-property parse.key=true"
    both(keyed, stdin="k\tv\n\tno key\nk2\t\n")
    both(f"{keyed} --reader-property key.separator=: --reader-property null.marker=NULL",
         stdin="NULL:v\nk:NULL\na:b:c\n")  # fmt: skip
    both(f"{keyed} --reader-property parse.headers=true --sync --timeout 5"
         " --reader-property null.marker=N",
         stdin="h:1,g:2\tkey\tvalue\nx:\tkey\tvalue\ny:N\tN\tN\nN\tkey\tvalue\n")  # fmt: skip
    both(keyed, stdin="good\tone\nbad\nnever\tsent\n", status=1)
    both(f"{keyed} --reader-property ignore.error=true", stdin="no separator\n")
    (tmp_path / "reader").write_text("parse.key=true\nkey.separator=#\n")
    both(f"{produce} --reader-config {tmp_path}/reader --compression-codec"
         " --command-property linger.ms=5 --request-required-acks 1", stdin="k#gzip\n")  # fmt: skip
    both(f"{produce} --property parse.key=false --producer-property acks=all --batch-size 999",
         stdin="deprecated\n")  # fmt: skip
    both(f"{READ} --max-messages 18 {PRINT_ALL}")
    both("console-consumer --topic t@ --partition 0 --offset 3 --max-messages 2"
         " --formatter-property print.offset=true --formatter-property key.separator=|"
         " --timeout-ms 8000")  # fmt: skip
    both(f"{READ} --max-messages 2 --property print.key=true --property null.literal=-"
         " --property line.separator=; --property print.value=false")  # fmt: skip
    both(f"{READ} --partition 0 --max-messages 1")
    both("console-consumer --include t@|nope --from-beginning --timeout-ms 700"
         " --isolation-level read_committed")  # fmt: skip


def test_groups_go_on_where_they_were(both: Both) -> None:
    both("topics --create --topic t@ --partitions 1")
    both("console-producer --topic t@", stdin="a\nb\nc\nd\n")
    assert both(f"{READ} --group g@ --max-messages 3").out == "a\nb\nc\n"
    assert both(f"{READ} --group g@ --max-messages 1").out == "d\n"


def test_command_lines(both: Both, tmp_path: Path) -> None:
    """No broker is needed for these."""
    server = "--bootstrap-server a:1"
    for words in (
        "", "--help", "--version", "--topic t", "--topic t --bootstrap-server a", "--topic",
        f"--topic t {server} --command-property a=b --producer-property a=b",
        f"--topic t {server} --property a=b --reader-property a=b",
        f"--topic t {server} --command-config a --producer.config b", f"{server} --nope",
    ):  # fmt: skip
        both.bare(f"console-producer {words}")
    for words in (
        "", "--help", "--version", "--topic t", server, f"{server} --topic t --include t",
        f"{server} --include t --partition 0", f"{server} --topic t --offset 0",
        f"{server} --topic t --partition 0 --offset -1",
        f"{server} --topic t --partition 0 --offset x",
        f"{server} --topic t --partition 0 --group g",
        f"{server} --topic t --partition 0 --offset 1 --from-beginning",
        f"{server} --topic t --group g --command-property group.id=h",
        f"{server} --topic t --from-beginning --command-property auto.offset.reset=latest",
        f"{server} --topic t --consumer-property a=b --command-property a=b",
        f"{server} --topic t --property a=b --formatter-property a=b",
    ):  # fmt: skip
        both.bare(f"console-consumer {words}")


@pytest.mark.parametrize(
    "words",
    [
        "console-producer --topic t --line-reader com.example.Reader",
        "console-consumer --topic t --formatter com.example.Formatter",
        "console-consumer --topic t --formatter"
        " org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
        "console-consumer --topic t --key-deserializer com.example.Deserializer",
        "console-consumer --topic t --formatter-property value.deserializer=example.D",
        "console-consumer --topic t --command-property interceptor.classes=example.I",
    ],
)
def test_what_only_a_jvm_could_serve_is_named(both: Both, words: str) -> None:
    tool, *told = words.split()
    ended = both.ways[1](f"kafka-{tool}", ["--bootstrap-server", "a:1", *told])
    assert ended.status == 1
    assert words.rpartition("=")[2].split()[-1] in ended.err


@pytest.mark.long
def test_deserializers(both: Both) -> None:
    """Bytes as numbers, in Java's way of writing these."""
    both("topics --create --topic t@ --partitions 1")
    both("console-producer --topic t@", stdin="12345678\n@@@@@@@@\nAAAAAAAA\n?\x01234567\n")
    for name in ("String", "Long", "Double", "Bytes"):
        both(f"{READ} --max-messages 4 --value-deserializer"
             f" org.apache.kafka.common.serialization.{name}Deserializer")  # fmt: skip
    both(f"{READ} --max-messages 4 --skip-message-on-error --value-deserializer"
         " org.apache.kafka.common.serialization.IntegerDeserializer")  # fmt: skip
    both(f"{READ} --max-messages 4 --value-deserializer"
         " org.apache.kafka.common.serialization.IntegerDeserializer", status=1)  # fmt: skip
    both(f"{READ} --max-messages 2 --formatter"
         " org.apache.kafka.tools.consumer.NoOpMessageFormatter")  # fmt: skip
    both(f"{READ} --max-messages 2 --formatter"
         " org.apache.kafka.tools.consumer.LoggingMessageFormatter")  # fmt: skip
    both("console-producer --topic t@ --command-property max.request.size=100", stdin="x" * 500)
    both("console-producer --topic t@ --sync --command-property max.request.size=100",
         stdin="x" * 500, status=1)  # fmt: skip
    both(f"{READ} --group g@ --command-property group.protocol=consumer --max-messages 2")
    both("console-consumer --topic t@ --from-beginning --timeout-ms 3000 --enable-systest-events")
