"""Keys and values of `__consumer_offsets`: share groups (KIP-932).

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class ShareGroupCurrentMemberAssignmentKey(Record):
    """Key of record 14, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupCurrentMemberAssignmentKey", 14, (0, 0), 32768,
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
    """A part of ShareGroupCurrentMemberAssignmentValue."""

    __slots__ = ("partitions", "topic_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicPartitions", -1, (0, 0), 0,
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


class ShareGroupCurrentMemberAssignmentValue(Record):
    """Value of record 14, version 0, flexible from 0."""

    __slots__ = ("assigned_partitions", "member_epoch", "previous_member_epoch", "state")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupCurrentMemberAssignmentValue", 14, (0, 0), 0,
        Field("member_epoch", "int32", default=0),
        Field("previous_member_epoch", "int32", default=0),
        Field("state", "int8", default=0),
        Field("assigned_partitions", "[]TopicPartitions", of=TopicPartitions),
    )  # fmt: skip

    def __init__(
        self,
        member_epoch: int = 0,
        previous_member_epoch: int = 0,
        state: int = 0,
        assigned_partitions: list[TopicPartitions] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.member_epoch = member_epoch
        self.previous_member_epoch = previous_member_epoch
        self.state = state
        self.assigned_partitions: list[TopicPartitions] = (
            [] if assigned_partitions is EMPTY else assigned_partitions
        )


class ShareGroupMemberMetadataKey(Record):
    """Key of record 10, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupMemberMetadataKey", 10, (0, 0), 32768,
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


class ShareGroupMemberMetadataValue(Record):
    """Value of record 10, version 0, flexible from 0."""

    __slots__ = ("client_host", "client_id", "rack_id", "subscribed_topic_names")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupMemberMetadataValue", 10, (0, 0), 0,
        Field("rack_id", "string", nullable=0, default=""),
        Field("client_id", "string", default=""),
        Field("client_host", "string", default=""),
        Field("subscribed_topic_names", "[]string"),
    )  # fmt: skip

    def __init__(
        self,
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names: list[str] = (
            [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        )


class ShareGroupMetadataKey(Record):
    """Key of record 11, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupMetadataKey", 11, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class ShareGroupMetadataValue(Record):
    """Value of record 11, version 0, flexible from 0."""

    __slots__ = ("epoch", "metadata_hash")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupMetadataValue", 11, (0, 0), 0,
        Field("epoch", "int32", default=0),
        Field("metadata_hash", "int64", default=0),
    )  # fmt: skip

    def __init__(
        self,
        epoch: int = 0,
        metadata_hash: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.epoch = epoch
        self.metadata_hash = metadata_hash


class ShareGroupStatePartitionMetadataKey(Record):
    """Key of record 15, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupStatePartitionMetadataKey", 15, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class TopicPartitionsInfo(Record):
    """A part of ShareGroupStatePartitionMetadataValue."""

    __slots__ = ("partitions", "topic_id", "topic_name")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicPartitionsInfo", -1, (0, 0), 0,
        Field("topic_id", "uuid", default=NO_UUID),
        Field("topic_name", "string", default=""),
        Field("partitions", "[]int32"),
    )  # fmt: skip

    def __init__(
        self,
        topic_id: bytes = NO_UUID,
        topic_name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions: list[int] = [] if partitions is EMPTY else partitions


class TopicInfo(Record):
    """A part of ShareGroupStatePartitionMetadataValue."""

    __slots__ = ("topic_id", "topic_name")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicInfo", -1, (0, 0), 0,
        Field("topic_id", "uuid", default=NO_UUID),
        Field("topic_name", "string", default=""),
    )  # fmt: skip

    def __init__(
        self,
        topic_id: bytes = NO_UUID,
        topic_name: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.topic_id = topic_id
        self.topic_name = topic_name


class ShareGroupStatePartitionMetadataValue(Record):
    """Value of record 15, version 0, flexible from 0."""

    __slots__ = ("deleting_topics", "initialized_topics", "initializing_topics")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupStatePartitionMetadataValue", 15, (0, 0), 0,
        Field("initializing_topics", "[]TopicPartitionsInfo", of=TopicPartitionsInfo),
        Field("initialized_topics", "[]TopicPartitionsInfo", of=TopicPartitionsInfo),
        Field("deleting_topics", "[]TopicInfo", of=TopicInfo),
    )  # fmt: skip

    def __init__(
        self,
        initializing_topics: list[TopicPartitionsInfo] = EMPTY,
        initialized_topics: list[TopicPartitionsInfo] = EMPTY,
        deleting_topics: list[TopicInfo] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.initializing_topics: list[TopicPartitionsInfo] = (
            [] if initializing_topics is EMPTY else initializing_topics
        )
        self.initialized_topics: list[TopicPartitionsInfo] = (
            [] if initialized_topics is EMPTY else initialized_topics
        )
        self.deleting_topics: list[TopicInfo] = [] if deleting_topics is EMPTY else deleting_topics


class ShareGroupTargetAssignmentMemberKey(Record):
    """Key of record 13, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupTargetAssignmentMemberKey", 13, (0, 0), 32768,
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
    """A part of ShareGroupTargetAssignmentMemberValue."""

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


class ShareGroupTargetAssignmentMemberValue(Record):
    """Value of record 13, version 0, flexible from 0."""

    __slots__ = ("topic_partitions",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupTargetAssignmentMemberValue", 13, (0, 0), 0,
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


class ShareGroupTargetAssignmentMetadataKey(Record):
    """Key of record 12, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupTargetAssignmentMetadataKey", 12, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class ShareGroupTargetAssignmentMetadataValue(Record):
    """Value of record 12, version 0, flexible from 0."""

    __slots__ = ("assignment_epoch", "assignment_timestamp")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareGroupTargetAssignmentMetadataValue", 12, (0, 0), 0,
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
    10: ShareGroupMemberMetadataKey,
    11: ShareGroupMetadataKey,
    12: ShareGroupTargetAssignmentMetadataKey,
    13: ShareGroupTargetAssignmentMemberKey,
    14: ShareGroupCurrentMemberAssignmentKey,
    15: ShareGroupStatePartitionMetadataKey,
}

VALUES: dict[int, type[Record]] = {
    10: ShareGroupMemberMetadataValue,
    11: ShareGroupMetadataValue,
    12: ShareGroupTargetAssignmentMetadataValue,
    13: ShareGroupTargetAssignmentMemberValue,
    14: ShareGroupCurrentMemberAssignmentValue,
    15: ShareGroupStatePartitionMetadataValue,
}
