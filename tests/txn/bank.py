"""A bank: accounts that transfers leave with the sum that they had.

`accounts` is compacted: key, an account; value, `NUMBER BALANCE`. `orders` has a partition for each
teller, whose accounts nobody else touches: `NUMBER FROM TO AMOUNT`. A teller reads its orders and,
in one transaction for some of them, writes both balances, a line of the `ledger` for each, and the
group's offset. `ledger`: key, the account; value, `TELLER NUMBER BALANCE`.

Account A is teller A % TELLERS's; its records go to partition A // TELLERS % PARTITIONS, so that in
each the transactions of all tellers lie mixed.

Each teller is a process that keeps a history, a line an event:

    sum TOTAL           of its accounts, as it has read them at its start
    told FIRST LAST     a transaction of these orders was committed, as it was told
    fatal ERROR         it ends because of this
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from tests.support import wire
from tests.support.java import java_command
from tests.support.processes import BrokerProcess
from tests.txn.committed import Follower, Found

ACCOUNTS, ORDERS, LEDGER = "accounts", "orders", "ledger"
TELLERS, PARTITIONS = 2, 3
COUNT, BALANCE = 1_000, 100
TOTAL = COUNT // TELLERS * BALANCE
KINDS = ("confluent", "kbroker", "java")
PROGRAMS = {"confluent": "tests.txn.teller", "kbroker": "tests.txn.own_teller"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
             "segment.bytes": "1048576", "segment.ms": "2000"}  # fmt: skip


def place(account: int) -> int:
    """The partition of an account's records."""
    return account // TELLERS % PARTITIONS


class Teller:
    """The tellers of one number, one after the other; each is of another kind than the last."""

    def __init__(self, bank: Bank, number: int) -> None:
        self.bank, self.number = bank, number
        self.turn = number
        self.path = bank.folder / f"teller-{number}"
        self.process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """One is at work; who ended by itself is succeeded by the next."""
        if self.process is None or self.process.poll() is not None:
            self.start()

    def start(self) -> None:
        kind = self.bank.kinds[self.turn % len(self.bank.kinds)]
        self.turn += 1
        words = [self.bank.broker.bootstrap, str(self.number), str(self.path)]
        if kind == "java":
            command = java_command("Teller", *words, heap_mib=128, classes=self.bank.classes())
        else:
            command = [sys.executable, "-m", PROGRAMS[kind], *words]
        with self.path.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=errors, stderr=errors)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def lines(self) -> list[list[str]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [line.split(" ") for line in text.splitlines()]


class Bank:
    """The topics, those who work there, and what is known of them."""

    def __init__(
        self, broker: BrokerProcess, folder: Path, classes: Callable[[], Path],
        kinds: tuple[str, ...] = KINDS,
    ) -> None:  # fmt: skip
        self.broker, self.folder, self.classes, self.kinds = broker, folder, classes, kinds
        self.chance = random.Random(8)
        wire.create_topic(broker.port, ACCOUNTS, PARTITIONS, COMPACTED)
        wire.create_topic(broker.port, ORDERS, TELLERS)
        wire.create_topic(broker.port, LEDGER, PARTITIONS, {"segment.bytes": "1048576"})
        self._open_accounts()
        self.clerk = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True,
                               "linger.ms": 2, "message.timeout.ms": 120_000,
                               "reconnect.backoff.max.ms": 200, "log_level": 0})  # fmt: skip
        self.amounts: list[list[tuple[int, int, int]]] = [[] for _ in range(TELLERS)]
        """Of each teller's orders, by number: from, to, amount."""
        self.tellers = [Teller(self, number) for number in range(TELLERS)]
        self.followers = [Follower(LEDGER, partition) for partition in range(PARTITIONS)]
        self.ledger: list[list[Found]] = [[] for _ in range(PARTITIONS)]

    def _open_accounts(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "founder"}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        for account in range(COUNT):
            producer.produce(ACCOUNTS, f"-1 {BALANCE}", str(account), place(account))
        producer.commit_transaction(60)

    def order(self, count: int) -> None:
        """So many orders more for each teller."""
        for teller, amounts in enumerate(self.amounts):
            mine = range(teller, COUNT, TELLERS)
            for _ in range(count):
                giver, taker = self.chance.sample(mine, 2)
                amount = self.chance.randint(1, 50)
                value = f"{len(amounts)} {giver} {taker} {amount}"
                self.clerk.produce(ORDERS, value, partition=teller)
                amounts.append((giver, taker, amount))
        assert self.clerk.flush(120) == 0

    def close(self) -> None:
        for teller in self.tellers:
            teller.kill()

    # ---- the audit

    def audit(self) -> list[int]:
        """Reads on in the ledger, and judges all of it; how many orders of each teller are whole
        there."""
        for partition, follower in enumerate(self.followers):
            self.ledger[partition] += follower.read(self.broker.port)
        return judge(self.ledger, self.amounts)

    def balances(self) -> dict[int, int]:
        """What a reader of the accounts finds, whatever compaction has left there."""
        found: dict[int, int] = {}
        for partition in range(PARTITIONS):
            for one in Follower(ACCOUNTS, partition).read(self.broker.port):
                found[int(one.key)] = int(one.value.split(b" ")[1])
        return found

    def expected(self) -> dict[int, int]:
        """The balances when all orders are applied."""
        found = dict.fromkeys(range(COUNT), BALANCE)
        for giver, taker, amount in (order for orders in self.amounts for order in orders):
            found[giver] -= amount
            found[taker] += amount
        return found

    def told(self) -> list[list[int]]:
        """The orders of each teller that it was told are done, as often as it was told."""
        return [
            [
                number
                for event, *words in teller.lines()
                if event == "told"
                for number in range(int(words[0]), int(words[1]) + 1)
            ]
            for teller in self.tellers
        ]

    def sums(self) -> list[int]:
        """What tellers found at their starts."""
        return [
            int(words[0])
            for teller in self.tellers
            for event, *words in teller.lines()
            if event == "sum"
        ]


