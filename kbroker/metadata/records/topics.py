"""Metadata records (KIP-631) of topics, partitions and configs.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class ClearElrRecord(Record):
    """Metadata record 28, version 0, flexible from 0."""

    __slots__ = ("topic_name",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ClearElrRecord", 28, (0, 0), 0,
        Field("topic_name", "string", default=""),
    )  # fmt: skip

    def __init__(
        self,
        topic_name: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.topic_name = topic_name


class ConfigRecord(Record):
    """Metadata record 4, version 0, flexible from 0."""

    __slots__ = ("name", "resource_name", "resource_type", "value")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConfigRecord", 4, (0, 0), 0,
        Field("resource_type", "int8", default=0),
        Field("resource_name", "string", default=""),
        Field("name", "string", default=""),
        Field("value", "string", nullable=0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.unknown_tags = ()
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.name = name
        self.value = value


class PartitionChangeRecord(Record):
    """Metadata record 5, versions 0-2, flexible from 0."""

    __slots__ = (
        "adding_replicas", "directories", "eligible_leader_replicas", "isr", "last_known_elr",
        "leader", "leader_recovery_state", "partition_id", "removing_replicas", "replicas",
        "topic_id",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "PartitionChangeRecord", 5, (0, 2), 0,
        Field("partition_id", "int32", default=-1),
        Field("topic_id", "uuid", default=NO_UUID),
        Field("isr", "[]int32", nullable=0, default=None, tag=0, tagged=0),
        Field("leader", "int32", default=-2, tag=1, tagged=0),
        Field("replicas", "[]int32", nullable=0, default=None, tag=2, tagged=0),
        Field("removing_replicas", "[]int32", nullable=0, default=None, tag=3, tagged=0),
        Field("adding_replicas", "[]int32", nullable=0, default=None, tag=4, tagged=0),
        Field("leader_recovery_state", "int8", default=-1, tag=5, tagged=0),
        Field("directories", "[]uuid", 1, nullable=1, default=None, tag=8, tagged=1),
        Field("eligible_leader_replicas", "[]int32", 2, nullable=2, default=None, tag=6, tagged=2),
        Field("last_known_elr", "[]int32", 2, nullable=2, default=None, tag=7, tagged=2),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        partition_id: int = -1,
        topic_id: bytes = NO_UUID,
        isr: list[int] | None = None,
        leader: int = -2,
        replicas: list[int] | None = None,
        removing_replicas: list[int] | None = None,
        adding_replicas: list[int] | None = None,
        leader_recovery_state: int = -1,
        directories: list[bytes] | None = None,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.isr = isr
        self.leader = leader
        self.replicas = replicas
        self.removing_replicas = removing_replicas
        self.adding_replicas = adding_replicas
        self.leader_recovery_state = leader_recovery_state
        self.directories = directories
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr


class PartitionRecord(Record):
    """Metadata record 3, versions 0-2, flexible from 0."""

    __slots__ = (
        "adding_replicas", "directories", "eligible_leader_replicas", "isr", "last_known_elr",
        "leader", "leader_epoch", "leader_recovery_state", "partition_epoch", "partition_id",
        "removing_replicas", "replicas", "topic_id",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "PartitionRecord", 3, (0, 2), 0,
        Field("partition_id", "int32", default=-1),
        Field("topic_id", "uuid", default=NO_UUID),
        Field("replicas", "[]int32"),
        Field("isr", "[]int32"),
        Field("removing_replicas", "[]int32"),
        Field("adding_replicas", "[]int32"),
        Field("leader", "int32", default=-1),
        Field("leader_recovery_state", "int8", default=0, tag=0, tagged=0),
        Field("leader_epoch", "int32", default=-1),
        Field("partition_epoch", "int32", default=-1),
        Field("directories", "[]uuid", 1),
        Field("eligible_leader_replicas", "[]int32", 2, nullable=2, default=None, tag=1, tagged=2),
        Field("last_known_elr", "[]int32", 2, nullable=2, default=None, tag=2, tagged=2),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        partition_id: int = -1,
        topic_id: bytes = NO_UUID,
        replicas: list[int] = EMPTY,
        isr: list[int] = EMPTY,
        removing_replicas: list[int] = EMPTY,
        adding_replicas: list[int] = EMPTY,
        leader: int = -1,
        leader_recovery_state: int = 0,
        leader_epoch: int = -1,
        partition_epoch: int = -1,
        directories: list[bytes] = EMPTY,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.partition_id = partition_id
        self.topic_id = topic_id
        self.replicas: list[int] = [] if replicas is EMPTY else replicas
        self.isr: list[int] = [] if isr is EMPTY else isr
        self.removing_replicas: list[int] = [] if removing_replicas is EMPTY else removing_replicas
        self.adding_replicas: list[int] = [] if adding_replicas is EMPTY else adding_replicas
        self.leader = leader
        self.leader_recovery_state = leader_recovery_state
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.directories: list[bytes] = [] if directories is EMPTY else directories
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr


class RemoveTopicRecord(Record):
    """Metadata record 9, version 0, flexible from 0."""

    __slots__ = ("topic_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "RemoveTopicRecord", 9, (0, 0), 0,
        Field("topic_id", "uuid", default=NO_UUID),
    )  # fmt: skip

    def __init__(
        self,
        topic_id: bytes = NO_UUID,
    ) -> None:
        self.unknown_tags = ()
        self.topic_id = topic_id


class TopicRecord(Record):
    """Metadata record 2, version 0, flexible from 0."""

    __slots__ = ("name", "topic_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicRecord", 2, (0, 0), 0,
        Field("name", "string", default=""),
        Field("topic_id", "uuid", default=NO_UUID),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = NO_UUID,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.topic_id = topic_id


METADATA: dict[int, type[Record]] = {
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    28: ClearElrRecord,
}
