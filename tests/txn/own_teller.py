"""A teller on kbroker's own client: `python -m tests.txn.own_teller BOOTSTRAP NUMBER HISTORY`.

See tests/txn/bank.py. The client asks again by itself while the broker is down, within LIMIT_S.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbroker.client.consumer import Consumer
from kbroker.client.errors import KafkaError
from kbroker.client.partitions import TopicPartition
from kbroker.client.producer import Producer
from tests.txn.bank import ACCOUNTS, LEDGER, ORDERS, PARTITIONS, TELLERS, place

MOST = 10
LIMIT_S = 120.0


class Teller:
    """One of them, at work until it is killed."""

    def __init__(self, bootstrap: str, number: int, history: Path) -> None:
        self.number, self.history = number, history
        self.common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200,
                       "request.timeout.ms": 10_000}  # fmt: skip
        self.producer = Producer(self.common | {
            "transactional.id": f"teller-{number}", "transaction.timeout.ms": 60_000,
            "linger.ms": 2,
        })  # fmt: skip
        self.orders = self._consumer("read_committed")
        self.source = TopicPartition(ORDERS, number)
        self.orders.assign([self.source])
        self.balances: dict[int, int] = {}
        self.turn = 0

    def tell(self, *words: object) -> None:
        with self.history.open("a") as file:
            file.write(" ".join(map(str, words)).replace("\n", " ") + "\n")

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(self.common | {
            "group.id": f"tellers-{self.number}", "isolation.level": isolation,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "max.poll.records": MOST if isolation == "read_committed" else 500,
        })  # fmt: skip

    def run(self) -> None:
        """Until it is killed, or something has gone wrong for good."""
        self.producer.init_transactions(LIMIT_S)
        self._begin()
        while True:
            if records := list(self.orders.poll(0.2)):
                self._serve(records)

    def _begin(self) -> None:
        """The balances and the place in the orders, as they are committed."""
        self.balances = self._balances()
        self.tell("sum", sum(self.balances.values()))
        found = self.orders.committed([self.source])[self.source]
        self.orders.seek(self.source, found.offset if found else 0)

    def _balances(self) -> dict[int, int]:
        """Up to the end of the log, as tests/txn/teller.py reads them."""
        parts = [TopicPartition(ACCOUNTS, n) for n in range(PARTITIONS)]
        with self._consumer("read_uncommitted") as reader:
            ends = reader.end_offsets(parts)
        found: dict[int, int] = {}
        until = time.monotonic() + LIMIT_S
        with self._consumer("read_committed") as reader:
            reader.assign(parts)
            reader.seek_to_beginning(parts)
            while any(reader.position(part) < ends[part] for part in parts):
                assert time.monotonic() < until, "the accounts have no end"
                for record in reader.poll(0.5):
                    if int(record.key) % TELLERS == self.number:
                        found[int(record.key)] = int(record.value.split(b" ")[1])
        return found

    def _serve(self, records: Sequence[Any]) -> None:
        """Some orders in one transaction; each seventh is aborted, and done again."""
        self.turn += 1
        after = dict(self.balances)
        numbers = []
        self.producer.begin()
        try:
            for record in records:
                number, giver, taker, amount = map(int, record.value.split(b" "))
                numbers.append(number)
                self._move(after, number, giver, -amount)
                self._move(after, number, taker, amount)
            following = {self.source: records[-1].offset + 1}
            member = self.orders.group_metadata()
            self.producer.send_offsets_to_transaction(following, member, LIMIT_S)
            if self.turn % 7:
                self.producer.commit(LIMIT_S)
        except KafkaError as failed:
            if failed.fatal:
                raise
            self._abort()
            return
        if not self.turn % 7:
            self._abort()
            return
        self.balances = after
        self.tell("told", numbers[0], numbers[-1])

    def _move(self, balances: dict[int, int], number: int, account: int, amount: int) -> None:
        balances[account] += amount
        key, to, balance = b"%d" % account, place(account), balances[account]
        self.producer.send(ACCOUNTS, b"%d %d" % (number, balance), key, partition=to)
        line = b"%d %d %d" % (self.number, number, balance)
        self.producer.send(LEDGER, line, key, partition=to)

    def _abort(self) -> None:
        """Back to what is committed."""
        self.producer.abort(LIMIT_S)
        self._begin()


def main() -> int:
    bootstrap, number, history = sys.argv[1:]
    teller = Teller(bootstrap, int(number), Path(history))
    try:
        teller.run()
    except (KafkaError, TimeoutError) as fatal:
        teller.tell("fatal", fatal)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
