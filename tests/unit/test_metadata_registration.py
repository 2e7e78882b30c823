"""A broker begins and ends in its own metadata."""

from __future__ import annotations

from pathlib import Path

from kbroker.clock import FakeClock
from kbroker.metadata.builders import Listener, create_topic
from kbroker.metadata.loader import load_image
from kbroker.metadata.records.topics import PartitionChangeRecord
from kbroker.metadata.registration import begin, end
from kbroker.metadata.store import MetadataStore

LISTENERS = [Listener("PLAINTEXT", "localhost", 9092)]


def opened(directory: Path) -> MetadataStore:
    store = MetadataStore(directory, FakeClock())
    store.open()
    return store


def test_a_broker_begins_and_ends(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert end(store) == -1
    epoch = begin(store, LISTENERS, clean=True, rack="r")
    broker = store.image.brokers[1]
    assert (broker.broker_epoch, broker.fenced, broker.rack) == (epoch, False, "r")
    first = broker.incarnation_id
    assert end(store) == epoch == end(store)
    assert store.image.brokers[1].fenced
    store.close()
    store = opened(tmp_path)
    again = begin(store, LISTENERS, clean=True)
    broker = store.image.brokers[1]
    assert again > epoch and broker.incarnation_id != first and not broker.in_controlled_shutdown
    store.close()
    assert load_image(tmp_path).brokers[1].broker_epoch == again


def test_leader_epochs_rise_after_a_crash_only(tmp_path: Path) -> None:
    store = opened(tmp_path)
    begin(store, LISTENERS, clean=True)
    store.append(create_topic("t", b"t" * 16, 2, store.replica))
    store.close()
    for clean, expected in ((True, 0), (False, 1), (True, 1), (False, 2)):
        store = opened(tmp_path)
        begin(store, LISTENERS, clean=clean)
        epochs = [p.leader_epoch for p in store.image.topics["t"].partitions.values()]
        assert epochs == [expected, expected]
        store.close()


def test_what_kafka_left_without_leader_is_led(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append(create_topic("t", b"t" * 16, 1, store.replica))
    left = PartitionChangeRecord(
        0, b"t" * 16, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1],
        directories=[bytes(16)],
    )  # fmt: skip
    store.append([left])
    begin(store, LISTENERS, clean=True)
    partition = store.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, [1], 2)
    assert partition.directories == [store.directory_id]
    assert partition.eligible_leader_replicas is None
    store.close()
