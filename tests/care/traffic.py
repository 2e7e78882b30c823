"""Producers and a committing group that go on while a backup is made, and what they were told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from kbroker.client import Admin, Consumer, NewTopic, Producer
from kbroker.client.group_offsets import committed_offsets
from kbroker.client.offsets import EARLIEST, LATEST, list_offsets
from tests.support.waits import wait_for

KEPT, COMPACTED, SHORT = "kept", "compacted", "short"
PARTITIONS = 3
KEYS = 20
GROUP = "readers"

#: Segments roll, are cleaned and deleted all the time.
BROKER = {
    "offsets.topic.num.partitions": "2",
    "log.roll.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "0",
}
TOPICS = {
    KEPT: {"segment.ms": "400"},
    COMPACTED: {"segment.ms": "200", "cleanup.policy": "compact", "delete.retention.ms": "0",
                "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"},
    SHORT: {"segment.ms": "200", "retention.ms": "1000", "file.delete.delay.ms": "0"},
}  # fmt: skip

Place = tuple[str, int]


class Told(NamedTuple):
    """What was acknowledged by a moment: values by place and offset, the newest number of each
    key in each partition, committed offsets."""

    values: dict[tuple[str, int, int], bytes]
    newest: dict[tuple[int, bytes], int]
    committed: dict[Place, int]


def make_topics(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([
            NewTopic(name, partitions=PARTITIONS, configs=configs)
            for name, configs in TOPICS.items()
        ])  # fmt: skip


class Traffic:
    """Threads; a failure in one of them is raised at the end."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._lock = threading.Lock()
        self._told = Told({}, {}, {})
        self._stop = threading.Event()
        self._failed: list[BaseException] = []
        works = [self._produce, self._commit]
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
        if error is None and self._failed:
            raise self._failed[0]

    def told(self) -> Told:
        """Everything acknowledged by now."""
        with self._lock:
            return Told(*(dict(one) for one in self._told))  # type: ignore[arg-type]

    def wait_for_more(self, values: int, commits: int = 1) -> None:
        """Until so many more records and commits were acknowledged."""
        before = len(self.told().values)
        marks = sum(self.told().committed.values())
        wait_for("more records and commits", lambda: self._failed or (
            len(self.told().values) >= before + values
            and sum(self.told().committed.values()) >= marks + commits), 120)  # fmt: skip
        assert not self._failed, self._failed

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failed.append(error)

    def _produce(self) -> None:
        number = 0
        with Producer(bootstrap_servers=self.bootstrap, linger_ms=1) as producer:
            while not self._stop.is_set():
                for _ in range(10):
                    for topic in TOPICS:
                        key = b"key %d" % (number % KEYS)
                        value = b"%d " % number + b"." * 200
                        producer.send(topic, value, key, partition=number % PARTITIONS,
                                      on_delivery=self._sent(topic, key, value))  # fmt: skip
                    number += 1
                producer.flush(60)
                self._stop.wait(0.02)

    def _sent(self, topic: str, key: bytes, value: bytes) -> Callable[[Any], None]:
        def acknowledged(delivery: Any) -> None:
            told = delivery.result()
            with self._lock:
                self._told.values[topic, told.partition, told.offset] = value
                if topic == COMPACTED:
                    newest = self._told.newest
                    at = (told.partition, key)
                    newest[at] = max(number_of(value), newest.get(at, -1))

        return acknowledged

    def _commit(self) -> None:
        with Consumer(bootstrap_servers=self.bootstrap, group_id=GROUP, enable_auto_commit=False,
                      auto_offset_reset="earliest") as consumer:  # fmt: skip
            consumer.subscribe([KEPT])
            while not self._stop.is_set():
                if not consumer.poll(0.2):
                    continue
                consumer.commit()
                with self._lock:
                    for where in consumer.assignment():
                        self._told.committed[tuple(where)] = consumer.position(where)


def number_of(value: bytes) -> int:
    return int(value.split()[0])


def stored(bootstrap: str, topic: str) -> dict[tuple[str, int, int], tuple[bytes, bytes]]:
    """Key and value of every record of a topic, by its place."""
    found = {}
    places = [(topic, index) for index in range(PARTITIONS)]
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(where, 60) < end for where, end in ends.items()):
            for record in consumer.poll(10):
                found[topic, record.partition, record.offset] = (record.key, record.value)
    return found


def extents(bootstrap: str, topics: list[str]) -> dict[Place, tuple[int, int]]:
    """First and next offset of every partition."""
    from kbroker.client.cluster import Cluster

    wanted = [(topic, index) for topic in topics for index in range(PARTITIONS)]
    with Cluster(bootstrap) as cluster:
        first = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
        following = list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    return {where: (first[where].offset, following[where].offset) for where in wanted}


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    """The offsets of a group."""
    from kbroker.client.cluster import Cluster

    with Cluster(bootstrap) as cluster:
        found = committed_offsets(cluster, [group])[group]
    return {tuple(where): told.offset for where, told in found.items()}


def judge(bootstrap: str, told: Told) -> None:
    """What a broker on a restored directory must hold of what was acknowledged before."""
    ends = extents(bootstrap, list(TOPICS))
    kept = stored(bootstrap, KEPT)
    wanted = {place: value for place, value in told.values.items() if place[0] == KEPT}
    assert wanted and not [p for p, value in wanted.items() if kept.get(p, (b"", b""))[1] != value]
    compacted = stored(bootstrap, COMPACTED)
    newest = {
        (place[1], key): number_of(value) for place, (key, value) in sorted(compacted.items())
    }
    assert told.newest and not [at for at, n in told.newest.items() if newest.get(at, -1) < n]
    short = stored(bootstrap, SHORT)
    starts = extents(bootstrap, [SHORT])  # afterwards: retention goes on
    for place, value in told.values.items():
        if place[0] == SHORT and place[2] >= starts[place[:2]][0]:
            assert short[place][1] == value, place
    marks = committed(bootstrap, GROUP)
    assert told.committed
    for where, offset in told.committed.items():
        assert marks[where] >= offset, where
    for where, offset in marks.items():
        assert offset <= ends[where][1], where
