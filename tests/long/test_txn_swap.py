"""One data directory, two brokers: what the killed one left open or decided the other finishes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbroker.txn.transaction import State
from tests.support import wire
from tests.support.hanging import last_stable
from tests.support.kafka import KafkaProcess, dump_log
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.rounds import combined
from tests.support.transactional import WireProducer, committed_offset, values_of
from tests.support.txn_log import places, prepare
from tests.support.waits import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
#: Apache Kafka's own: how long a marker may be on its way.
PATIENT = {"request.timeout.ms": "600000"}
TIMEOUT_MS = 45_000
PREPARED = ("PrepareCommit", "PrepareAbort")
#: Each id and what becomes of its transaction.
OUTCOMES = {
    "committing": "CompleteCommit", "aborting": "CompleteAbort", "late": "CompleteAbort",
    "staying": "CompleteCommit",
}  # fmt: skip


def brokers(first: str, home: Path) -> list[BrokerProcess]:
    """The one that is killed, and the one that goes on, on one directory."""
    data = home / "data"
    both: dict[str, BrokerProcess] = {
        "kbroker": KbrokerProcess(home / "kbroker", SETTINGS, data_dir=data),
        "kafka": KafkaProcess(home / "kafka", SETTINGS | PATIENT, data_dir=data),
    }
    for broker in both.values():
        broker.start_timeout_s = 240
    return [both.pop(first), *both.values()]


@contextmanager
def deaf(port: int) -> Iterator[None]:
    """A listener that takes connections and answers nothing; in the end they are reset.

    Apache Kafka begins with the registration that the dead broker left, where its listener is and
    who leads what. Its coordinator loads, and asks for the markers there, again and again, until
    Kafka has registered itself. In that moment no partition has a leader; a request that fails just
    then is given up, for its partitions "are likely deleted already"
    (TransactionMarkerChannelManager), and the transaction may be completed without its markers:
    it hangs in them. So it happens to Apache Kafka that is killed and started again, too, whoever
    wrote the directory. A request that is on its way all that time cannot be given up.
    """
    with socket.create_server(("127.0.0.1", port)):
        yield


# The records are the same in both protocols; an overdue transaction takes a minute of waiting.
@pytest.mark.parametrize(("first", "protocol"), combined(["kbroker", "kafka"], [2, 1]))
def test_the_other_broker_finishes_them(tmp_path: Path, first: str, protocol: int) -> None:
    before, after = brokers(first, tmp_path)
    try:
        finishes(before, after, protocol)
    finally:
        before.kill()
        after.kill()


def finishes(before: BrokerProcess, after: BrokerProcess, protocol: int) -> None:
    before.start()
    wire.create_topic(before.port, "t", 2)
    producers = {
        name: WireProducer(before, name, protocol, TIMEOUT_MS if name == "late" else 600_000)
        for name in OUTCOMES
    }
    for name, producer in producers.items():
        producer.init()
        for partition in range(2):
            producer.send("t", partition, name.encode())
        producer.commit_offset(name, "t", 7)
    before.kill()
    assert {one.value.state for one in places(before.data_dir).values()} == {State.ONGOING}
    prepare(before.data_dir, "committing", State.PREPARE_COMMIT)
    prepare(before.data_dir, "aborting", State.PREPARE_ABORT)

    with deaf(before.port):
        after.start()
        for producer in producers.values():
            producer.broker = after
            producer.until_state("Ongoing", *PREPARED, OUTCOMES[producer.name])
    for name in ("committing", "aborting"):
        producers[name].until_state(OUTCOMES[name])
    staying = producers["staying"]
    staying.until_state("Ongoing")
    staying.send("t", 0, b"more")
    staying.end(True)
    for name, producer in producers.items():
        producer.until_state(OUTCOMES[name])
    committed = [b"committing", b"committing", b"more", b"staying", b"staying"]
    dropped = [b"aborting", b"aborting", b"late", b"late"]
    assert sorted(values_of(after, "t", "read_uncommitted")) == sorted(committed + dropped)
    wait_for("all is stable", lambda: all(lso == end for lso, end in ends_of(after)), 60)
    assert sorted(values_of(after, "t", "read_committed")) == committed
    kept = {name: committed_offset(after, name, "t") for name in OUTCOMES}
    assert kept == {"committing": 7, "aborting": -1, "late": -1, "staying": 7}
    heirs_go_on(after, protocol)
    after.stop()
    for pattern, *options in (["t-*"], ["__transaction_state-*", "--transaction-log-decoder"],
                              ["__consumer_offsets-*", "--offsets-decoder"]):  # fmt: skip
        logs = sorted(after.data_dir.glob(f"{pattern}/*.log"))
        dump_log([log for log in logs if log.stat().st_size], *options)


def ends_of(broker: BrokerProcess) -> list[tuple[int, int]]:
    """Last stable offset and end of each partition."""
    return [last_stable(broker, "t", partition) for partition in range(2)]


def heirs_go_on(broker: BrokerProcess, protocol: int) -> None:
    """Each id serves a new producer, whose epoch is above all of before."""
    for name, outcome in OUTCOMES.items():
        heir = WireProducer(broker, name, protocol)
        heir.init()
        heir.send("t", 0, b"heir")
        heir.end(outcome == "CompleteCommit")
        heir.until_state(outcome)
    wait_for(
        "the heirs' records",
        lambda: values_of(broker, "t", "read_committed").count(b"heir") == 2,
        60,
    )
