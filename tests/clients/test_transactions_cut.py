"""The answer to a Produce request is lost, and its transaction is aborted before the retry."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as RdkafkaProducer

from kbroker.client.producer import Producer
from tests.support import wire
from tests.support.fixtures import BrokerFactory
from tests.support.middle import CUT, Middle
from tests.support.processes import BrokerProcess
from tests.support.transactional import values_of
from tests.support.waits import wait_for

TOPIC = "cut"
PRODUCE = 0


class Cut:
    """A broker whose answer to the second Produce request is lost; then nobody gets through to it
    until `mend`."""

    def __init__(self, start_target: BrokerFactory) -> None:
        self._bound = socket.socket()
        self._bound.bind(("127.0.0.1", 0))  # and does not listen: who connects is refused
        self.middle = Middle(PRODUCE, self._lose)
        address = f"127.0.0.1:{self.middle.port}"
        self.broker = start_target({"advertised.listeners": f"PLAINTEXT://{address}"})
        self.settings = {"bootstrap.servers": address, "transactional.id": "cut",
                         "linger.ms": 0, "reconnect.backoff.ms": 20,
                         "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}  # fmt: skip
        self.is_cut = False
        self.mend()
        wire.create_topic(self.broker.port, TOPIC, 1)

    def _lose(self, number: int, answer: bytes) -> bytes:
        if number != 2:
            return answer
        self.middle.to = self._bound.getsockname()[1]
        self.is_cut = True
        return CUT

    def mend(self) -> None:
        self.middle.to = self.broker.port

    def wait(self) -> None:
        wait_for("the answer that is lost", lambda: self.is_cut, 30)

    def close(self) -> None:
        self.middle.close()
        self._bound.close()


@pytest.fixture
def cut(start_target: BrokerFactory) -> Iterator[Cut]:
    with contextlib.closing(Cut(start_target)) as made:
        yield made


def committed(broker: BrokerProcess) -> list[bytes]:
    return values_of(broker, TOPIC, "read_committed", partitions=1)


def test_own_client(cut: Cut) -> None:
    """The next transaction has all of its records: it is sent under a new epoch."""
    with Producer(cut.settings) as producer:
        producer.init_transactions(60)
        producer.begin()
        producer.send(TOPIC, b"first", partition=0)
        producer.commit(60)

        producer.begin()
        producer.send(TOPIC, b"aborted", partition=0)
        cut.wait()
        cut.mend()
        producer.abort(60)

        producer.begin()
        producer.send(TOPIC, b"next", partition=0)
        producer.commit(60)
    assert committed(cut.broker) == [b"first", b"next"]


def test_librdkafka_uses_a_sequence_number_again(cut: Cut) -> None:
    """A fault of librdkafka 2.16, by which a committed transaction lacks a record.

    A record waits to be sent again ("MsgPossiblyPersisted"); the log has it, but the answer is
    lost. abort_transaction() takes it out of the queue, and its sequence number is given to the
    next record ("advancing epoch base msgid ... due to 1 message(s) in aborted transaction" with
    debug=eos) without an InitProducerId that would raise the epoch; an abort in version 1 of the
    protocol, the only one that it speaks, raises none either. The next transaction's record then
    has the producer id, epoch and number of one that the log holds. Apache Kafka and kbroker take
    it for that one sent again: they answer with its offset, and append nothing. Whoever aborts
    when flush() has returned 0 is safe, and so is a client of version 2.
    """
    told: list[tuple[bytes | None, int | None]] = []

    def on_delivery(error: Any, message: Any) -> None:
        told.append((message.value(), None if error else message.offset()))

    producer = RdkafkaProducer(cut.settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"first", partition=0, on_delivery=on_delivery)
    producer.commit_transaction(60)

    producer.begin_transaction()
    producer.produce(TOPIC, b"aborted", partition=0, on_delivery=on_delivery)
    cut.wait()
    with pytest.raises(KafkaException):
        producer.abort_transaction(0.5)  # takes the record out of the queue
    cut.mend()
    producer.abort_transaction(60)

    producer.begin_transaction()
    producer.produce(TOPIC, b"next", partition=0, on_delivery=on_delivery)
    producer.commit_transaction(60)
    # 0: first, 1: marker, 2: aborted
    assert told == [(b"first", 0), (b"aborted", None), (b"next", 2)]
    assert committed(cut.broker) == [b"first"]
    uncommitted = values_of(cut.broker, TOPIC, "read_uncommitted", partitions=1)
    assert uncommitted == [b"first", b"aborted"]
