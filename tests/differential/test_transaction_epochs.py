"""Epochs of a transactional id that run out: the next producer id, as Apache Kafka gives it."""

from __future__ import annotations

import pytest

from tests.differential.harness import Script, same
from tests.differential.test_transactions import read
from tests.differential.transactional import INIT, Producer

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

LAST = 32_767


def age(s: Script, producer: Producer, epoch: int) -> None:
    """One InitProducerId after the other, unnoted, until the producer has this epoch."""
    body = {"transactional_id": producer.name, "transaction_timeout": 60_000}
    while producer.epoch < epoch:
        answer = s.connection.call(INIT, 4, body)
        assert answer["error_code"] == 0
        producer.id, producer.epoch = answer["producer_id"], answer["producer_epoch"]
    producer.sequence = 0


@same((1, 2))
def test_at_the_end_of_a_transaction(s: Script, version: int) -> None:
    topic = s.topic()
    producer, heir = Producer(s, version), Producer(s, version)
    producer.init()
    age(s, producer, LAST - 3)
    for commit in (True, False, True, True):
        if version == 1:
            producer.add(topic)
        producer.send(topic, b"a")
        producer.end(commit)
        producer.described()
        if version == 1:
            producer.init()
            producer.described()
    read(s, topic)
    heir.init()
    heir.described()


@same((2,))
def test_at_once_under_the_next_id(s: Script, version: int) -> None:
    """Nobody waits for the markers: the end's answer says how to go on."""
    topic = s.topic()
    producer = Producer(s, version)
    producer.init()
    age(s, producer, LAST - 2)
    for commit in (True, False, True, True):
        producer.send(topic, b"a", at_once=True)
        producer.end(commit, waits=False)
    producer.until_complete()
    producer.described()
    read(s, topic)


@same((1, 2))
def test_by_fencing(s: Script, version: int) -> None:
    """The transaction that is open at the last epoch is aborted by another one's start."""
    topic = s.topic()
    zombie, heir = Producer(s, version), Producer(s, version)
    zombie.init()
    age(s, zombie, LAST - 1)
    for _ in range(2):
        if version == 1:
            zombie.add(topic)
        zombie.send(topic, b"of the zombie")
        zombie.described()
        heir.init()
        heir.described()
        zombie.send(topic, b"late")
        zombie.end(True)
        zombie.init(producer_id=zombie.id, producer_epoch=zombie.epoch)
        zombie.id, zombie.epoch, zombie.sequence = heir.id, heir.epoch, 0
    read(s, topic)
