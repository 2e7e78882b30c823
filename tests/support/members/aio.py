"""A member on aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError

from tests.support.members.history import Writer, member_options, next_offsets, stop_flag

ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


class Committer:
    """Commits beside the reading, one at a time and each the latest there is. aiokafka sends what
    waits for a connection in any order, and in the generation of then: offsets of long ago, of
    partitions that have become another member's."""

    def __init__(self, commit: Callable[[dict[int, int]], Awaitable[None]]) -> None:
        self._commit = commit
        self._next: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, following: dict[int, int]) -> None:
        self._next.update(following)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._next:
            following, self._next = self._next, {}
            await self._commit(following)

    def drop(self) -> None:
        """What is not sent yet never is: the partitions are others' from now on."""
        self._next = {}
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def finish(self, timeout_s: float) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Writes down what is given and taken."""

    def __init__(self, history: Writer, committer: Committer) -> None:
        self.history, self.committer = history, committer

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.history.partitions("assigned", [part.partition for part in assigned])

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.committer.drop()
        self.history.partitions("revoked", [part.partition for part in revoked])


async def start(options: Any, listener: Listener) -> AIOKafkaConsumer:
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
        consumer.subscribe([options.topic], listener=listener)
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

    async def commit(following: dict[int, int]) -> None:
        parts = {TopicPartition(options.topic, at): offset for at, offset in following.items()}
        try:
            await consumer.commit(parts)
        except KafkaError as error:
            history.line("refused", type(error).__name__)
        else:
            history.committed(following)

    committer = Committer(commit)
    consumer = await start(options, Listener(history, committer))
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
            committer.add(next_offsets(records))
    await committer.finish(5)
    with contextlib.suppress(asyncio.CancelledError):  # of a fetch that found no broker
        await consumer.stop()
    history.line("left")
    return 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(asyncio.run(run()))
