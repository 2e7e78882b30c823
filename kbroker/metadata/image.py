"""The metadata image: what the cluster is, folded from the records of its log.

`Image.replay` is the only thing that changes an image; whoever wrote the records, the same ones
in the same order give the same image, and `Image.records` gives records that fold to it again
(a snapshot). What kbroker has no use for (ACLs, SCRAM credentials, tokens of a directory that
Apache Kafka wrote) is kept, record by record, so that a snapshot loses nothing.

Not thread-safe: the control thread owns it. Topics and partitions that it hands out change with
the next replay; who keeps one longer than its turn copies what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kbroker.errors import BugError

from .features import KRAFT_VERSION, METADATA_VERSION, check_metadata_version
from .records import access, cluster, topics
from .records.schema import Record

if TYPE_CHECKING:
    from uuid import UUID

NO_LEADER = -1
"""Leader of a partition that nobody leads."""
NO_LEADER_CHANGE = -2
"""In a PartitionChangeRecord: the leader stays, and with it the leader epoch."""
NO_METADATA_VERSION = -1
_NO_PRODUCER_ID = -1

RESOURCE_TYPES: Mapping[str, int] = MappingProxyType(
    {"topic": 2, "broker": 4, "broker_logger": 8, "client_metrics": 16, "group": 32}
)
"""Config resources by name, with their number in records and on the wire."""

Resource = tuple[str, str]
"""What a config belongs to: ("topic", name), ("broker", "1"), ("broker", "") for the default."""
QuotaEntity = frozenset[tuple[str, str | None]]
"""Whose quotas: kinds (user, client-id, ip) with names, None for the default of a kind."""
_RESOURCE_NAMES = {number: name for name, number in RESOURCE_TYPES.items()}
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})

Partition = topics.PartitionRecord
"""A partition's state: leader, leader_epoch, partition_epoch, isr, replicas, directories, ..."""
Broker = cluster.RegisterBrokerRecord
"""A broker's registration: end_points, broker_epoch, incarnation_id, fenced, log_dirs, ..."""


class Topic:
    """A topic: `name`, `id` (16 bytes) and `partitions` by number, in ascending order."""

    __slots__ = ("_ordered", "_partitions", "id", "name")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.id = topic_id
        self._partitions: dict[int, Partition] = {}
        self._ordered = True

    @property
    def uuid(self) -> UUID:
        """The id as the messages of the protocol have it."""
        from uuid import UUID  # noqa: PLC0415  kio brings it in later; the start need not

        return UUID(bytes=self.id)

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """Partitions by number, ascending."""
        if not self._ordered:
            self._partitions = dict(sorted(self._partitions.items()))
            self._ordered = True
        return self._partitions

    def put(self, record: Partition) -> None:
        """For the image only: a partition as its record says."""
        index = record.partition_id
        self._ordered = self._ordered and (index in self._partitions or index == len(self))
        self._partitions[index] = record

    def __len__(self) -> int:
        return len(self._partitions)


