"""Keys and values of `__consumer_offsets`: committed offsets and classic groups.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class GroupMetadataKey(Record):
    """Key of record 2, version 0."""

    __slots__ = ("group",)
    SCHEMA: ClassVar[Schema] = Schema(
        "GroupMetadataKey", 2, (0, 0), 32768,
        Field("group", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group = group


class MemberMetadata(Record):
    """A part of GroupMetadataValue."""

    __slots__ = (
        "assignment", "client_host", "client_id", "group_instance_id", "member_id",
        "rebalance_timeout", "session_timeout", "subscription",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "MemberMetadata", -1, (0, 4), 4,
        Field("member_id", "string", default=""),
        Field("group_instance_id", "string", 3, nullable=3, default=None, ignorable=True),
        Field("client_id", "string", default=""),
        Field("client_host", "string", default=""),
        Field("rebalance_timeout", "int32", 1, default=-1, ignorable=True),
        Field("session_timeout", "int32", default=0),
        Field("subscription", "bytes", default=b""),
        Field("assignment", "bytes", default=b""),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        rebalance_timeout: int = -1,
        session_timeout: int = 0,
        subscription: bytes = b"",
        assignment: bytes = b"",
    ) -> None:
        self.unknown_tags = ()
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout = rebalance_timeout
        self.session_timeout = session_timeout
        self.subscription = subscription
        self.assignment = assignment


class GroupMetadataValue(Record):
    """Value of record 2, versions 0-4, flexible from 4."""

    __slots__ = (
        "current_state_timestamp", "generation", "leader", "members", "protocol", "protocol_type",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "GroupMetadataValue", 2, (0, 4), 4,
        Field("protocol_type", "string", default=""),
        Field("generation", "int32", default=0),
        Field("protocol", "string", nullable=0, default=""),
        Field("leader", "string", nullable=0, default=""),
        Field("current_state_timestamp", "int64", 2, default=-1, ignorable=True),
        Field("members", "[]MemberMetadata", of=MemberMetadata),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        protocol_type: str = "",
        generation: int = 0,
        protocol: str | None = "",
        leader: str | None = "",
        current_state_timestamp: int = -1,
        members: list[MemberMetadata] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.protocol_type = protocol_type
        self.generation = generation
        self.protocol = protocol
        self.leader = leader
        self.current_state_timestamp = current_state_timestamp
        self.members: list[MemberMetadata] = [] if members is EMPTY else members


class LegacyOffsetCommitKey(Record):
    """Key of record 0, version 0."""

    __slots__ = ("group", "partition", "topic")
    SCHEMA: ClassVar[Schema] = Schema(
        "LegacyOffsetCommitKey", 0, (0, 0), 32768,
        Field("group", "string", 0, 0, default=""),
        Field("topic", "string", 0, 0, default=""),
        Field("partition", "int32", 0, 0, default=0),
    )  # fmt: skip

    def __init__(
        self,
        group: str = "",
        topic: str = "",
        partition: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.group = group
        self.topic = topic
        self.partition = partition


class LegacyOffsetCommitValue(Record):
    """Value of record 0, version 0."""

    __slots__ = ("commit_timestamp", "metadata", "offset")
    SCHEMA: ClassVar[Schema] = Schema(
        "LegacyOffsetCommitValue", 0, (0, 0), 32768,
        Field("offset", "int64", 0, 0, default=0),
        Field("metadata", "string", 0, 0, default=""),
        Field("commit_timestamp", "int64", 0, 0, default=0),
    )  # fmt: skip

    def __init__(
        self,
        offset: int = 0,
        metadata: str = "",
        commit_timestamp: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.offset = offset
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp


class OffsetCommitKey(Record):
    """Key of record 1, version 0."""

    __slots__ = ("group", "partition", "topic")
    SCHEMA: ClassVar[Schema] = Schema(
        "OffsetCommitKey", 1, (0, 0), 32768,
        Field("group", "string", 0, 0, default=""),
        Field("topic", "string", 0, 0, default=""),
        Field("partition", "int32", 0, 0, default=0),
    )  # fmt: skip

    def __init__(
        self,
        group: str = "",
        topic: str = "",
        partition: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.group = group
        self.topic = topic
        self.partition = partition


class OffsetCommitValue(Record):
    """Value of record 1, versions 0-4, flexible from 4."""

    __slots__ = (
        "commit_timestamp", "expire_timestamp", "leader_epoch", "metadata", "offset", "topic_id",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "OffsetCommitValue", 1, (0, 4), 4,
        Field("offset", "int64", default=0),
        Field("leader_epoch", "int32", 3, default=-1, ignorable=True),
        Field("metadata", "string", default=""),
        Field("commit_timestamp", "int64", default=0),
        Field("expire_timestamp", "int64", 1, 1, default=-1, ignorable=True),
        Field("topic_id", "uuid", 4, default=NO_UUID, tag=0, tagged=4, ignorable=True),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        offset: int = 0,
        leader_epoch: int = -1,
        metadata: str = "",
        commit_timestamp: int = 0,
        expire_timestamp: int = -1,
        topic_id: bytes = NO_UUID,
    ) -> None:
        self.unknown_tags = ()
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.expire_timestamp = expire_timestamp
        self.topic_id = topic_id


KEYS: dict[int, type[Record]] = {
    0: LegacyOffsetCommitKey,
    1: OffsetCommitKey,
    2: GroupMetadataKey,
}

VALUES: dict[int, type[Record]] = {
    0: LegacyOffsetCommitValue,
    1: OffsetCommitValue,
    2: GroupMetadataValue,
}
