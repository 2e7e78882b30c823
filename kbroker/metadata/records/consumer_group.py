"""Keys and values of `__consumer_offsets`: consumer groups (KIP-848).

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class ConsumerGroupCurrentMemberAssignmentKey(Record):
    """Key of record 8, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupCurrentMemberAssignmentKey", 8, (0, 0), 32768,
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


class TopicPartitions(Record):
    """A part of ConsumerGroupCurrentMemberAssignmentValue."""

    __slots__ = ("assignment_epochs", "partitions", "topic_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicPartitions", -1, (0, 0), 0,
        Field("topic_id", "uuid", default=NO_UUID),
        Field("partitions", "[]int32"),
        Field("assignment_epochs", "[]int32", nullable=0, tag=0, tagged=0),
    )  # fmt: skip

    def __init__(
        self,
        topic_id: bytes = NO_UUID,
        partitions: list[int] = EMPTY,
        assignment_epochs: list[int] | None = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is EMPTY else partitions
        self.assignment_epochs: list[int] | None = (
            [] if assignment_epochs is EMPTY else assignment_epochs
        )


class ConsumerGroupCurrentMemberAssignmentValue(Record):
    """Value of record 8, version 0, flexible from 0."""

    __slots__ = (
        "assigned_partitions", "member_epoch", "partitions_pending_revocation",
        "previous_member_epoch", "state",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupCurrentMemberAssignmentValue", 8, (0, 0), 0,
        Field("member_epoch", "int32", default=0),
        Field("previous_member_epoch", "int32", default=0),
        Field("state", "int8", default=0),
        Field("assigned_partitions", "[]TopicPartitions", of=TopicPartitions),
        Field("partitions_pending_revocation", "[]TopicPartitions", of=TopicPartitions),
    )  # fmt: skip

    def __init__(
        self,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[TopicPartitions] = EMPTY,
        partitions_pending_revocation: list[TopicPartitions] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.assigned_partitions: list[TopicPartitions] = (
            [] if assigned_partitions is EMPTY else assigned_partitions
        )
        self.partitions_pending_revocation: list[TopicPartitions] = (
            [] if partitions_pending_revocation is EMPTY else partitions_pending_revocation
        )


class ConsumerGroupMemberMetadataKey(Record):
    """Key of record 5, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupMemberMetadataKey", 5, (0, 0), 32768,
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


class ClassicProtocol(Record):
    """A part of ConsumerGroupMemberMetadataValue."""

    __slots__ = ("metadata", "name")
    SCHEMA: ClassVar[Schema] = Schema(
        "ClassicProtocol", -1, (0, 0), 0,
        Field("name", "string", default=""),
        Field("metadata", "bytes", default=b""),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        metadata: bytes = b"",
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.metadata = metadata


class ClassicMemberMetadata(Record):
    """A part of ConsumerGroupMemberMetadataValue."""

    __slots__ = ("session_timeout_ms", "supported_protocols")
    SCHEMA: ClassVar[Schema] = Schema(
        "ClassicMemberMetadata", -1, (0, 0), 0,
        Field("session_timeout_ms", "int32", default=0),
        Field("supported_protocols", "[]ClassicProtocol", of=ClassicProtocol),
    )  # fmt: skip

    def __init__(
        self,
        session_timeout_ms: int = 0,
        supported_protocols: list[ClassicProtocol] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.session_timeout_ms = session_timeout_ms
        self.supported_protocols: list[ClassicProtocol] = (
            [] if supported_protocols is EMPTY else supported_protocols
        )


class ConsumerGroupMemberMetadataValue(Record):
    """Value of record 5, version 0, flexible from 0."""

    __slots__ = (
        "classic_member_metadata", "client_host", "client_id", "instance_id", "rack_id",
        "rebalance_timeout_ms", "server_assignor", "subscribed_topic_names",
        "subscribed_topic_regex",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupMemberMetadataValue", 5, (0, 0), 0,
        Field("instance_id", "string", nullable=0, default=""),
        Field("rack_id", "string", nullable=0, default=""),
        Field("client_id", "string", default=""),
        Field("client_host", "string", default=""),
        Field("subscribed_topic_names", "[]string"),
        Field("subscribed_topic_regex", "string", nullable=0, default=""),
        Field("rebalance_timeout_ms", "int32", default=-1),
        Field("server_assignor", "string", nullable=0, default=""),
        Field(
            "classic_member_metadata", "ClassicMemberMetadata", nullable=0, default=None, tag=0,
            tagged=0, of=ClassicMemberMetadata,
        ),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        instance_id: str | None = "",
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
        subscribed_topic_regex: str | None = "",
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = "",
        classic_member_metadata: ClassicMemberMetadata | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names: list[str] = (
            [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        )
        self.subscribed_topic_regex = subscribed_topic_regex
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.server_assignor = server_assignor
        self.classic_member_metadata = classic_member_metadata


class ConsumerGroupMetadataKey(Record):
    """Key of record 3, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupMetadataKey", 3, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class ConsumerGroupMetadataValue(Record):
    """Value of record 3, version 0, flexible from 0."""

    __slots__ = ("epoch", "metadata_hash")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupMetadataValue", 3, (0, 0), 0,
        Field("epoch", "int32", default=0),
        Field("metadata_hash", "int64", default=0, tag=0, tagged=0),
    )  # fmt: skip

    def __init__(
        self,
        epoch: int = 0,
        metadata_hash: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.epoch = epoch
        self.metadata_hash = metadata_hash


class ConsumerGroupPartitionMetadataKey(Record):
    """Key of record 4, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupPartitionMetadataKey", 4, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class PartitionMetadata(Record):
    """A part of ConsumerGroupPartitionMetadataValue."""

    __slots__ = ("partition", "racks")
    SCHEMA: ClassVar[Schema] = Schema(
        "PartitionMetadata", -1, (0, 0), 0,
        Field("partition", "int32", default=0),
        Field("racks", "[]string"),
    )  # fmt: skip

    def __init__(
        self,
        partition: int = 0,
        racks: list[str] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.partition = partition
        self.racks: list[str] = [] if racks is EMPTY else racks


class TopicMetadata(Record):
    """A part of ConsumerGroupPartitionMetadataValue."""

    __slots__ = ("num_partitions", "partition_metadata", "topic_id", "topic_name")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicMetadata", -1, (0, 0), 0,
        Field("topic_id", "uuid", default=NO_UUID),
        Field("topic_name", "string", default=""),
        Field("num_partitions", "int32", default=0),
        Field("partition_metadata", "[]PartitionMetadata", of=PartitionMetadata),
    )  # fmt: skip

    def __init__(
        self,
        topic_id: bytes = NO_UUID,
        topic_name: str = "",
        num_partitions: int = 0,
        partition_metadata: list[PartitionMetadata] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.num_partitions = num_partitions
        self.partition_metadata: list[PartitionMetadata] = (
            [] if partition_metadata is EMPTY else partition_metadata
        )


class ConsumerGroupPartitionMetadataValue(Record):
    """Value of record 4, version 0, flexible from 0."""

    __slots__ = ("topics",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupPartitionMetadataValue", 4, (0, 0), 0,
        Field("topics", "[]TopicMetadata", of=TopicMetadata),
    )  # fmt: skip

    def __init__(
        self,
        topics: list[TopicMetadata] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.topics: list[TopicMetadata] = [] if topics is EMPTY else topics


class ConsumerGroupRegularExpressionKey(Record):
    """Key of record 16, version 0."""

    __slots__ = ("group_id", "regular_expression")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupRegularExpressionKey", 16, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
        Field("regular_expression", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
        regular_expression: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id
        self.regular_expression = regular_expression


class ConsumerGroupRegularExpressionValue(Record):
    """Value of record 16, version 0, flexible from 0."""

    __slots__ = ("timestamp", "topics", "version")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupRegularExpressionValue", 16, (0, 0), 0,
        Field("topics", "[]string"),
        Field("version", "int64", default=0),
        Field("timestamp", "int64", default=0),
    )  # fmt: skip

    def __init__(
        self,
        topics: list[str] = EMPTY,
        version: int = 0,
        timestamp: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.topics: list[str] = [] if topics is EMPTY else topics
        self.version = version
        self.timestamp = timestamp


class ConsumerGroupTargetAssignmentMemberKey(Record):
    """Key of record 7, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupTargetAssignmentMemberKey", 7, (0, 0), 32768,
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


class TopicPartition(Record):
    """A part of ConsumerGroupTargetAssignmentMemberValue."""

    __slots__ = ("partitions", "topic_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicPartition", -1, (0, 0), 0,
        Field("topic_id", "uuid", default=NO_UUID),
        Field("partitions", "[]int32"),
    )  # fmt: skip

    def __init__(
        self,
        topic_id: bytes = NO_UUID,
        partitions: list[int] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is EMPTY else partitions


class ConsumerGroupTargetAssignmentMemberValue(Record):
    """Value of record 7, version 0, flexible from 0."""

    __slots__ = ("topic_partitions",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupTargetAssignmentMemberValue", 7, (0, 0), 0,
        Field("topic_partitions", "[]TopicPartition", of=TopicPartition),
    )  # fmt: skip

    def __init__(
        self,
        topic_partitions: list[TopicPartition] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.topic_partitions: list[TopicPartition] = (
            [] if topic_partitions is EMPTY else topic_partitions
        )


class ConsumerGroupTargetAssignmentMetadataKey(Record):
    """Key of record 6, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupTargetAssignmentMetadataKey", 6, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class ConsumerGroupTargetAssignmentMetadataValue(Record):
    """Value of record 6, version 0, flexible from 0."""

    __slots__ = ("assignment_epoch", "assignment_timestamp")
    SCHEMA: ClassVar[Schema] = Schema(
        "ConsumerGroupTargetAssignmentMetadataValue", 6, (0, 0), 0,
        Field("assignment_epoch", "int32", default=0),
        Field("assignment_timestamp", "int64", default=0, tag=0, tagged=0, ignorable=True),
    )  # fmt: skip

    def __init__(
        self,
        assignment_epoch: int = 0,
        assignment_timestamp: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp = assignment_timestamp


KEYS: dict[int, type[Record]] = {
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    5: ConsumerGroupMemberMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    16: ConsumerGroupRegularExpressionKey,
}

VALUES: dict[int, type[Record]] = {
    3: ConsumerGroupMetadataValue,
    4: ConsumerGroupPartitionMetadataValue,
    5: ConsumerGroupMemberMetadataValue,
    6: ConsumerGroupTargetAssignmentMetadataValue,
    7: ConsumerGroupTargetAssignmentMemberValue,
    8: ConsumerGroupCurrentMemberAssignmentValue,
    16: ConsumerGroupRegularExpressionValue,
}
