"""Two clients behind one face each for producing and consuming, and the threads they work on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import confluent_kafka
from gevent.threadpool import ThreadPool

from kbroker.client import Consumer, Producer, RebalanceListener

Result = TypeVar("Result")

ANSWER_S = 60.0
# Of any client, as TLS; `kbroker bench locust -X` hands them over.
SETTINGS: dict[str, str] = json.loads(os.environ.get("KBROKER_LOCUST_SETTINGS", "{}"))


class Lane:
    """A native thread of one user: its client is used there and nowhere else."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)

    def call(self, do: Callable[..., Result], *arguments: Any) -> Result:
        """Have it done; only this greenlet waits. Raises what it raises."""
        return self._pool.spawn(do, *arguments).get()

    def end(self) -> None:
        """After the last call."""
        self._pool.kill()


class Given(NamedTuple):
    """A record to send."""

    partition: int
    key: bytes | None
    value: bytes


Told = Callable[[Given, Exception | None], None]


class Producing(Protocol):
    """A producer with acks=all and idempotence."""

    def send(self, records: Sequence[Given], told: Told) -> None:
        """Send, wait for all, tell of each what became of it."""

    def close(self) -> None: ...


class Consuming(Protocol):
    """A member of a group."""

    def poll(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """(partition, value) of what came."""

    def commit(self) -> None:
        """Commit what was polled."""

    def close(self) -> None: ...
    def vanish(self) -> None:
        """End without a word to the group, as a process that is killed."""


class KbrokerProducer:
    """kbroker.client."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {**SETTINGS, "bootstrap.servers": servers, "acks": "all", "linger.ms": 0}
        )

    def send(self, records: Sequence[Given], told: Told) -> None:
        sent = [
            (one, self._producer.send(self._topic, one.value, one.key, partition=one.partition))
            for one in records
        ]
        for one, delivery in sent:
            try:
                delivery.result(ANSWER_S)
            except Exception as error:
                told(one, error)
            else:
                told(one, None)

    def close(self) -> None:
        self._producer.close(ANSWER_S)


class ConfluentProducer:
    """confluent-kafka, over librdkafka."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {**SETTINGS, "bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0}
        )

    def send(self, records: Sequence[Given], told: Told) -> None:
        left = set(range(len(records)))

        def delivered(at: int) -> Callable[[Any, Any], None]:
            def tell(error: Any, _message: Any) -> None:
                left.discard(at)
                told(records[at], None if error is None else confluent_kafka.KafkaException(error))

            return tell

        for at, one in enumerate(records):
            self._producer.produce(
                self._topic, one.value, one.key, one.partition, on_delivery=delivered(at)
            )
        self._producer.flush(ANSWER_S)
        for at in left:
            told(records[at], TimeoutError(f"not acknowledged within {ANSWER_S:g} s"))

    def close(self) -> None:
        self._producer.flush(ANSWER_S)


class _Listener(RebalanceListener):
    def __init__(self, moved: Callable[[Iterable[int]], None]) -> None:
        self._moved = moved

    def on_assigned(self, partitions: Iterable[Any]) -> None:
        self._moved([one.partition for one in partitions])


class KbrokerConsumer:
    """kbroker.client."""

    def __init__(self, servers: str, topic: str, group: str, moved: Any) -> None:
        self._consumer: Consumer | None = Consumer(
            {**SETTINGS, "bootstrap.servers": servers, "group.id": group,
             "group.protocol": "consumer", "auto.offset.reset": "earliest",
             "enable.auto.commit": False, "isolation.level": "read_committed"}
        )  # fmt: skip
        self._consumer.subscribe([topic], _Listener(moved))

    @property
    def _open(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def poll(self, timeout_s: float) -> list[tuple[int, bytes]]:
        return [(one.partition, bytes(one.value or b"")) for one in self._open.poll(timeout_s)]

    def commit(self) -> None:
        self._open.commit_async()

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def vanish(self) -> None:
        self._consumer = None


class ConfluentConsumer:
    """confluent-kafka, with the classic protocol."""

    def __init__(self, servers: str, topic: str, group: str, moved: Any) -> None:
        self._consumer = confluent_kafka.Consumer(
            {**SETTINGS, "bootstrap.servers": servers, "group.id": group,
             "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "isolation.level": "read_committed",
             "partition.assignment.strategy": "cooperative-sticky"}
        )  # fmt: skip
        self._consumer.subscribe(
            [topic], on_assign=lambda _, given: moved([one.partition for one in given])
        )

    def poll(self, timeout_s: float) -> list[tuple[int, bytes]]:
        found = []
        for message in self._consumer.consume(500, timeout_s):
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            found.append((message.partition(), message.value() or b""))
        return found

    def commit(self) -> None:
        self._consumer.commit(asynchronous=True)

    def close(self) -> None:
        self._consumer.close()

    def vanish(self) -> None:
        self.close()  # librdkafka has no other end


PRODUCERS: dict[str, Callable[[str, str], Producing]] = {
    "kbroker": KbrokerProducer,
    "confluent": ConfluentProducer,
}
CONSUMERS: dict[str, Callable[[str, str, str, Any], Consuming]] = {
    "kbroker": KbrokerConsumer,
    "confluent": ConfluentConsumer,
}


def read_all(
    servers: str, topic: str, deadline_s: float, note: Callable[[int, bytes], None]
) -> None:
    """Tell partition and value of all that is committed in a topic. TimeoutError where it takes too
    long."""
    until = time.monotonic() + deadline_s
    settings = {**SETTINGS, "bootstrap.servers": servers, "isolation.level": "read_committed"}
    with Consumer(settings) as consumer:
        places = [(topic, one.index) for one in consumer.partitions_for(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            if time.monotonic() > until:
                raise TimeoutError(f"{topic} was not read within {deadline_s:g} s")
            for one in consumer.poll(0.5):
                note(one.partition, bytes(one.value or b""))
