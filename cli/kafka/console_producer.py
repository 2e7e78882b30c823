"""kafka-console-producer: lines of standard input become records (ConsoleProducer)."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING, Any

from kbroker.cli.kafka.lines import LineReader
from kbroker.cli.kafka.options import (
    Given,
    UsageError,
    check_required,
    flag,
    key_values,
    number,
    text,
)
from kbroker.cli.kafka.tool import Tool, client_settings, read_properties, say, start, warn

if TYPE_CHECKING:
    from kbroker.client.producer import Delivery, Producer

_LINE_READER = "org.apache.kafka.tools.LineMessageReader"
_ADDRESS = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)]?:([0-9]+)")
_READER_HELP = (
    "How lines are read, KEY=VALUE: parse.key, parse.headers, ignore.error (all false),"
    " key.separator (tab), headers.delimiter (tab), headers.separator (,), headers.key.separator"
    " (:), null.marker (none). A line is HEADERS DELIMITER KEY SEPARATOR VALUE."
)

# Options that stand for settings of the producer; with their defaults they count only where the
# setting is not given.
_SETTINGS = {
    "timeout": "linger.ms",
    "request-required-acks": "acks",
    "request-timeout-ms": "request.timeout.ms",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "socket-buffer-size": "send.buffer.bytes",
    "max-memory-bytes": "buffer.memory",
    "batch-size": "batch.size",
    "max-partition-memory-bytes": "batch.size",
    "metadata-expiry-ms": "metadata.max.age.ms",
    "max-block-ms": "max.block.ms",
}
# Old name, new name, when the old one goes.
_OLD = (
    ("producer-property", "command-property", "a future version"),
    ("producer.config", "command-config", "a future version"),
    ("property", "reader-property", "a future version"),
    ("max-partition-memory-bytes", "batch-size", "Apache Kafka 5.0"),
)

_OPTIONS = (
    text("topic", "TOPIC", "Required. The topic to send to."),
    text("bootstrap-server", "HOST:PORT", "Required. Brokers to talk to."),
    flag("sync", "Wait for each record before the next is sent."),
    text("compression-codec", "CODEC", "none, gzip, snappy, lz4 or zstd; gzip without a value.",
         optional=True),
    number("batch-size", "BYTES", "A partition's batch is sent when it is so large.",
           default=16384),
    number("message-send-max-retries", "N", "How often a failed request is sent again.", default=3),
    number("retry-backoff-ms", "MS", "The first pause before that.", bits=64, default=100),
    number("timeout", "MS", "How long a batch that is not full waits for more.", bits=64,
           default=1000),
    text("request-required-acks", "ACKS", "Who must have a record: all (-1), the leader (1),"
         " nobody (0).", default="-1"),
    number("request-timeout-ms", "MS", "How long an answer may take.", default=1500),
    number("metadata-expiry-ms", "MS", "Metadata older than this is asked for again.", bits=64,
           default=300_000),
    number("max-block-ms", "MS", "How long sending may wait for memory or metadata.", bits=64,
           default=60_000),
    number("max-memory-bytes", "BYTES", "Memory for records that wait.", bits=64,
           default=33_554_432),
    number("max-partition-memory-bytes", "BYTES", "The old name of --batch-size.", default=16384),
    text("line-reader", "CLASS", "Only Kafka's own; others are Java's.", default=_LINE_READER),
    number("socket-buffer-size", "BYTES", "SO_SNDBUF.", default=102_400),
    text("property", "KEY=VALUE", "The old name of --reader-property."),
    text("reader-property", "KEY=VALUE", _READER_HELP),
    text("reader-config", "FILE", "The same, as properties."),
    text("producer-property", "KEY=VALUE", "The old name of --command-property."),
    text("command-property", "KEY=VALUE", "A setting of the producer; may be given again."),
    text("producer.config", "FILE", "The old name of --command-config."),
    text("command-config", "FILE", "Settings of the producer, as properties."),
)  # fmt: skip


def main() -> int:
    """The entry point."""
    return start(TOOL)


def _work(given: Given) -> int:
    _check(given)
    if given.value("line-reader") != _LINE_READER:
        raise ValueError(f"--line-reader {given.value('line-reader')}: a class of Java's cannot run"
                         " here")  # fmt: skip
    topic = given.needed("topic")
    told = read_properties(given.value("reader-config"))
    told |= key_values(given.values("reader-property") + given.values("property"))
    reader = LineReader(told)
    settings = _settings(given)
    from kbroker.client.producer import Producer

    with Producer(settings) as producer:
        _send_all(producer, topic, reader, given.has("sync"))
    return 0


def _send_all(producer: Producer, topic: str, reader: LineReader, sync: bool) -> None:
    prompts = sys.stdin.isatty() and sys.stdout.isatty()
    source = io.TextIOWrapper(sys.stdin.buffer, "utf-8", "replace", newline=None)
    number = 0
    while True:
        number += 1
        if prompts:
            say(">", end="")
            sys.stdout.flush()
        line = source.readline()
        if not line:
            return
        key, value, headers = reader.parse(line.removesuffix("\n"), number)
        if sync:
            producer.send(topic, value, key, headers=headers).result()
            continue
        try:
            producer.send(topic, value, key, headers=headers, on_delivery=_tell)
        except Exception as error:  # the next may do better
            _tell_error(error, topic, key, value)


def _tell(delivery: Delivery) -> None:
    error = delivery.exception()
    if error is not None:
        warn(f"ERROR Error when sending message: {error}")


def _tell_error(error: Exception, topic: str, key: bytes | None, value: bytes | None) -> None:
    from kbroker.cli.kafka.tool import is_failure

    if not is_failure(error):
        raise error

    def size(data: bytes | None) -> str:
        return "null" if data is None else f"{len(data)} bytes"

    warn(f"ERROR Error when sending message to topic {topic} with key: {size(key)}, value:"
         f" {size(value)} with error: {error}")  # fmt: skip


def _failed(given: Given, error: Exception) -> int:
    del given
    warn(str(error))
    return 1


def _check(given: Given) -> None:
    check_required(given, "topic")
    for old, new, _ in _OLD[:3]:
        if given.has(old) and given.has(new):
            raise UsageError(f"Options --{new} and --{old} cannot be specified together.")
    for old, new, when in _OLD:
        if given.has(old):
            say(f"Warning: --{old} is deprecated and will be removed in {when}. Use --{new}"
                " instead.")  # fmt: skip
    server = given.value("bootstrap-server")
    if server is None or not server.strip():
        raise UsageError("Error while validating the bootstrap address\n")
    if not all(map(_ADDRESS.fullmatch, server.rstrip(",").split(","))):
        raise UsageError("Please provide valid host:port like host1:9091,host2:9092\n")


def _settings(given: Given) -> dict[str, Any]:
    """The producer's settings: of a file, of single ones, of options."""
    from kbroker.client.config_producer import ProducerConfig

    found = read_properties(given.value("producer.config") or given.value("command-config"))
    found |= key_values(given.values("producer-property") + given.values("command-property"))
    found |= {"bootstrap.servers": given.needed("bootstrap-server"), "compression.type": "none"}
    if given.has("compression-codec"):
        found["compression.type"] = given.value("compression-codec") or "gzip"
    found.setdefault("client.id", "console-producer")
    for name, setting in _SETTINGS.items():
        if given.has(name) or setting not in found:
            option = given.table[name]
            value = given.integer(name) if option.bits else given.value(name)
            found[setting] = str(value)
    for name in ("key.serializer", "value.serializer"):  # records are bytes
        found.pop(name, None)
    return dict(client_settings(ProducerConfig, found))


TOOL = Tool(
    "Send the lines of standard input to a topic.", _OPTIONS, _work, _failed
)
