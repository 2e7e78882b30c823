"""A member on aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError

from tests.support.members.history import Writer, member_options, next_offsets, stop_flag

ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Writes down what is given and taken."""

    def __init__(self, history: Writer) -> None:
        self.history = history

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.history.partitions("assigned", [part.partition for part in assigned])

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.history.partitions("revoked", [part.partition for part in revoked])


async def start(options: Any, history: Writer) -> AIOKafkaConsumer:
    """A consumer that has found the broker; one that is away is tried again."""
    while True:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap, group_id=options.group,
            client_id=options.client_id, auto_offset_reset="earliest",
            enable_auto_commit=options.commit == "auto", auto_commit_interval_ms=200,
            session_timeout_ms=options.session_ms, heartbeat_interval_ms=500,
            group_instance_id=options.instance, fetch_max_wait_ms=100,
            retry_backoff_ms=20, request_timeout_ms=10_000,
            partition_assignment_strategy=(ASSIGNORS[options.assignor],),
        )  # fmt: skip
        consumer.subscribe([options.topic], listener=Listener(history))
        try:
            await consumer.start()
        except KafkaConnectionError:
            await consumer.stop()
            await asyncio.sleep(0.1)
        else:
            return consumer


async def run() -> int:
    """Reads until told to leave."""
    options = member_options()
    stopping, history = stop_flag(), Writer(options.history)
    consumer = await start(options, history)
    tasks: set[asyncio.Task[None]] = set()

    async def commit(following: dict[int, int]) -> None:
        parts = {TopicPartition(options.topic, at): offset for at, offset in following.items()}
        try:
            await consumer.commit(parts)
        except KafkaError as error:
            history.line("refused", type(error).__name__)
        else:
            history.committed(following)

    while not stopping:
        try:
            polled = await consumer.getmany(timeout_ms=50, max_records=200)
        except KafkaError as error:
            history.line("refused", type(error).__name__)
            continue
        records = [(r.partition, r.offset) for batch in polled.values() for r in batch]
        if not records:
            continue
        history.seen(records)
        if options.commit == "sync":
            await commit(next_offsets(records))
        elif options.commit == "async":
            task = asyncio.create_task(commit(next_offsets(records)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks, timeout=5)
    with contextlib.suppress(asyncio.CancelledError):  # of a fetch that found no broker
        await consumer.stop()
    history.line("left")
    return 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(asyncio.run(run()))
