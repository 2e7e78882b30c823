"""Record lists for what the control plane does to the cluster: image and wish in, records out.

Nothing here changes anything: hand the list to `MetadataStore.append`. One node holds every
replica, so each partition has it as only replica, leader and in-sync replica. Whether a wish is
allowed (names, counts, settings) the caller has checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kbroker.limits import PRODUCER_ID_BLOCK_COUNT
from kbroker.storage.log_port import Directories, Key

from . import features
from .image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RESOURCE_TYPES,
    Broker,
    Image,
    Partition,
    Resource,
    Topic,
)
from .records import cluster, topics
from .records.schema import Record

_UNFENCE, _FENCE, _IN_CONTROLLED_SHUTDOWN = -1, 1, 1
_RECOVERED = 0
_NO_NODES: list[int] = []
"""The replicas that a new partition adds or removes; shared, see `_partitions`."""


class Replica(NamedTuple):
    """The node that holds every partition, and its log directory (16 bytes).

    None where the cluster's metadata.version does not know log directories yet; `replica_of`
    and `MetadataStore.replica` see to that.
    """

    node_id: int
    directory_id: bytes | None


class Listener(NamedTuple):
    """An advertised listener; `protocol` is 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    protocol: int = 0


class ProducerIds(NamedTuple):
    """A block of producer ids: from `first` on, `size` of them."""

    first: int
    size: int


def replica_of(image: Image, node_id: int, directory_id: bytes) -> Replica:
    """The replica that every partition has."""
    known = features.has_directories(image.metadata_version)
    return Replica(node_id, directory_id if known else None)


def create_topic(  # noqa: PLR0917
    name: str,
    topic_id: bytes,
    partition_count: int,
    replica: Replica,
    settings: Mapping[str, str] | None = None,
    homes: Sequence[bytes] = (),
) -> list[Record]:
    """A topic with its partitions and its own settings. `homes` are the directories of the
    partitions; none: all are in the replica's."""
    records: list[Record] = [topics.TopicRecord(name, topic_id)]
    records += alter_configs(("topic", name), settings or {})
    records += _partitions(topic_id, range(partition_count), replica, homes)
    return records


def create_partitions(
    topic: Topic, new_count: int, replica: Replica, homes: Sequence[bytes] = ()
) -> list[Record]:
    """Partitions behind those that a topic has, up to `new_count` in all; `homes` as above."""
    return _partitions(topic.id, range(len(topic), new_count), replica, homes)


def _partitions(
    topic_id: bytes, indexes: range, replica: Replica, homes: Sequence[bytes]
) -> list[Record]:
    """The partitions share their lists, as thousands of them would hold equal ones: a change of a
    partition replaces a list and never changes it in place."""
    nodes = [replica.node_id]
    if replica.directory_id is None or not homes:
        directories = dict.fromkeys(indexes, _directories(replica))
    else:
        lists = {home: [home] for home in homes}
        directories = {
            index: lists[home] for index, home in zip(indexes, homes, strict=True)
        }
    return [
        Partition(index, topic_id, nodes, nodes, _NO_NODES, _NO_NODES, replica.node_id, 0, 0, 0,
                  directories[index])
        for index in indexes
    ]  # fmt: skip


def _directories(replica: Replica) -> list[bytes]:
    return [] if replica.directory_id is None else [replica.directory_id]


def delete_topic(topic: Topic) -> list[Record]:
    """A topic goes, and its settings with it."""
    return [topics.RemoveTopicRecord(topic.id)]


def alter_configs(resource: Resource, changes: Mapping[str, str | None]) -> list[Record]:
    """Settings of a resource made, or removed where the value is None."""
    kind, name = resource
    return [
        topics.ConfigRecord(RESOURCE_TYPES[kind], name, key, value)
        for key, value in changes.items()
    ]


def replace_configs(image: Image, resource: Resource, settings: Mapping[str, str]) -> list[Record]:
    """Exactly these settings for a resource: the others it has are removed."""
    removed = dict.fromkeys(key for key in image.configs(resource) if key not in settings)
    return alter_configs(resource, {**removed, **settings})


def allocate_producer_ids(image: Image, node_id: int) -> tuple[list[Record], ProducerIds]:
    """The next block of producer ids; it is the caller's once the records are appended."""
    first = max(image.next_producer_id, 0)
    broker = image.brokers.get(node_id)
    record = cluster.ProducerIdsRecord(
        broker_id=node_id,
        broker_epoch=-1 if broker is None else broker.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_COUNT,
    )
    return [record], ProducerIds(first, PRODUCER_ID_BLOCK_COUNT)


def register_broker(
    image: Image,
    replica: Replica,
    listeners: Iterable[Listener],
    *,
    incarnation_id: bytes,
    broker_epoch: int,
    rack: str | None = None,
    directories: Directories | None = None,
) -> list[Record]:
    """This process takes the broker's place, unfenced; `broker_epoch` is the record's offset."""
    known = directories or Directories(_directories(replica))
    version = image.metadata_version
    record = Broker(
        broker_id=replica.node_id,
        incarnation_id=incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[
            cluster.BrokerEndpoint(one.name, one.host, one.port, one.protocol) for one in listeners
        ],
        features=[
            cluster.BrokerFeature(name, least, greatest)
            for name, (least, greatest) in features.SUPPORTED.items()
        ],
        rack=rack,
        fenced=False,
    )
    if replica.directory_id is not None:
        record.log_dirs = list(known.online)
    if features.has_cordoned(version):
        record.cordoned_log_dirs = list(known.cordoned)
    return [record]