class Image:
    """See the module. Attributes are for reading; `replay` changes them."""

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        """Finalized levels by feature, `metadata.version` among them once it is known."""
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, cluster.RegisterControllerRecord] = {}
        self.topics: dict[str, Topic] = {}
        self.next_producer_id = _NO_PRODUCER_ID
        """First id of the next block; -1 until one has been given out."""
        self.acls: dict[bytes, access.AccessControlEntryRecord] = {}
        self.scram: dict[tuple[str, int], access.UserScramCredentialRecord] = {}
        self.scram_changes = 0
        """How often it was changed."""
        self.quotas: dict[QuotaEntity, dict[str, access.ClientQuotaRecord]] = {}
        """By entity and key, such as `producer_byte_rate`."""
        self.deleted_topics: dict[bytes, str] = {}
        """Names by id of deleted topics whose folders may still be in a log directory. An entry is
        removed when the folders are renamed (kbroker.metadata.deleted_topics)."""
        self.tokens: dict[str, access.DelegationTokenRecord] = {}
        self._topics_by_id: dict[bytes, Topic] = {}
        self._configs: dict[Resource, dict[str, str]] = {}

    # ---- questions

    @property
    def metadata_version(self) -> int:
        """Level of `metadata.version`; -1 before the first record said it."""
        return self.features.get(METADATA_VERSION, NO_METADATA_VERSION)

    def topic_by_id(self, topic_id: bytes | UUID) -> Topic | None:
        """The topic of an id, None where there is none."""
        if not isinstance(topic_id, bytes):
            topic_id = topic_id.bytes
        return self._topics_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        """A partition's state, None where there is none."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def configs(self, resource: Resource) -> Mapping[str, str]:
        """The settings that were made for a resource; its defaults are not among them."""
        return self._configs.get(resource, _NO_CONFIGS)

    def config_resources(self) -> Iterator[Resource]:
        """Every resource that has a setting."""
        return iter(self._configs)

    def partition_count(self) -> int:
        """Partitions of all topics."""
        return sum(map(len, self.topics.values()))

    def check(self, records: Iterable[Record]) -> None:
        """BugError for records that would not fold onto this image: asked before an append."""
        made: dict[bytes, set[int]] = {}
        names: set[str] = set()
        gone: set[bytes] = set()
        for record in records:
            if type(record) not in _REPLAY:
                raise BugError(f"{type(record).__name__} is no record of the metadata log")
            if isinstance(record, topics.TopicRecord):
                present = self.topics.get(record.name)
                if record.name in names or (present is not None and present.id not in gone):
                    raise BugError(f"topic {record.name} is there already")
                if record.topic_id in made or record.topic_id in self._topics_by_id:
                    raise BugError(f"topic id {record.topic_id.hex()} is taken")
                names.add(record.name)
                made[record.topic_id] = set()
            elif isinstance(record, _OF_A_TOPIC):
                self._check_topic(record, made, gone)

    def _check_topic(
        self,
        record: Partition | topics.PartitionChangeRecord | topics.RemoveTopicRecord,
        made: dict[bytes, set[int]],
        gone: set[bytes],
    ) -> None:
        topic_id = record.topic_id
        if topic_id in gone or (topic_id not in made and topic_id not in self._topics_by_id):
            raise BugError(f"no topic has the id {topic_id.hex()}")
        if isinstance(record, topics.RemoveTopicRecord):
            made.pop(topic_id, None)
            gone.add(topic_id)
        elif isinstance(record, Partition):
            made.setdefault(topic_id, set()).add(record.partition_id)
        else:
            known = self._topics_by_id.get(topic_id)
            index = record.partition_id
            if index not in made.get(topic_id, ()) and (
                known is None or index not in known.partitions
            ):
                raise BugError(f"no partition {index} of topic {topic_id.hex()}")

    # ---- the fold

    def replay(self, record: Record) -> None:
        """Take one record in. BugError for one that does not follow from those before it."""
        try:
            take = _REPLAY[type(record)]
        except KeyError:
            raise BugError(f"{type(record).__name__} is no record of the metadata log") from None
        take(self, record)

    def replay_all(self, records: Iterable[Record]) -> None:
        """Take records in, one after the other."""
        for record in records:
            _REPLAY[type(record)](self, record)

    def _feature_level(self, record: cluster.FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION:
            check_metadata_version(record.feature_level)
        if record.name == KRAFT_VERSION or record.feature_level == 0:
            self.features.pop(record.name, None)  # level 0 is "off"; kraft.version is raft's own
        else:
            self.features[record.name] = record.feature_level

    def _register_broker(self, record: Broker) -> None:
        self.brokers[record.broker_id] = record

    def _unregister_broker(self, record: cluster.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != epoch:
            raise BugError(f"broker {broker_id} is not registered with epoch {epoch}")
        return broker

    def _fence(self, record: cluster.FenceBrokerRecord) -> None:
        self._broker(record.id, record.epoch).fenced = True

    def _unfence(self, record: cluster.UnfenceBrokerRecord) -> None:
        self._broker(record.id, record.epoch).fenced = False

    def _registration_change(self, record: cluster.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs

    def _register_controller(self, record: cluster.RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _producer_ids(self, record: cluster.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _topic(self, record: topics.TopicRecord) -> None:
        if record.name in self.topics or record.topic_id in self._topics_by_id:
            raise BugError(f"topic {record.name} is there already")
        topic = Topic(record.name, record.topic_id)
        self.deleted_topics.pop(topic.id, None)  # an older metadata log was brought back
        self.topics[record.name] = self._topics_by_id[record.topic_id] = topic

    def _known(self, topic_id: bytes) -> Topic:
        try:
            return self._topics_by_id[topic_id]
        except KeyError:
            raise BugError(f"no topic has the id {topic_id.hex()}") from None

    def _partition(self, record: Partition) -> None:
        self._known(record.topic_id).put(record)

    def _partition_change(self, record: topics.PartitionChangeRecord) -> None:
        partition = self._known(record.topic_id).partitions.get(record.partition_id)
        if partition is None:
            raise BugError(f"no partition {record.partition_id} of topic {record.topic_id.hex()}")
        for name in _REPLACED_BY_A_CHANGE:
            value = getattr(record, name)
            if value is not None:
                setattr(partition, name, value)
        for name in _NULL_WHEN_EMPTY:
            value = getattr(record, name)
            if value is not None:
                setattr(partition, name, value or None)
        if record.leader != NO_LEADER_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1
        if record.leader_recovery_state >= 0:
            partition.leader_recovery_state = record.leader_recovery_state
        partition.partition_epoch += 1

    def _remove_topic(self, record: topics.RemoveTopicRecord) -> None:
        topic = self._known(record.topic_id)
        del self._topics_by_id[topic.id], self.topics[topic.name]
        self._configs.pop(("topic", topic.name), None)
        self.deleted_topics[topic.id] = topic.name

    def _config(self, record: topics.ConfigRecord) -> None:
        kind = _RESOURCE_NAMES.get(record.resource_type, str(record.resource_type))
        resource = (kind, record.resource_name)
        settings = self._configs.setdefault(resource, {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if not settings:
            del self._configs[resource]

    def _clear_eligible(self, record: topics.ClearElrRecord) -> None:
        if record.topic_name and record.topic_name not in self.topics:
            raise BugError(f"no topic {record.topic_name}")
        cleared = (
            [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values())
        )
        for topic in cleared:
            for partition in topic.partitions.values():
                partition.eligible_leader_replicas = partition.last_known_elr = None

    def _acl(self, record: access.AccessControlEntryRecord) -> None:
        self.acls[record.id] = record

    def _remove_acl(self, record: access.RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)

    def _scram(self, record: access.UserScramCredentialRecord) -> None:
        self.scram[record.name, record.mechanism] = record
        self.scram_changes += 1

    def _remove_scram(self, record: access.RemoveUserScramCredentialRecord) -> None:
        self.scram.pop((record.name, record.mechanism), None)
        self.scram_changes += 1

    def _quota(self, record: access.ClientQuotaRecord) -> None:
        entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
        quotas = self.quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record
        if not quotas:
            del self.quotas[entity]

    def _token(self, record: access.DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: access.RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)

    def _nothing(self, record: Record) -> None:
        """A record that only moves the log on, or that the log itself acts on."""

    # ---- the way back

    def records(self) -> Iterator[Record]:
        """Records that fold to this image, `metadata.version` first."""
        levels = sorted(self.features.items(), key=lambda item: item[0] != METADATA_VERSION)
        for name, level in levels:
            yield cluster.FeatureLevelRecord(name, level)
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield topics.TopicRecord(topic.name, topic.id)
            yield from topic.partitions.values()
        for (kind, name), settings in self._configs.items():
            number = RESOURCE_TYPES[kind] if kind in RESOURCE_TYPES else int(kind)
            for key, value in settings.items():
                yield topics.ConfigRecord(number, name, key, value)
        for quotas in self.quotas.values():
            yield from quotas.values()
        if self.next_producer_id >= 0:
            yield cluster.ProducerIdsRecord(next_producer_id=self.next_producer_id)
        yield from self.acls.values()
        yield from self.scram.values()
        yield from self.tokens.values()


_OF_A_TOPIC = (Partition, topics.PartitionChangeRecord, topics.RemoveTopicRecord)
_REPLACED_BY_A_CHANGE = (
    "replicas", "isr", "removing_replicas", "adding_replicas", "directories",
)  # fmt: skip
_NULL_WHEN_EMPTY = ("eligible_leader_replicas", "last_known_elr")

_REPLAY: dict[type[Record], Callable[[Image, Any], None]] = {
    cluster.AbortTransactionRecord: Image._nothing,
    cluster.BeginTransactionRecord: Image._nothing,
    cluster.BrokerRegistrationChangeRecord: Image._registration_change,
    cluster.EndTransactionRecord: Image._nothing,
    cluster.FeatureLevelRecord: Image._feature_level,
    cluster.FenceBrokerRecord: Image._fence,
    cluster.NoOpRecord: Image._nothing,
    cluster.ProducerIdsRecord: Image._producer_ids,
    cluster.RegisterBrokerRecord: Image._register_broker,
    cluster.RegisterControllerRecord: Image._register_controller,
    cluster.UnfenceBrokerRecord: Image._unfence,
    cluster.UnregisterBrokerRecord: Image._unregister_broker,
    cluster.ZkMigrationStateRecord: Image._nothing,
    topics.ClearElrRecord: Image._clear_eligible,
    topics.ConfigRecord: Image._config,
    topics.PartitionChangeRecord: Image._partition_change,
    topics.PartitionRecord: Image._partition,
    topics.RemoveTopicRecord: Image._remove_topic,
    topics.TopicRecord: Image._topic,
    access.AccessControlEntryRecord: Image._acl,
    access.ClientQuotaRecord: Image._quota,
    access.DelegationTokenRecord: Image._token,
    access.RemoveAccessControlEntryRecord: Image._remove_acl,
    access.RemoveDelegationTokenRecord: Image._remove_token,
    access.RemoveUserScramCredentialRecord: Image._remove_scram,
    access.UserScramCredentialRecord: Image._scram,
}
