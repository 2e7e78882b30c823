"""The users: who produces, who reads, and who behaves badly while they do.

What they report to Locust is named CLIENT.WHAT: `produce` (until all of a burst is acknowledged),
`transaction` (a burst of its own, until it is committed or aborted), `fencing` (another producer
took the place of one with an open transaction), `pipe` (what a poll gave, copied and committed),
`end to end` (from send to poll, by the time in the record), `poll` (with its bytes), `topic` (one
made, written, read and deleted). A record that is missing is a failure named `lost`, one that was
aborted and is seen all the same one named `aborted`.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from locust import User, constant_throughput, task

from kbroker.client import Admin, Consumer, Producer
from kbroker.locust.draws import draw
from kbroker.locust.lanes import CONSUMERS, PRODUCERS, SETTINGS, Consuming, Given, Lane, Producing
from kbroker.locust.ledger import ABORTED, STAMP_BYTES, Seen, Sent, Stamp, stamp_of, stamped
from kbroker.locust.transacting import Pipe, Transacting

SENT = Sent()
"""Of this process."""
_TIMED_A_POLL = 20
_POLL_S = 0.5
_SLOW_S = (1.0, 3.0)
_LIFE_S = (5.0, 15.0)
_ABORTS = 0.1  # of the transactions
_FENCINGS = 0.02
COPIES = "-copies"
"""What a pipe's topic is called beyond that of the users."""
_numbers = itertools.count(1)


class ClientUser(User):  # type: ignore[misc]  # Locust is untyped where it is not installed
    """What all of them have: options, a client on a thread of its own, events."""

    abstract = True
    client: ClassVar[str] = "kbroker"

    def on_start(self) -> None:
        self.options = self.environment.parsed_options
        self.lane = Lane()
        self.lane.call(self.open)

    def on_stop(self) -> None:
        try:
            self.lane.call(self.close)
        finally:
            self.lane.end()

    def open(self) -> None:
        """On the lane's thread."""

    def close(self) -> None:
        """On the lane's thread."""

    def tell(self, what: str, ms: float, size: int = 0, error: Exception | None = None) -> None:
        """One event of Locust's."""
        self.environment.events.request.fire(
            request_type=self.client, name=what, response_time=ms, response_length=size,
            exception=error, context=self.context(),
        )  # fmt: skip

    def timed(self, what: str, do: Callable[[], int]) -> None:
        """Do it on the lane, tell how long it took; `do` answers bytes."""
        began = time.perf_counter()
        size, failed = 0, None
        try:
            size = self.lane.call(do)
        except Exception as error:
            failed = error
        self.tell(what, (time.perf_counter() - began) * 1e3, size, failed)


class ProducerUser(ClientUser):
    """Sends bursts at a rate; keys and sizes are drawn."""

    abstract = True

    def open(self) -> None:
        self._begin()
        options = self.options
        self.producer: Producing = PRODUCERS[self.client](options.servers, options.topic)

    def _begin(self) -> None:
        dice = random.Random()
        options = self.options
        self.dice = dice
        self.number = dice.getrandbits(62)
        self.size = draw(options.sizes, dice)
        self.key = None if options.keys == "none" else draw(options.keys, dice)

    def wait_time(self) -> float:
        """Bursts a second, whatever each of them takes."""
        return float(constant_throughput(self.options.bursts)(self))

    @task
    def burst(self) -> None:
        self.timed("produce", self._send)

    def _send(self) -> int:
        records = [self._record() for _ in range(self.options.burst)]
        failures: list[Exception] = []

        def told(one: Given, error: Exception | None) -> None:
            if error is not None:
                SENT.failed((self.number, one.partition), stamp_of(one.value).sequence)
                failures.append(error)

        self.producer.send(records, told)
        if failures:
            raise failures[0]
        return sum(len(one.value) for one in records)

    def _record(self, *, kept: bool = True) -> Given:
        key = None if self.key is None else self.key()
        partitions = self.options.partitions
        partition = self.dice.randrange(partitions) if key is None else key % partitions
        sequence = SENT.take((self.number, partition)) if kept else ABORTED
        value = stamped(self.number, sequence, max(self.size(), STAMP_BYTES))
        return Given(partition, None if key is None else b"%d" % key, value)

    def close(self) -> None:
        self.producer.close()


class TransactionalUser(ProducerUser):
    """Sends each burst in a transaction. Some it aborts, and at times another producer takes its
    place in the midst of one: of these nothing may be seen."""

    abstract = True

    def open(self) -> None:
        self._begin()
        options = self.options
        name = f"{options.topic}-{self.number:x}"
        self.transacting = Transacting(self.client, options.servers, options.topic, name)

    @task
    def burst(self) -> None:
        if self.dice.random() < _FENCINGS:
            self.timed("fencing", self._lose)
        else:
            self.timed("transaction", self._send)

    def _send(self) -> int:
        commit = self.dice.random() >= _ABORTS
        records = [self._record(kept=commit) for _ in range(self.options.burst)]
        try:
            self.transacting.send(records, commit=commit)
        except Exception:
            for one in records if commit else ():
                SENT.failed((self.number, one.partition), stamp_of(one.value).sequence)
            raise
        return sum(len(one.value) for one in records)

    def _lose(self) -> int:
        self.transacting.lose([self._record(kept=False) for _ in range(self.options.burst)])
        return 0

    def close(self) -> None:
        self.transacting.close()


