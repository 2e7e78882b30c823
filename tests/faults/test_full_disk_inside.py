"""F7: a full disk under what the broker itself writes: markers, commits, compaction.

Each is refused or done; nothing that was acknowledged is lost, and with room all of it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.cli.scrape import scrape
from tests.faults.test_bad_disk import fill
from tests.faults.test_disk import VALUE_BYTES, numbered
from tests.reference.crafted_batches import Batch, Record
from tests.support import wire
from tests.support.loopfs import LoopFilesystem
from tests.support.needs import need_loop
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.transactional import (
    END,
    NOT_READY,
    WireProducer,
    committed_offset,
    values_of,
)
from tests.support.waits import wait_for
from tests.support.wire import PRODUCE, WireConnection
from tests.wire.test_connections import produce_body
from tests.wire.test_metrics import address

OFFSET_COMMIT = 8
KAFKA_STORAGE_ERROR = 56
StartBroker = Callable[..., BrokerProcess]
SETTINGS = {
    "kbroker.journal.bytes.max": "16777216", "kbroker.journal.buffer.bytes": "1048576",
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
    "log.segment.bytes": "1048576", "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "0", "log.cleaner.backoff.ms": "100",
}  # fmt: skip
COMPACTED = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "5000",  # what was written before the disk is full is due while it is
}  # fmt: skip
KEYS = 7


class Inside:
    """A broker on a small disk, and what it acknowledged."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.producer = WireProducer(broker, "writer")
        self.committed: list[bytes] = []  # values of transactions whose commit is not in doubt
        self.offset = 0
        self.latest: dict[bytes, bytes] = {}
        self.number = 0
        wire.create_topic(broker.port, "plain", 1)
        wire.create_topic(broker.port, "money", 1)
        wire.create_topic(broker.port, "keys", 1, COMPACTED)
        self.producer.init()
        wait_for("the group's coordinator", lambda: self.commit() == 0, 60)

    def put(self, topic: str, batch: bytes) -> int:
        with WireConnection(self.broker.port, timeout_s=60) as connection:
            answer = connection.call(PRODUCE, 9, produce_body(topic, batch))
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])

    def put_key(self) -> int:
        """A new value of the next key."""
        self.number += 1
        key, value = b"key-%d" % (self.number % KEYS), b"%d " % self.number + b"." * VALUE_BYTES
        code = self.put("keys", Batch(records=[Record(value, key=key)]).encode())
        assert code in (0, KAFKA_STORAGE_ERROR)
        if code == 0:
            self.latest[key] = value
        return code

    def commit(self) -> int:
        """Commit the next offset of a group."""
        part = {"partition_index": 0, "committed_offset": self.offset + 1,
                "committed_leader_epoch": -1, "committed_metadata": "." * 4000}  # fmt: skip
        body = {"group_id": "group", "generation_id_or_member_epoch": -1, "member_id": "",
                "group_instance_id": None,
                "topics": [{"name": "plain", "partitions": [part]}]}  # fmt: skip
        find = {"key_type": 0, "coordinator_keys": ["group"]}
        with WireConnection(self.broker.port, timeout_s=60) as connection:
            connection.call(wire.FIND_COORDINATOR, 4, find)  # makes the topic, if need be
            answer = connection.call(OFFSET_COMMIT, 8, body)
        code = int(answer["topics"][0]["partitions"][0]["error_code"])
        assert code == 0 or code in NOT_READY, code
        if code == 0:
            self.offset += 1
        return code

    def begin(self) -> bytes:
        """A record of a transaction that stays open; its value."""
        value = b"%d in a transaction" % self.number
        self.producer.send("money", 0, value)
        return value

    def end(self) -> int:
        """Try once to commit the transaction."""
        who = self.producer.who | {"committed": True}
        answer = wire.call_once(self.broker.port, END, 5, who)
        code = int(answer["error_code"])
        assert code == 0 or code in NOT_READY, code
        if code == 0:
            self.producer.id, self.producer.epoch = answer["producer_id"], answer["producer_epoch"]
            self.producer.sequences = {}
        return code

    def take_id(self) -> int:
        """A transactional id of its own for nobody: a record of the coordinator's."""
        self.number += 1
        body = {"transactional_id": f"nobody-{self.number}", "transaction_timeout": 60_000,
                "producer_id": -1, "producer_epoch": -1}  # fmt: skip
        code = int(wire.call_once(self.broker.port, wire.INIT_PRODUCER_ID, 4, body)["error_code"])
        assert code == 0 or code in NOT_READY, code
        return code

    def cleanings(self) -> int:
        """Those that ended and those that were given up, as the log tells."""
        text = self.broker.log_text()
        return text.count("cleaning keys-0: ") + text.count("cleaned keys-0 ")

    def cleaned(self) -> float:
        """Cleanings that ended well."""
        return scrape(address(self.broker)).value("kbroker_cleaner_runs_total") or 0

    def check(self) -> None:
        """All that was acknowledged is there."""
        assert values_of(self.broker, "money", "read_committed", 1) == self.committed
        found = values_of(self.broker, "keys", "read_uncommitted", 1)
        last = {b"key-%d" % (int(value.split()[0]) % KEYS): value for value in found}
        assert last == self.latest
        assert committed_offset(self.broker, "group", "plain") == self.offset


def until_refused(disk: LoopFilesystem, put: Callable[[], int]) -> None:
    """What was made ahead is used up, and what a compaction has made free meanwhile."""
    for _ in range(20):
        if any(put() for _ in range(100)):
            return
        fill(disk)
    raise AssertionError("nothing was refused on the full disk")


def a_round(inside: Inside, disk: LoopFilesystem) -> None:
    """Fill the disk under an open transaction, try everything, make room, and see all go on."""
    value, tried = inside.begin(), inside.cleanings()
    for _ in range(4 * KEYS):  # segments to clean
        assert inside.put_key() == 0
    assert inside.commit() == 0
    filler = fill(disk)
    until_refused(disk, lambda: inside.put("plain", numbered(0)))
    until_refused(disk, inside.put_key)
    until_refused(disk, inside.commit)
    until_refused(disk, inside.take_id)
    ended = inside.end() == 0
    wait_for("compaction is tried", lambda: inside.cleanings() > tried, 60)
    assert inside.broker.is_running()
    filler.unlink()
    wait_for("commits are taken again", lambda: inside.commit() == 0, 60)
    wait_for("records are taken again", lambda: inside.put_key() == 0, 60)
    if not ended:
        inside.producer.end(commit=True)
    inside.producer.until_state("CompleteCommit")
    inside.committed.append(value)
    before = inside.cleaned()
    for _ in range(4 * KEYS):
        assert inside.put_key() == 0
    wait_for("compaction goes on", lambda: inside.cleaned() > before, 60)
    inside.check()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", rounds(2, long=6, full=20))
def test_what_the_broker_writes_itself(
    start_kbroker: StartBroker, tmp_path: Path, rounds: int, tally: Tally
) -> None:
    need_loop()
    with LoopFilesystem(tmp_path, 96) as disk:
        broker = start_kbroker(SETTINGS, data_dir=disk.path / "data")
        inside = Inside(broker)
        for _ in range(rounds):
            a_round(inside, disk)
            tally("F7", tried=1)
        assert broker.stop() == 0
        assert "Traceback" not in broker.log_text()
        broker.start()
        inside.check()
        broker.kill()
        broker.start()
        inside.check()
        assert broker.stop() == 0
