"""A member on librdkafka, through confluent-kafka. Of a fatal error stderr tells."""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.members.history import Writer, member_options, next_offsets, stop_flag


def settings(options: Any) -> dict[str, Any]:
    """The client's configuration: timers short, nothing committed that was not stored."""
    found = {
        "bootstrap.servers": options.bootstrap, "group.id": options.group,
        "client.id": options.client_id, "auto.offset.reset": "earliest",
        "enable.auto.commit": options.commit == "auto", "auto.commit.interval.ms": 200,
        "enable.auto.offset.store": False, "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "socket.timeout.ms": 10_000,
        "fetch.wait.max.ms": 100, "log_level": 0,
    }  # fmt: skip
    if options.instance:
        found["group.instance.id"] = options.instance
    if options.consumer_protocol:
        found["group.protocol"] = "consumer"
        if options.assignor != "range":
            found["group.remote.assignor"] = options.assignor
    else:
        found["partition.assignment.strategy"] = options.assignor
        found["session.timeout.ms"] = options.session_ms
        found["heartbeat.interval.ms"] = 500
    return found


def main() -> int:
    """Reads until told to leave."""
    options = member_options()
    stopping, history = stop_flag(), Writer(options.history)

    def told(error: Any, offsets: Any) -> None:
        if error is not None:
            history.line("refused", error.name())
            return
        for part in offsets:
            if part.error is not None:
                history.line("refused", part.error.name())
            elif part.offset >= 0:
                history.committed({part.partition: part.offset})

    def event(name: str) -> Any:
        return lambda _, parts: history.partitions(name, [part.partition for part in parts])

    consumer = Consumer(settings(options) | {"on_commit": told})
    consumer.subscribe(
        [options.topic], on_assign=event("assigned"), on_revoke=event("revoked"),
        on_lost=event("lost"),
    )  # fmt: skip
    while not stopping:
        messages = consumer.consume(200, timeout=0.05)
        records = [(m.partition(), m.offset()) for m in messages if m.error() is None]
        if not records:
            continue
        history.seen(records)
        following = [
            TopicPartition(options.topic, index, offset)
            for index, offset in next_offsets(records).items()
        ]
        try:
            if options.commit == "auto":
                consumer.store_offsets(offsets=following)
            else:
                consumer.commit(offsets=following, asynchronous=options.commit == "async")
        except KafkaException as error:
            history.line("refused", error.args[0].name())
    consumer.close()
    history.line("left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
