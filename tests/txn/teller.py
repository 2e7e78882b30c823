"""A teller of the bank: `python -m tests.txn.teller BOOTSTRAP NUMBER HISTORY`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.waits import wait_for
from tests.txn.bank import ACCOUNTS, LEDGER, ORDERS, PARTITIONS, TELLERS, place

MOST = 10
PATIENCE_S = 120.0
COMMON = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20,
          "socket.timeout.ms": 10_000, "log_level": 0,
          # librdkafka 2.16 loses what it has asked the coordinator when it bootstraps anew, and its
          # transaction stays open until the broker ends it.
          "metadata.recovery.strategy": "none"}  # fmt: skip


class Teller:
    """See tests/txn/bank.py."""

    def __init__(self, bootstrap: str, number: int, history: Path) -> None:
        self.number, self.history = number, history
        self.common = COMMON | {"bootstrap.servers": bootstrap}
        self.producer = Producer(self.common | {
            "transactional.id": f"teller-{number}", "transaction.timeout.ms": 60_000,
            "linger.ms": 2,
        })  # fmt: skip
        self.orders = self._consumer()
        self.source = TopicPartition(ORDERS, number)
        self.balances: dict[int, int] = {}
        self.turn = 0

    def tell(self, *words: object) -> None:
        with self.history.open("a") as file:
            file.write(" ".join(map(str, words)).replace("\n", " ") + "\n")

    def _consumer(self, isolation: str = "read_committed") -> Consumer:
        return Consumer(self.common | {
            "group.id": f"tellers-{self.number}", "isolation.level": isolation,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        })  # fmt: skip

    def run(self) -> None:
        """Until it is killed, or something has gone wrong for good."""
        patiently(lambda: self.producer.init_transactions(30))
        self._begin()
        while True:
            messages = [one for one in self.orders.consume(MOST, 0.2) if one.error() is None]
            if messages:
                self._serve(messages)

    def _begin(self) -> None:
        """The balances and the place in the orders, as they are committed."""
        self.balances = self._balances()
        self.tell("sum", sum(self.balances.values()))
        (found,) = patiently(lambda: self.orders.committed([self.source], 10))
        offset = found.offset if found.offset >= 0 else OFFSET_BEGINNING
        self.orders.assign([TopicPartition(ORDERS, self.number, offset)])

    def _ends(self) -> list[int]:
        """Of the accounts, whatever is committed of them."""
        reader = self._consumer("read_uncommitted")

        def end(partition: int) -> int:
            place = TopicPartition(ACCOUNTS, partition)
            return int(wait_for("an end", lambda: reader.get_watermark_offsets(place, 10), 60)[1])

        ends = [patiently(lambda n=n: end(n)) for n in range(PARTITIONS)]
        reader.close()
        return ends

    def _balances(self) -> dict[int, int]:
        """As they are committed. What this teller has committed may stand behind the beginning of
        another one's open transaction, where no reader sees it yet; so the end is not the last
        stable offset of the moment, but that of the log, and is waited for."""
        ends = self._ends()
        reader = self._consumer()
        reader.assign([TopicPartition(ACCOUNTS, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
        left, found = set(range(PARTITIONS)), {}
        until = time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < until, "the accounts have no end"
            message = reader.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                account = int(message.key())
                if account % TELLERS == self.number:
                    found[account] = int(message.value().split(b" ")[1])
            elif (
                error.code() == KafkaError._PARTITION_EOF
                and message.offset() >= ends[message.partition()]
            ):
                left.discard(message.partition())
        reader.close()
        return found

    def _serve(self, messages: list[Message]) -> None:
        """Some orders in one transaction; each seventh is aborted, and done again."""
        self.turn += 1
        after = dict(self.balances)
        numbers = []
        self.producer.begin_transaction()
        try:
            for message in messages:
                number, giver, taker, amount = map(int, message.value().split(b" "))
                numbers.append(number)
                self._move(after, number, giver, -amount)
                self._move(after, number, taker, amount)
            following = TopicPartition(ORDERS, self.number, messages[-1].offset() + 1)
            group = self.orders.consumer_group_metadata()
            patiently(lambda: self.producer.send_offsets_to_transaction([following], group, 10))
            if self.turn % 7 == 0:
                self._abort()
                return
            patiently(lambda: self.producer.commit_transaction(10))
        except KafkaException as failed:
            if not failed.args[0].txn_requires_abort():
                raise
            self._abort()
            return
        self.balances = after
        self.tell("told", numbers[0], numbers[-1])

    def _move(self, balances: dict[int, int], number: int, account: int, amount: int) -> None:
        balances[account] += amount
        key, to, balance = str(account), place(account), balances[account]
        self.producer.produce(ACCOUNTS, f"{number} {balance}", key, to)
        self.producer.produce(LEDGER, f"{self.number} {number} {balance}", key, to)

    def _abort(self) -> None:
        """Back to what is committed."""
        patiently(lambda: self.producer.abort_transaction(10))
        self._begin()


def patiently(do: Callable[[], Any]) -> Any:
    """Tried again where the client says that it may be; a broker that is down comes back."""
    found: list[Any] = []

    def is_done() -> bool:
        try:
            found.append(do())
        except KafkaException as failed:
            error = failed.args[0]
            again = error.retriable() or error.code() in (
                KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN,
                KafkaError._WAIT_COORD, KafkaError.NOT_COORDINATOR,
                KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.UNSTABLE_OFFSET_COMMIT,
            )  # fmt: skip
            if error.txn_requires_abort() or not again:
                raise
        return bool(found)

    wait_for("the broker answers", is_done, PATIENCE_S, 0.05)
    return found[0]


def main() -> int:
    bootstrap, number, history = sys.argv[1:]
    teller = Teller(bootstrap, int(number), Path(history))
    try:
        teller.run()
    except KafkaException as fatal:
        teller.tell("fatal", fatal)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