class PipeUser(ClientUser):
    """Copies the topic into another one: what it writes and how far it has read is one step."""

    client, weight = "kbroker", 1

    def open(self) -> None:
        options = self.options
        name = f"{options.topic}-pipe-{random.getrandbits(62):x}"
        self.pipe = Pipe(options.servers, options.topic, options.topic + COPIES, name)

    @task
    def step(self) -> None:
        self.timed("pipe", lambda: self.pipe.step(_POLL_S))

    def close(self) -> None:
        self.pipe.close()


class ConsumerUser(ClientUser):
    """A member of the group that keeps up; checks the sequence numbers of what it reads."""

    abstract = True
    group = "readers"

    def open(self) -> None:
        self.seen = Seen()
        group = f"{self.options.topic}-{self.client}-{self.group}"
        make = CONSUMERS[self.client]
        servers, topic = self.options.servers, self.options.topic
        self.consumer: Consuming = make(servers, topic, group, self._moved)

    def _moved(self, partitions: Iterable[int]) -> None:
        self.seen.forget(partitions)

    @task
    def read(self) -> None:
        began = time.perf_counter()
        try:
            stamps, size = self.lane.call(self._poll)
        except Exception as error:
            self.tell("poll", (time.perf_counter() - began) * 1e3, 0, error)
            return
        if not stamps:
            return
        now_ns = time.time_ns()
        self.tell("poll", (time.perf_counter() - began) * 1e3, size)
        for _, stamp in stamps[:: max(len(stamps) // _TIMED_A_POLL, 1)]:
            self.tell(self.latency, max(now_ns - stamp.sent_ns, 0) / 1e6)
        self._check(stamps)

    latency = "end to end"

    def _poll(self) -> tuple[list[tuple[int, Stamp]], int]:
        polled = self.consumer.poll(_POLL_S)
        if polled:
            self.consumer.commit()
        stamps = [(partition, stamp_of(value)) for partition, value in polled]
        return stamps, sum(len(value) for _, value in polled)

    def _check(self, stamps: Sequence[tuple[int, Stamp]]) -> None:
        for partition, stamp in stamps:
            if stamp.sequence == ABORTED:
                text = f"partition {partition}, lane {stamp.lane}: an aborted record"
                self.tell("aborted", 0, 0, LookupError(text))
                continue
            gap = self.seen.note(stamp, partition)
            if gap is not None and not SENT.may_miss((stamp.lane, partition), *gap):
                text = f"partition {partition}, lane {stamp.lane}: {gap[0]} to {gap[1]}"
                self.tell("lost", 0, 0, LookupError(text))

    def close(self) -> None:
        self.consumer.close()


class KbrokerProducerUser(ProducerUser):
    client, weight = "kbroker", 4


class ConfluentProducerUser(ProducerUser):
    client, weight = "confluent", 2


class KbrokerTransactionalUser(TransactionalUser):
    client, weight = "kbroker", 1


class ConfluentTransactionalUser(TransactionalUser):
    client, weight = "confluent", 1


class KbrokerConsumerUser(ConsumerUser):
    client, weight = "kbroker", 2


class ConfluentConsumerUser(ConsumerUser):
    client, weight = "confluent", 1


class SlowConsumerUser(ConsumerUser):
    """Takes its time between two polls, so that it lags: the others must not notice."""

    client, weight, group = "kbroker", 1, "slow"
    latency = "end to end, slow"

    def wait_time(self) -> float:
        return random.uniform(*_SLOW_S)


class VanishingConsumerUser(ConsumerUser):
    """Ends without a word in the middle of its work, and another one comes."""

    client, weight, group = "kbroker", 1, "vanishing"
    latency = "end to end, vanishing"

    def open(self) -> None:
        self.until = time.monotonic() + random.uniform(*_LIFE_S)
        super().open()

    def _poll(self) -> tuple[list[tuple[int, Stamp]], int]:
        if time.monotonic() > self.until:
            self.consumer.vanish()
            self.open()
        return super()._poll()


class TopicChurnUser(ClientUser):
    """Makes topics, writes and reads one record, deletes them."""

    client, weight = "kbroker", 1

    def wait_time(self) -> float:
        return random.uniform(1.0, 3.0)

    @task
    def churn(self) -> None:
        self.timed("topic", self._churn)

    def _churn(self) -> int:
        settings = {**SETTINGS, "bootstrap.servers": self.options.servers}
        name = f"{self.options.topic}-churn-{random.getrandbits(62):x}-{next(_numbers)}"
        with Admin(settings) as admin:
            admin.create_topic(name, partitions=1)
            try:
                with Producer(settings) as producer:
                    producer.send(name, b"x").result(_POLL_S * 100)
                with Consumer(settings) as consumer:
                    consumer.assign([(name, 0)])
                    consumer.seek_to_beginning()
                    found = consumer.poll(_POLL_S * 100)
            finally:
                admin.delete_topics([name])
        if [bytes(one.value or b"") for one in found] != [b"x"]:
            raise LookupError(f"{name} holds {len(found)} records, not one")
        return 1


USERS: dict[str, type[ClientUser]] = {
    "producer": KbrokerProducerUser,
    "confluent-producer": ConfluentProducerUser,
    "transactional": KbrokerTransactionalUser,
    "confluent-transactional": ConfluentTransactionalUser,
    "pipe": PipeUser,
    "consumer": KbrokerConsumerUser,
    "confluent-consumer": ConfluentConsumerUser,
    "slow": SlowConsumerUser,
    "vanishing": VanishingConsumerUser,
    "churn": TopicChurnUser,
}
