"""A group of three consumers shares the flights; one is killed on the way and nothing is lost.

What was read is told by the readers themselves (`reader.py`) and kept here, outside of the broker:
each record of the topic has to be told of by somebody, as it was produced. A record may come twice:
what the killed one had read but not committed is read again by who takes over (at least once).
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

GROUP = "flight-readers"
READERS = ("amelia", "bessie", "charles")
#: The reader that is ahead is killed when so much of the topic was read.
KILL_AT = 0.25
TIMEOUT_S = 60.0


class LostError(Exception):
    """A record was not told of, or not as it was produced."""


class Reader:
    """A reader's process and what it has told."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.name = name
        self.flights = 0
        self._rest = b""
        program = str(Path(__file__).with_name("reader.py"))
        self.process = subprocess.Popen(
            [sys.executable, "-P", program, bootstrap, topic, GROUP, name], stdout=subprocess.PIPE
        )

    def lines(self) -> list[str] | None:
        """The whole lines that have come; None at the end."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        whole, _, self._rest = (self._rest + data).rpartition(b"\n")
        return whole.decode().splitlines() if data else None


class Sharing:
    """The group under way. Its readers join at once, and read on as far as their pipes take it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.expected: Mapping[int, Mapping[int, int]] = {}
        self.total = 0
        self.seen: set[tuple[int, int]] = set()
        self.repeated = 0
        self.killed_at: float | None = None
        self.taken_over_s = 0.0
        self.victim = ""
        self.selector = selectors.DefaultSelector()
        self.readers = [Reader(bootstrap, topic, name) for name in READERS]
        for reader in self.readers:
            self.selector.register(reader.process.stdout, selectors.EVENT_READ, reader)

    def run(
        self, expected: Mapping[int, Mapping[int, int]], progress: Callable[[int], None]
    ) -> None:
        """Reads what the readers tell until every record was told of, then lets them leave.

        expected: partition -> offset -> CRC-32 of what was produced there.
        """
        self.expected, self.total = expected, sum(map(len, expected.values()))
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(self.seen) < self.total or self.killed_at is None:
                self._turn(1.0)
                progress(len(self.seen))
                if time.monotonic() > deadline:
                    missing = self.total - len(self.seen)
                    raise LostError(f"{missing:,} flights were read by nobody in {TIMEOUT_S:.0f} s")
            for reader in self.readers:
                reader.process.terminate()
            while self.selector.get_map():
                self._turn(None)
        finally:
            self.end()

    def end(self) -> None:
        """Nobody is left running."""
        for reader in self.readers:
            reader.process.kill()
            reader.process.wait()

    def _turn(self, timeout_s: float | None) -> None:
        for key, _ in self.selector.select(timeout_s):
            reader: Reader = key.data
            lines = reader.lines()
            if lines is None:
                self.selector.unregister(key.fileobj)
            for line in lines or ():
                self._told(reader, line)

    def _told(self, reader: Reader, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "assigned":
            if self.killed_at is not None and not self.taken_over_s:
                self.taken_over_s = time.monotonic() - self.killed_at
            return
        partition, first, *sums = map(int, rest.split())
        for offset, crc in enumerate(sums, first):
            if self.expected[partition].get(offset) != crc:
                raise LostError(f"{reader.name} read something else at {partition}:{offset}")
            self.repeated += (partition, offset) in self.seen
            self.seen.add((partition, offset))
        reader.flights += len(sums)
        if self.killed_at is None and len(self.seen) > KILL_AT * self.total:
            ahead = max(self.readers, key=lambda other: other.flights)
            self.killed_at = time.monotonic()
            self.victim = ahead.name
            ahead.process.kill()


def forget_last_time(admin: AdminClient) -> None:
    """Deletes the group; readers that were cut off last time may still be in it for a while."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            admin.delete_consumer_groups([GROUP])[GROUP].result(TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].name()
            if code == "GROUP_ID_NOT_FOUND":
                return
            if code != "NON_EMPTY_GROUP" or time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


def committed(admin: AdminClient) -> dict[int, int]:
    """Partition to committed offset of the group."""
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])
    found: Any = asked[GROUP].result(TIMEOUT_S)
    return {part.partition: part.offset for part in found.topic_partitions}