def change_directories(
    image: Image, node_id: int, directories: Directories, lost: Iterable[Key] = ()
) -> list[Record]:
    """A registered broker serves from these directories now. `lost` are the partitions of those
    that failed: nobody leads them."""
    broker = image.brokers.get(node_id)
    records: list[Record] = []
    if broker is not None:
        change = cluster.BrokerRegistrationChangeRecord(node_id, broker.broker_epoch)
        change.log_dirs = list(directories.online)
        if features.has_cordoned(image.metadata_version):
            change.cordoned_log_dirs = list(directories.cordoned)
        records.append(change)
    eligible = _keeps_eligible(image)
    for name, index in lost:
        topic = image.topics.get(name)
        if topic is not None and topic.partitions[index].leader == node_id:
            records.append(_nobody_leads(topic, index, node_id, eligible))
    return records


def move_partition(topic: Topic, index: int, node_id: int, home: bytes) -> list[Record]:
    """A node's replica lives in another log directory; the leader stays."""
    partition = topic.partitions[index]
    homes = list(partition.directories or [bytes(16)] * len(partition.replicas))
    homes[partition.replicas.index(node_id)] = home
    return [
        topics.PartitionChangeRecord(index, topic.id, leader=NO_LEADER_CHANGE, directories=homes)
    ]


def _nobody_leads(topic: Topic, index: int, node_id: int, eligible: bool) -> Record:
    """As Apache Kafka's controller has it: the last in-sync replica stays in the ISR, or becomes
    eligible where the cluster keeps eligible leaders."""
    change = topics.PartitionChangeRecord(index, topic.id, leader=NO_LEADER)
    if eligible:
        change.isr = []
        change.eligible_leader_replicas = [node_id]
    return change


def _keeps_eligible(image: Image) -> bool:
    return image.features.get("eligible.leader.replicas.version", 0) > 0


def leave_broker(image: Image, node_id: int) -> list[Record]:
    """The broker stops in good order: fenced, so that whoever starts next need not wait for it.

    Apache Kafka waits for the session of a broker that is not fenced (9 s) before it lets
    another process take its id.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return []
    return [
        cluster.BrokerRegistrationChangeRecord(
            node_id, broker.broker_epoch, _FENCE, _IN_CONTROLLED_SHUTDOWN
        )
    ]


def register_again(image: Image, node_id: int, broker_epoch: int) -> list[Record]:
    """A registered broker is forgotten and registered as it was; `broker_epoch` is the offset of
    the second record."""
    broker = image.brokers[node_id]
    forgotten = cluster.UnregisterBrokerRecord(node_id, broker.broker_epoch)
    return [forgotten, broker.replace(broker_epoch=broker_epoch)]


def unregister_broker(image: Image, node_id: int) -> list[Record]:
    """A broker is forgotten, and nobody leads what it led."""
    records: list[Record] = [
        topics.PartitionChangeRecord(index, topic.id, leader=NO_LEADER)
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
        if partition.leader == node_id
    ]
    epoch = image.brokers[node_id].broker_epoch
    return [*records, cluster.UnregisterBrokerRecord(node_id, epoch)]


def elect_leaders(
    image: Image, replica: Replica, *, new_epochs: bool, lost: Collection[Key] = ()
) -> list[Record]:
    """This node leads every partition it has a replica of, and is their in-sync replica.

    A Kafka that stopped in good order left its partitions without leader and without ISR; one
    that crashed left them marked as recovering, which one replica alone is not. Each change of
    leader makes a new leader epoch. With `new_epochs` (after a crash, where readers may have
    seen what the log has lost) the partitions that the node leads already get one as well. Nobody
    leads the `lost` ones, whose directory is not here.
    """
    node = replica.node_id
    eligible = _keeps_eligible(image)
    records: list[Record] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if node not in partition.replicas:
                continue
            if (topic.name, index) in lost:
                if partition.leader != NO_LEADER:
                    records.append(_nobody_leads(topic, index, node, eligible))
                continue
            change = topics.PartitionChangeRecord(index, topic.id)
            if new_epochs or partition.leader != node or partition.isr != [node]:
                change.leader = node
            elif partition.leader_recovery_state == _RECOVERED:
                continue
            if partition.isr != [node]:
                change.isr = [node]
            if eligible and partition.eligible_leader_replicas:
                change.eligible_leader_replicas = []
            if eligible and partition.last_known_elr:
                change.last_known_elr = []
            if partition.leader_recovery_state != _RECOVERED:
                change.leader_recovery_state = _RECOVERED
            records.append(change)
    return records


def adopt_partitions(
    image: Image, replica: Replica, homes: Mapping[Key, bytes] | None = None
) -> list[Record]:
    """Partitions in whose replicas this node is, in the log directories that they have: all in the
    replica's, or those of `homes` there.

    A directory formatted by an older Kafka may say "unassigned" or "migrating" of them.
    """
    if replica.directory_id is None:
        return []
    records: list[Record] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if replica.node_id not in partition.replicas:
                continue
            home = replica.directory_id if homes is None else homes.get((topic.name, index))
            if home is None:
                continue
            wanted = list(partition.directories or [bytes(16)] * len(partition.replicas))
            wanted[partition.replicas.index(replica.node_id)] = home
            if wanted != partition.directories:
                records.append(
                    topics.PartitionChangeRecord(
                        index, topic.id, leader=NO_LEADER_CHANGE, directories=wanted
                    )
                )
    return records
