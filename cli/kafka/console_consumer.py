"""kafka-console-consumer: records of topics, a line each (ConsoleConsumer)."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kbroker.cli.kafka.formatter import Formatter, formatter_of
from kbroker.cli.kafka.options import (
    Given,
    OptionError,
    UsageError,
    check_required,
    flag,
    key_values,
    number,
    text,
)
from kbroker.cli.kafka.tool import Tool, client_settings, read_properties, say, start, warn

if TYPE_CHECKING:
    from kbroker.client.consumer import Consumer
    from kbroker.client.errors import KafkaError

_EARLIEST, _LATEST = -2, -1
_SLICE_S = 0.2  # of a wait, so that signals are heard
_MANY = 500
_TERMINATED = 143
_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_FORMATTER_HELP = (
    "How records are shown, KEY=VALUE: print.timestamp, print.key, print.offset, print.epoch,"
    " print.partition, print.headers, print.value (true|false), key.separator, line.separator,"
    " headers.separator, null.literal, key.deserializer, value.deserializer, headers.deserializer."
)

_OPTIONS = (
    text("topic", "TOPIC", "The topic to read; this or --include."),
    text("include", "REGEX", "An expression for the topics to read."),
    number("partition", "P", "Read this partition alone, without a group: from its end unless"
           " --offset says else."),
    text("offset", "OFFSET", "Where to begin in it: a number, earliest or latest.",
         default="latest"),
    text("consumer-property", "KEY=VALUE", "The old name of --command-property."),
    text("command-property", "KEY=VALUE", "A setting of the consumer; may be given again."),
    text("consumer.config", "FILE", "The old name of --command-config."),
    text("command-config", "FILE", "Settings of the consumer, as properties."),
    text("formatter", "CLASS", "Kafka's DefaultMessageFormatter, LoggingMessageFormatter or"
         " NoOpMessageFormatter; others are Java's.", default=_FORMATTER),
    text("property", "KEY=VALUE", "The old name of --formatter-property."),
    text("formatter-property", "KEY=VALUE", _FORMATTER_HELP),
    text("formatter-config", "FILE", "The same, as properties."),
    flag("from-beginning", "Where nothing is committed, begin with the first record."),
    number("max-messages", "N", "End after so many records."),
    number("timeout-ms", "MS", "End when no record came for so long.", bits=64),
    flag("skip-message-on-error", "Go on with the next record where one cannot be shown."),
    text("bootstrap-server", "HOST:PORT", "Required. Brokers to talk to."),
    text("key-deserializer", "CLASS", "How keys are read; Kafka's deserializers of plain types."),
    text("value-deserializer", "CLASS", "The same for values."),
    flag("enable-systest-events", "Print a line at the end."),
    text("isolation-level", "LEVEL", "read_committed leaves out what was not committed.",
         default="read_uncommitted"),
    text("group", "GROUP", "The group to read in."),
)  # fmt: skip


def main() -> int:
    """The entry point."""
    signal.signal(signal.SIGTERM, _terminated)
    return start(TOOL)


def _work(given: Given) -> int:
    _check(given)
    settings = _settings(given)
    begin = _offset(given)
    most, timeout_ms = given.integer("max-messages"), given.integer("timeout-ms")
    show = formatter_of(given)
    from kbroker.client.consumer import Consumer

    sys.stdout.flush()  # the records go to the buffer below
    run = _Run(show, -1 if most is None else most, given.has("skip-message-on-error"))
    try:
        with closing(Consumer(settings)) as consumer:  # which commits, however it ends
            _aim(consumer, given, begin)
            run.go(consumer, None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1e3)
    except SystemExit:
        return _TERMINATED
    finally:
        warn(f"Processed a total of {run.count} messages")
        if given.has("enable-systest-events"):
            say("shutdown_complete")
    return 0


def _terminated(*_: object) -> None:
    """SIGTERM: as an exception, so that the group is left in order."""
    raise SystemExit


class _Run:
    """Reading and showing until an end is reached. count: records shown."""

    def __init__(self, show: Formatter, most: int, skip: bool) -> None:
        self.show = show
        self.most = most
        self.skip = skip
        self.count = 0

    def go(self, consumer: Consumer, timeout_s: float | None) -> None:
        """Ends with --max-messages, --timeout-ms, an error of the client (which is told), or when
        nobody reads the output any more."""
        from kbroker.client.errors import KafkaError

        while self.count != self.most:
            wanted = _MANY if self.most < 0 else min(_MANY, self.most - self.count)
            try:
                records = _poll(consumer, wanted, timeout_s)
            except KafkaError as error:
                _tell(error)
                return
            if not records:
                warn("ERROR Error processing message, terminating consumer process: no record came"
                     " within --timeout-ms")  # fmt: skip
                return
            if not self._show_all(consumer, records):
                return

    def _show_all(self, consumer: Consumer, records: list[Any]) -> bool:
        """False where nobody reads the output."""
        out = sys.stdout.buffer
        shown = 0
        try:
            for record in records:
                self.count += 1
                shown += 1
                try:
                    line = self.show.line(record)
                except ValueError as error:
                    if not self.skip:
                        raise
                    warn(f"ERROR Error processing message, skipping this message: {error}")
                else:
                    out.write(line)
            out.flush()
        except BrokenPipeError:
            _back_to(consumer, records[shown:])
            warn("Unable to write to standard out, closing consumer.")
            return False
        except ValueError:
            _back_to(consumer, records[shown:])
            raise
        return True


def _poll(consumer: Consumer, wanted: int, timeout_s: float | None) -> list[Any]:
    """Records, or an empty list when timeout_s is over."""
    began = time.monotonic()
    while True:
        left_s = _SLICE_S
        if timeout_s is not None:
            left_s = min(_SLICE_S, max(timeout_s - (time.monotonic() - began), 0.0))
        records = consumer.poll(left_s, max_records=wanted)
        if records or (timeout_s is not None and time.monotonic() - began >= timeout_s):
            return records


def _back_to(consumer: Consumer, records: list[Any]) -> None:
    """To the first of these in each partition, so that closing commits nothing of them."""
    first: dict[tuple[str, int], int] = {}
    for record in records:
        first.setdefault((record.topic, record.partition), record.offset)
    for where, offset in first.items():
        consumer.seek(where, offset)


def _tell(error: KafkaError) -> None:
    warn(f"ERROR Error processing message, terminating consumer process: {error}")


def _aim(consumer: Consumer, given: Given, begin: int) -> None:
    topic, partition = given.value("topic"), given.integer("partition")
    if topic is None:
        consumer.subscribe(re.compile(given.needed("include")))
    elif partition is None:
        consumer.subscribe([topic])
    else:
        where = (topic, partition)
        consumer.assign([where])
        if begin == _EARLIEST:
            consumer.seek_to_beginning([where])
        elif begin == _LATEST:
            consumer.seek_to_end([where])
        else:
            consumer.seek(where, begin)


def _failed(given: Given, error: Exception) -> int:
    del given
    if isinstance(error, OptionError):
        raise UsageError(str(error)) from None
    from kbroker.client.errors import KafkaError

    before = "ERROR Unknown error when running consumer: " if isinstance(error, KafkaError) else ""
    warn(f"{before}{error}")
    return 1


def _check(given: Given) -> None:
    if given.has("topic") == given.has("include"):
        raise UsageError("Exactly one of the following arguments is required: [topic], [include]")
    if given.has("partition"):
        if not given.has("topic"):
            raise UsageError("The topic is required when partition is specified.")
        if given.has("from-beginning") and given.has("offset"):
            raise UsageError("Options from-beginning and offset cannot be specified together.")
    elif given.has("offset"):
        raise UsageError("The partition is required when offset is specified.")
    check_required(given, "bootstrap-server")
    olds = (("consumer-property", "command-property"), ("consumer.config", "command-config"))
    for old, new in olds:
        if given.has(old) and given.has(new):
            raise UsageError(f"Options --{old} and --{new} cannot be specified together.")
    for old, new in olds:
        if given.has(old):
            say(f"Option --{old} is deprecated and will be removed in a future version. Use"
                f" --{new} instead.")  # fmt: skip


def _settings(given: Given) -> dict[str, Any]:
    """The consumer's settings: of a file, of single ones, of options."""
    from kbroker.client.config_consumer import ConsumerConfig

    file = read_properties(given.value("consumer.config") or given.value("command-config"))
    single = key_values(given.values("consumer-property") + given.values("command-property"))
    told = (*given.values("group"), file.get("group.id"), single.get("group.id"))
    groups = sorted({group for group in told if group is not None})
    if len(groups) > 1:
        names = ", ".join(f"'{group}'" for group in groups)
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via"
            " '--consumer-property', or via '--consumer.config') do not match. Detected group"
            f" ids: {names}"
        )
    if groups and given.has("partition"):
        raise UsageError("Options group and partition cannot be specified together.")
    found = file | single
    begin = found.setdefault(
        "auto.offset.reset", "earliest" if given.has("from-beginning") else "latest"
    )
    if given.has("from-beginning") and begin != "earliest":
        raise ValueError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={begin}', please"
            " remove one option"
        )
    found["bootstrap.servers"] = given.needed("bootstrap-server")
    found.setdefault("client.id", "console-consumer")
    if given.has("isolation-level") or "isolation.level" not in found:
        found["isolation.level"] = given.needed("isolation-level")
    if not groups:
        found.setdefault("enable.auto.commit", "false")
    found["group.id"] = groups[0] if groups else f"console-consumer-{random.randrange(100_000)}"
    for name in ("key.deserializer", "value.deserializer"):  # the formatter has its own
        found.pop(name, None)
    return dict(client_settings(ConsumerConfig, found))


def _offset(given: Given) -> int:
    """--offset as ListOffsets numbers it; without, the end or with --from-beginning the start."""
    if not given.has("offset"):
        return _EARLIEST if given.has("from-beginning") else _LATEST
    told = given.needed("offset")
    known = {"earliest": _EARLIEST, "latest": _LATEST}
    if told.lower() in known:
        return known[told.lower()]
    if re.fullmatch(r"\+?[0-9]{1,19}", told, re.ASCII) and int(told) < 1 << 63:
        return int(told)
    raise UsageError(
        f"The provided offset value '{told}' is incorrect. Valid values are 'earliest', 'latest',"
        " or a non-negative long."
    )


TOOL = Tool("Print records of topics.", _OPTIONS, _work, _failed)
