"""A member on kbroker's own client."""

from __future__ import annotations

import sys
from typing import Any

from kbroker.client.consumer import Consumer
from kbroker.client.errors import KafkaError
from kbroker.client.group import RebalanceListener
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from tests.support.members.history import Writer, member_options, next_offsets, stop_flag


def settings(options: Any) -> dict[str, Any]:
    """The client's configuration: timers short."""
    found = {
        "bootstrap.servers": options.bootstrap, "group.id": options.group,
        "client.id": options.client_id, "auto.offset.reset": "earliest",
        "enable.auto.commit": options.commit == "auto", "auto.commit.interval.ms": 200,
        "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20,
        "request.timeout.ms": 10_000, "fetch.max.wait.ms": 100, "max.poll.records": 200,
    }  # fmt: skip
    if options.instance:
        found["group.instance.id"] = options.instance
    if options.consumer_protocol:
        found["group.protocol"] = "consumer"
        if options.assignor != "range":
            found["group.remote.assignor"] = options.assignor
    else:
        found["partition.assignment.strategy"] = [options.assignor]
        found["session.timeout.ms"] = options.session_ms
        found["heartbeat.interval.ms"] = 500
    return found


class Told(RebalanceListener):
    """Writes down what the member is told. `latest`: what of its partitions is to be committed."""

    def __init__(self, history: Writer, latest: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.history, self.latest = history, latest

    def on_assigned(self, partitions: Any) -> None:
        self._told("assigned", partitions)

    def on_revoked(self, partitions: Any) -> None:
        self._told("revoked", partitions)

    def on_lost(self, partitions: Any) -> None:
        self._told("lost", partitions)


    def _told(self, event: str, partitions: Any) -> None:
        self.history.partitions(event, [index for _, index in partitions])
        for partition in partitions:
            self.latest.pop(partition, None)


class Committed:
    """An interceptor that writes down what was committed."""

    def __init__(self, history: Writer) -> None:
        self.history = history

    def on_commit(self, offsets: Any) -> None:
        told = {index: int(next_one.offset) for (_, index), next_one in offsets.items()}
        self.history.committed(told)


def main() -> int:
    """Reads until told to leave."""
    options = member_options()
    stopping, history = stop_flag(), Writer(options.history)
    latest: dict[TopicPartition, OffsetAndMetadata] = {}
    refused: list[KafkaError] = []  # after the last record, nobody else would commit for it again

    def answered(_: Any, error: KafkaError | None) -> None:
        if error is not None:
            history.line("refused", error)
            refused.append(error)

    consumer = Consumer(settings(options) | {"interceptor.classes": [Committed(history)]})
    consumer.subscribe([options.topic], Told(history, latest))
    while not stopping:
        records = consumer.poll(0.05)
        seen = [(record.partition, record.offset) for record in records]
        history.seen(seen)
        if options.commit == "auto" or not (records or refused):
            continue
        latest.update(
            (TopicPartition(options.topic, index), OffsetAndMetadata(offset))
            for index, offset in next_offsets(seen).items()
        )
        following = {one: latest[one] for one in latest if refused or one[1] in dict(seen)}
        refused.clear()
        if not following:
            continue
        try:
            if options.commit == "sync":
                consumer.commit(following)
            else:
                consumer.commit_async(following, answered)
        except KafkaError as error:
            answered(following, error)
    consumer.close()
    history.line("left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
