"""What a new topic becomes: its checks, its records, its answer. For CreateTopics and Metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kbroker import descriptors
from kbroker.api import publish
from kbroker.api.context import Services
from kbroker.api.topic_names import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    name_fault,
)
from kbroker.config.topic import validate_topic
from kbroker.config.types import ConfigError
from kbroker.errors import ClientError, ErrorCode
from kbroker.limits import PARTITIONS_PER_REQUEST_MAX_COUNT, STRING_LENGTH_MAX_BYTES
from kbroker.metadata import builders
from kbroker.metadata.records.schema import Record
from kbroker.operations import Completion, Steps
from kbroker.security.quotas import MutationQuota
from kbroker.storage.log_directory import LogDirectory
from kbroker.uuids import random_uuid

DEFAULT: Final = -1
Placed = dict[LogDirectory, int]
_CODECS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


class NewTopic(NamedTuple):
    """A topic as it was asked for; -1 leaves a number to the broker.

    `assignments` holds broker ids by partition where the client chose them.
    """

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str | None] = {}
    assignments: Sequence[tuple[int, Sequence[int]]] = ()


class Planned(NamedTuple):
    """A topic that passed all checks, with the records that make it."""

    name: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str]
    records: list[Record]


def plan_topic(
    services: Services, topic: NewTopic, planned: Placed | None = None
) -> Steps[Planned]:
    """Check a new topic. Raises ClientError; changes nothing. `planned` counts partitions by log
    directory over one request."""
    _check_name(services, topic.name)
    configs = yield from _check_configs(services, topic.configs)
    if topic.assignments:
        partitions = yield from _check_assignments(services, topic)
    else:
        partitions = _check_numbers(services, topic)
    topic_id = random_uuid()
    homes = homes_for(services, partitions, planned)
    records = builders.create_topic(
        topic.name, topic_id, partitions, services.replica, configs, homes
    )
    return Planned(topic.name, topic_id, partitions, configs, records)


def homes_for(services: Services, count: int, planned: Placed | None = None) -> list[bytes]:
    """Return the directories of new partitions. Raises ClientError where all are cordoned, or too
    few file descriptors are left."""
    if not descriptors.has_spare():
        raise ClientError(
            ErrorCode.POLICY_VIOLATION,
            "The broker has too few file descriptors left for new partitions. Close connections, "
            "or raise its limit of open files (ulimit -n, LimitNOFILE= in a service).",
        )
    online = services.logs.online
    if online and all(one.cordoned for one in online):
        raise ClientError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or "
            "have all their log directories cordoned.",
        )
    return [one.id for one in services.logs.place(count, planned) if one.id is not None]


def _check_name(services: Services, name: str) -> None:
    fault = name_fault(name)
    if fault is not None:
        raise ClientError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name in services.image.topics:
        raise ClientError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = services.colliding(name)
    if other is not None:
        raise ClientError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _check_configs(services: Services, configs: Mapping[str, str | None]) -> Steps[dict[str, str]]:
    empty: list[str] = []
    kept: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            empty.append(name)
        else:
            kept[name] = value
        yield
    if empty:
        names = ", ".join(empty)
        raise ClientError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {names}"
        )
    yield from check_lengths(kept)
    try:
        validate_topic(services.config, kept)
    except ConfigError as error:
        raise ClientError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return kept


def check_lengths(configs: Mapping[str, str]) -> Steps[None]:
    """Refuse values that a record of the metadata log cannot hold. Raises ClientError."""
    for value in configs.values():
        if len(value.encode()) > STRING_LENGTH_MAX_BYTES:
            raise ClientError(
                ErrorCode.INVALID_CONFIG,
                f"A config value has more than {STRING_LENGTH_MAX_BYTES} bytes.",
            )
        yield


def _check_numbers(services: Services, topic: NewTopic) -> int:
    """The number of partitions of a topic without assignments."""
    factor, partitions = topic.replication_factor, topic.partitions
    if factor < DEFAULT or factor == 0:
        raise ClientError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < DEFAULT or partitions == 0:
        raise ClientError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    config = services.config
    if factor == DEFAULT:
        factor = config.integer("default.replication.factor")
    if factor > 1 and not config.flag("kbroker.replication.factor.clamp"):
        raise ClientError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of "
            f"{factor} cannot be reached because only 1 broker(s) are registered or some brokers "
            "have all their log directories cordoned.",
        )
    return config.integer("num.partitions") if partitions == DEFAULT else partitions


def _check_assignments(services: Services, topic: NewTopic) -> Steps[int]:
    """The number of partitions of a topic whose replicas the client placed."""
    for name, number in (
        ("replication factor", topic.replication_factor), ("numPartitions", topic.partitions),
    ):  # fmt: skip
        if number != DEFAULT:
            raise ClientError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    seen: set[int] = set()
    for index, brokers in topic.assignments:
        if index in seen:
            raise ClientError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        seen.add(index)
        yield from check_replicas(services, brokers)
    if seen != set(range(len(seen))):
        raise ClientError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(seen)


def check_replicas(services: Services, brokers: Sequence[int]) -> Steps[None]:
    """Refuse a placement other than on this broker alone. Raises ClientError."""
    node = services.config.node_id
    if not brokers:
        raise ClientError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        )
    if services.config.flag("kbroker.replication.factor.clamp"):
        return
    strange = []
    for broker in brokers:
        if broker != node:
            strange.append(broker)
        yield
    if strange:
        raise ClientError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes broker {min(strange)}, but no such broker "
            "is registered.",
        )
    if len(brokers) > 1:
        raise ClientError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes the broker {node} more than once.",
        )


def create_automatically(
    services: Services, names: Iterable[str], quota: MutationQuota | None = None
) -> Completion[list[ClientError]]:
    """Create the topics that are not there, as far as they may be: in one append, and no more
    partitions than a CreateTopics, or than the client's quota allows; the others come with the next
    request. A topic that another request has caused to be created is left out. The completion has
    why topics were refused, as soon as the others are in the metadata."""
    missing = [
        name for name in dict.fromkeys(names)
        if name not in services.image.topics and name not in services.creating
    ]  # fmt: skip
    if not missing:
        return Completion.of([])
    services.creating.update(missing)
    created = services.changes.run(_create_missing(services, missing, quota))
    created.on_done(lambda _: services.creating.difference_update(missing))
    return created


def _create_missing(
    services: Services, names: Iterable[str], quota: MutationQuota | None
) -> Steps[list[ClientError]]:
    created: list[str] = []
    refused: list[ClientError] = []
    placed: Placed = {}
    records: list[Record] = []
    left = PARTITIONS_PER_REQUEST_MAX_COUNT
    for name in names:
        yield
        if name in services.image.topics:
            continue
        try:
            topic = yield from plan_topic(services, automatic_topic(services, name), placed)
            if quota is not None:
                quota.record(topic.partitions)
        except ClientError as error:
            refused.append(error)
            continue
        left -= topic.partitions
        if left < 0:
            most = f"A request may create at most {PARTITIONS_PER_REQUEST_MAX_COUNT} partitions."
            refused.append(ClientError(ErrorCode.POLICY_VIOLATION, most))
            break
        created.append(name)
        records += topic.records
    if created:
        yield services.store.append(records, lambda: publish.create_topics(services, created))
    return refused


def automatic_topic(services: Services, name: str) -> NewTopic:
    """The topic that a metadata request for a missing name brings into being."""
    config = services.config
    if name == CONSUMER_OFFSETS:
        codec = config.integer("offsets.topic.compression.codec")
        return NewTopic(
            name,
            config.integer("offsets.topic.num.partitions"),
            1,
            {
                "cleanup.policy": "compact",
                "segment.bytes": config.text("offsets.topic.segment.bytes"),
                "compression.type": _CODECS[codec] if codec else "producer",
            },
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.integer("transaction.state.log.num.partitions"),
            1,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": config.text("transaction.state.log.segment.bytes"),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        codec = config.integer("share.coordinator.state.topic.compression.codec")
        return NewTopic(
            name,
            config.integer("share.coordinator.state.topic.num.partitions"),
            1,
            {
                "cleanup.policy": "delete",
                "compression.type": _CODECS[codec] if codec else "producer",
                "min.insync.replicas": "1",
                "retention.ms": "-1",
                "segment.bytes": config.text("share.coordinator.state.topic.segment.bytes"),
            },
        )
    return NewTopic(name)