def lost(told: list[list[int]], whole: list[int]) -> set[tuple[int, int]]:
    """Teller and number of what was acknowledged, by `told`, and is not there: the ledger has only
    so many `whole` ones, or it was told once more, for it had to be done once more."""
    missing = {(n, one) for n, numbers in enumerate(told) for one in numbers if one >= whole[n]}
    again = {
        (n, one)
        for n, numbers in enumerate(told)
        for one, times in Counter(numbers).items()
        if times > 1
    }
    return missing | again


def judge(ledger: list[list[Found]], amounts: list[list[tuple[int, int, int]]]) -> list[int]:
    """Holds the ledger against the orders. In the order of their numbers, each has one line for who
    gives and one for who takes, once, and leaves the balances that follow from it: so the sum is
    the same behind each. A line whose other one is missing is of the last ones of its teller alone,
    for partitions are read one after the other. Answers how many of each teller are whole."""
    lines: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for partition, found in enumerate(ledger):
        last = [-1] * TELLERS
        for offset, key, value in found:
            account = int(key)
            teller, number, balance = map(int, value.split(b" "))
            where = f"{LEDGER}-{partition} at {offset}: teller {teller}, order {number}"
            assert place(account) == partition and account % TELLERS == teller, where
            assert number >= last[teller], f"{where} after {last[teller]}"
            last[teller] = number
            assert account not in lines[teller, number], f"{where} is there twice"
            lines[teller, number][account] = balance
    return [_judge_one(lines, teller, orders) for teller, orders in enumerate(amounts)]


def _judge_one(
    lines: dict[tuple[int, int], dict[int, int]], teller: int, orders: list[tuple[int, int, int]]
) -> int:
    balances: dict[int, int] = defaultdict(lambda: BALANCE)
    seen = [number for one, number in lines if one == teller]
    whole = 0
    for number, (giver, taker, amount) in enumerate(orders):
        found = lines.get((teller, number), {})
        if len(found) < 2:
            break
        where = f"teller {teller}, order {number}: {found}"
        assert sum(found.values()) == balances[giver] + balances[taker], where
        expected = {giver: balances[giver] - amount, taker: balances[taker] + amount}
        assert found == expected, f"{where}, not {expected}"
        balances |= found
        whole += 1
    torn = [number for number in seen if number >= whole]
    assert not torn or max(torn) - whole < TAIL, f"teller {teller} is torn at {whole}: {torn}"
    return whole


TAIL = 200
"""How many orders the transactions have at most that end while the ledger is being read."""
