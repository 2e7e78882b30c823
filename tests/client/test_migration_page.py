"""docs/migration.md: every block runs, and the four libraries do the same job; and README's blocks
about the client."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from kbroker import client
from kbroker.client import (
    Admin,
    Consumer,
    Delivery,
    KafkaError,
    Producer,
    Record,
    TopicPartition,
)
from kbroker.client.config import ConsumerConfig, ProducerConfig
from kbroker.testing import Broker
from tests.support import pages
from tests.support.tree import ROOT

PAGE = ROOT / "docs" / "migration.md"
LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka", "kbroker")
PARTITIONS = 3
#: Keys by CRC-32 unless told, as librdkafka has it; the others as Java.
PARTITIONERS = {"confluent-kafka": "consistent_random"}

EXPECTED = {
    "Create a topic": ["3 partitions"],
    "Produce with keys and headers, and learn what became of each record": ["100 delivered"],
    "Consume in a group, commit by hand": sorted(
        f"customer-{number % 10} order {number} [('source', b'shop')]" for number in range(100)
    ),
    "Read, process, write in transactions": ["100 invoices"],
    "asyncio": sorted(f"tick {number}" for number in range(10)),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_job(library: str, tmp_path: Path):
    mine = [block for block in pages.blocks(PAGE) if block.part == library]
    with Broker() as broker:
        told: dict[str, list[str]] = defaultdict(list)
        for block, said in zip(
            mine, pages.run(PAGE, mine, broker.bootstrap_servers, tmp_path), strict=True
        ):
            told[block.section] += sorted(said.splitlines())
        if library == "kbroker":  # send_batch() has a block more
            assert told[mine[1].section].pop() == "100 delivered"
        wanted = {name: lines for name, lines in EXPECTED.items() if name in told}
        assert told == wanted and len(told) == (4 if library == "kafka-python" else 5)
        judge(broker, PARTITIONERS.get(library, "default"))


def judge(broker: Broker, partitioner: str) -> None:
    """What the blocks left on the broker: keys where they belong, in order, and all committed."""
    found = broker.records("orders")
    expected = {b"customer-%d" % key: [b"order %d" % n for n in range(key, 100, 10)]
                for key in range(10)}  # fmt: skip
    orders: dict[bytes, list[bytes]] = defaultdict(list)
    places: dict[bytes, set[int]] = defaultdict(set)
    for record in found:
        orders[record.key].append(record.value)
        places[record.key].add(record.partition)
        assert record.headers == (("source", b"shop"),)
    assert orders == expected
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, partitioner_class=partitioner
    ) as producer:
        broker.topic("where", partitions=PARTITIONS)
        sent = {key: producer.send("where", b"", key) for key in expected}
    assert places == {key: {delivery.result().partition} for key, delivery in sent.items()}
    ends = {TopicPartition("orders", index): sum(one.partition == index for one in found)
            for index in range(PARTITIONS)}  # fmt: skip
    invoices = sorted(record.value for record in broker.records("invoices"))
    assert invoices == sorted(b"invoice of order %d" % number for number in range(100))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        told = admin.list_group_offsets(["billing", "invoicing"])
    for group in told.values():
        committed = {where: at.offset for where, at in group.items()}
        assert committed == {where: end for where, end in ends.items() if end or where in committed}


def tables() -> list[list[list[str]]]:
    """The rows of the tables of names, cell by cell, without their headings."""
    text = PAGE.read_text().partition("## Names")[2].partition("\n## ")[0]
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in row.strip("|").split(" | ")]
                for row in table.splitlines()]  # fmt: skip
        found.append(rows[2:])
    return found


def test_the_names_of_settings_are_names():
    own = {field.name for kind in (ProducerConfig, ConsumerConfig)
           for field in dataclasses.fields(kind)}  # fmt: skip
    python = {*kafka.KafkaProducer.DEFAULT_CONFIG, *kafka.KafkaConsumer.DEFAULT_CONFIG}
    for kind in (aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer):
        python |= set(kind.__init__.__kwdefaults__)
    settings, _ = tables()
    assert len(settings) > 8
    for theirs, pythons, ours in settings:
        for name in re.findall(r"`([\w.]+)`", theirs):
            try:
                confluent_kafka.Consumer({"group.id": "g", name: "1"}).close()
            except confluent_kafka.KafkaException as told:
                assert "No such configuration property" not in str(told), name
        assert set(re.findall(r"`(\w+)`", pythons)) <= python
        assert set(re.findall(r"`(\w+)[`=]", ours)) <= own


def test_the_names_of_methods_are_names():
    _, methods = tables()
    told = " ".join(row[-1] for row in methods)
    names = set(re.findall(r"`(?:\w+\.)?(\w+)(?=[(`])", told)) - {"with", "on_delivery"}
    assert len(names) > 12
    kinds = (Producer, Consumer, Delivery, Record, KafkaError, client)
    assert {name for name in names if not any(hasattr(kind, name) for kind in kinds)} == set()


def test_the_readme(tmp_path: Path):
    page = ROOT / "README.md"
    found = [block for block in pages.blocks(page)
             if block.section == "The Python client" and "def test_" not in block.code]  # fmt: skip
    with Broker() as broker:
        told = pages.run(page, found, broker.bootstrap_servers, tmp_path)
    said = "".join(told)
    for expected in ("InvalidTopicError", "['a', 'flights']", "RecordMetadata(topic='flights'",
                     "100 acknowledged", "b'JFK' b'two'"):  # fmt: skip
        assert expected in said
    assert len(told) == 5
