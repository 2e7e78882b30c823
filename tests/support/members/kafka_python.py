"""A member on kafka-python.

Without a rebalance listener: with one, kafka-python 3.0.0 marks what it has as being revoked before
an eager rebalance, and never fetches again what it then keeps. It polls long: where a poll ends
while the member joins, 3.0.0 never sends a heartbeat again ("timeout in ensure_active_group"). It
takes frames larger than its own fetch: of less, its default, it closes the connection and asks
again for ever, and keeps 20 GB of what it tried.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.support.members.history import Writer, member_options, next_offsets, stop_flag

POLL_MS = 1000

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def tell_changes(history: Writer, had: set[int], now: set[int]) -> set[int]:
    """Writes down what was given and taken since."""
    if had - now:
        history.partitions("revoked", had - now)
    if now - had:
        history.partitions("assigned", now - had)
    return now


def main() -> int:
    """Reads until told to leave."""
    logging.disable(logging.CRITICAL)
    options = member_options()
    stopping, history = stop_flag(), Writer(options.history)
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap, group_id=options.group, client_id=options.client_id,
        auto_offset_reset="earliest", enable_auto_commit=options.commit == "auto",
        auto_commit_interval_ms=200, session_timeout_ms=options.session_ms,
        heartbeat_interval_ms=500, group_instance_id=options.instance, fetch_max_wait_ms=100,
        reconnect_backoff_ms=20, reconnect_backoff_max_ms=200, retry_backoff_ms=20,
        request_timeout_ms=10_000, receive_message_max_bytes=64 << 20,
        partition_assignment_strategy=[ASSIGNORS[options.assignor]],
    )  # fmt: skip
    consumer.subscribe([options.topic])
    owned: set[int] = set()
    while not stopping:
        try:
            polled = consumer.poll(timeout_ms=POLL_MS, max_records=200)
        except KafkaError as error:
            history.line("refused", type(error).__name__)
            continue
        now = {part.partition for part in consumer.assignment()}
        owned = tell_changes(history, owned, now)
        records = [(r.partition, r.offset) for batch in polled.values() for r in batch]
        if not records:
            continue
        history.seen(records)
        commit(consumer, options, history, next_offsets(records))
    consumer.close()
    history.line("left")
    return 0


def commit(consumer: Any, options: Any, history: Writer, following: dict[int, int]) -> None:
    """In the way of --commit; a refusal is written down and the reading goes on."""
    offsets = {
        TopicPartition(options.topic, index): OffsetAndMetadata(offset, "", -1)
        for index, offset in following.items()
    }

    def told(_: Any, answer: Any) -> None:
        if isinstance(answer, Exception):
            history.line("refused", type(answer).__name__)
        else:
            history.committed(following)

    if options.commit == "async":
        consumer.commit_async(offsets, callback=told)
    elif options.commit == "sync":
        try:
            consumer.commit(offsets, timeout_ms=5000)
        except KafkaError as error:
            history.line("refused", type(error).__name__)
        else:
            history.committed(following)


if __name__ == "__main__":
    sys.exit(main())
