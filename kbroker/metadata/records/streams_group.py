"""Keys and values of `__consumer_offsets`: streams groups (KIP-1071) and their members.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, Field, Record, Schema


class StreamsGroupCurrentMemberAssignmentKey(Record):
    """Key of record 22, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupCurrentMemberAssignmentKey", 22, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
        Field("member_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id
        self.member_id = member_id


class TaskIds(Record):
    """A part of StreamsGroupCurrentMemberAssignmentValue."""

    __slots__ = ("assignment_epochs", "partitions", "subtopology_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "TaskIds", -1, (0, 0), 0,
        Field("subtopology_id", "string", default=""),
        Field("partitions", "[]int32"),
        Field("assignment_epochs", "[]int32", nullable=0, tag=0, tagged=0),
    )  # fmt: skip

    def __init__(
        self,
        subtopology_id: str = "",
        partitions: list[int] = EMPTY,
        assignment_epochs: list[int] | None = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.subtopology_id = subtopology_id
        self.partitions: list[int] = [] if partitions is EMPTY else partitions
        self.assignment_epochs: list[int] | None = (
            [] if assignment_epochs is EMPTY else assignment_epochs
        )


class StreamsGroupCurrentMemberAssignmentValue(Record):
    """Value of record 22, version 0, flexible from 0."""

    __slots__ = (
        "active_tasks", "active_tasks_pending_revocation", "member_epoch", "previous_member_epoch",
        "standby_tasks", "standby_tasks_pending_revocation", "state", "warmup_tasks",
        "warmup_tasks_pending_revocation",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupCurrentMemberAssignmentValue", 22, (0, 0), 0,
        Field("member_epoch", "int32", default=0),
        Field("previous_member_epoch", "int32", default=0),
        Field("state", "int8", default=0),
        Field("active_tasks", "[]TaskIds", of=TaskIds),
        Field("standby_tasks", "[]TaskIds", of=TaskIds),
        Field("warmup_tasks", "[]TaskIds", of=TaskIds),
        Field("active_tasks_pending_revocation", "[]TaskIds", of=TaskIds),
        Field("standby_tasks_pending_revocation", "[]TaskIds", of=TaskIds),
        Field("warmup_tasks_pending_revocation", "[]TaskIds", of=TaskIds),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        active_tasks: list[TaskIds] = EMPTY,
        standby_tasks: list[TaskIds] = EMPTY,
        warmup_tasks: list[TaskIds] = EMPTY,
        active_tasks_pending_revocation: list[TaskIds] = EMPTY,
        standby_tasks_pending_revocation: list[TaskIds] = EMPTY,
        warmup_tasks_pending_revocation: list[TaskIds] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.active_tasks: list[TaskIds] = [] if active_tasks is EMPTY else active_tasks
        self.standby_tasks: list[TaskIds] = [] if standby_tasks is EMPTY else standby_tasks
        self.warmup_tasks: list[TaskIds] = [] if warmup_tasks is EMPTY else warmup_tasks
        self.active_tasks_pending_revocation: list[TaskIds] = (
            [] if active_tasks_pending_revocation is EMPTY else active_tasks_pending_revocation
        )
        self.standby_tasks_pending_revocation: list[TaskIds] = (
            [] if standby_tasks_pending_revocation is EMPTY else standby_tasks_pending_revocation
        )
        self.warmup_tasks_pending_revocation: list[TaskIds] = (
            [] if warmup_tasks_pending_revocation is EMPTY else warmup_tasks_pending_revocation
        )


class StreamsGroupMemberMetadataKey(Record):
    """Key of record 19, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupMemberMetadataKey", 19, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
        Field("member_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id
        self.member_id = member_id


class Endpoint(Record):
    """A part of StreamsGroupMemberMetadataValue."""

    __slots__ = ("host", "port")
    SCHEMA: ClassVar[Schema] = Schema(
        "Endpoint", -1, (0, 0), 0,
        Field("host", "string", default=""),
        Field("port", "uint16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.host = host
        self.port = port


class KeyValue(Record):
    """A part of StreamsGroupMemberMetadataValue."""

    __slots__ = ("key", "value")
    SCHEMA: ClassVar[Schema] = Schema(
        "KeyValue", -1, (0, 0), 0,
        Field("key", "string", default=""),
        Field("value", "string", default=""),
    )  # fmt: skip

    def __init__(
        self,
        key: str = "",
        value: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.key = key
        self.value = value


class StreamsGroupMemberMetadataValue(Record):
    """Value of record 19, version 0, flexible from 0."""

    __slots__ = (
        "client_host", "client_id", "client_tags", "instance_id", "process_id", "rack_id",
        "rebalance_timeout_ms", "topology_epoch", "user_endpoint",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupMemberMetadataValue", 19, (0, 0), 0,
        Field("instance_id", "string", nullable=0, default=""),
        Field("rack_id", "string", nullable=0, default=""),
        Field("client_id", "string", default=""),
        Field("client_host", "string", default=""),
        Field("rebalance_timeout_ms", "int32", default=-1),
        Field("topology_epoch", "int32", default=0),
        Field("process_id", "string", default=""),
        Field("user_endpoint", "Endpoint", nullable=0, default=None, of=Endpoint),
        Field("client_tags", "[]KeyValue", of=KeyValue),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        instance_id: str | None = "",
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout_ms: int = -1,
        topology_epoch: int = 0,
        process_id: str = "",
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topology_epoch = topology_epoch
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags: list[KeyValue] = [] if client_tags is EMPTY else client_tags


class StreamsGroupMetadataKey(Record):
    """Key of record 17, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupMetadataKey", 17, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class LastAssignmentConfig(Record):
    """A part of StreamsGroupMetadataValue."""

    __slots__ = ("key", "value")
    SCHEMA: ClassVar[Schema] = Schema(
        "LastAssignmentConfig", -1, (0, 0), 0,
        Field("key", "string", default=""),
        Field("value", "string", default=""),
    )  # fmt: skip

    def __init__(
        self,
        key: str = "",
        value: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.key = key
        self.value = value


class StreamsGroupMetadataValue(Record):
    """Value of record 17, version 0, flexible from 0."""

    __slots__ = ("epoch", "last_assignment_configs", "metadata_hash", "validated_topology_epoch")
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupMetadataValue", 17, (0, 0), 0,
        Field("epoch", "int32", default=0),
        Field("metadata_hash", "int64", default=0),
        Field("validated_topology_epoch", "int32", default=-1, tag=0, tagged=0),
        Field(
            "last_assignment_configs", "[]LastAssignmentConfig", nullable=0, tag=1, tagged=0,
            of=LastAssignmentConfig,
        ),
    )  # fmt: skip

    def __init__(
        self,
        epoch: int = 0,
        metadata_hash: int = 0,
        validated_topology_epoch: int = -1,
        last_assignment_configs: list[LastAssignmentConfig] | None = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self.validated_topology_epoch = validated_topology_epoch
        self.last_assignment_configs: list[LastAssignmentConfig] | None = (
            [] if last_assignment_configs is EMPTY else last_assignment_configs
        )


KEYS: dict[int, type[Record]] = {
    17: StreamsGroupMetadataKey,
    19: StreamsGroupMemberMetadataKey,
    22: StreamsGroupCurrentMemberAssignmentKey,
}

VALUES: dict[int, type[Record]] = {
    17: StreamsGroupMetadataValue,
    19: StreamsGroupMemberMetadataValue,
    22: StreamsGroupCurrentMemberAssignmentValue,
}
