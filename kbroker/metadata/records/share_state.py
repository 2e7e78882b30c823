"""Keys and values of `__share_group_state` (KIP-932).

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class ShareSnapshotKey(Record):
    """Key of record 0, version 0."""

    __slots__ = ("group_id", "partition", "topic_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareSnapshotKey", 0, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
        Field("topic_id", "uuid", 0, 0, default=NO_UUID),
        Field("partition", "int32", 0, 0, default=0),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
        topic_id: bytes = NO_UUID,
        partition: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition


class ShareSnapshotStateBatch(Record):
    """A part of ShareSnapshotValue."""

    __slots__ = ("delivery_count", "delivery_state", "first_offset", "last_offset")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareSnapshotStateBatch", -1, (0, 0), 0,
        Field("first_offset", "int64", default=0),
        Field("last_offset", "int64", default=0),
        Field("delivery_state", "int8", default=0),
        Field("delivery_count", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class ShareSnapshotValue(Record):
    """Value of record 0, version 0, flexible from 0."""

    __slots__ = (
        "create_timestamp", "delivery_complete_count", "leader_epoch", "snapshot_epoch",
        "start_offset", "state_batches", "state_epoch", "write_timestamp",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareSnapshotValue", 0, (0, 0), 0,
        Field("snapshot_epoch", "int32", default=0),
        Field("state_epoch", "int32", default=0),
        Field("leader_epoch", "int32", default=0),
        Field("start_offset", "int64", default=0),
        Field("delivery_complete_count", "int32", default=-1, tag=0, tagged=0),
        Field("create_timestamp", "int64", default=0),
        Field("write_timestamp", "int64", default=0),
        Field("state_batches", "[]StateBatch", of=ShareSnapshotStateBatch),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        snapshot_epoch: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        create_timestamp: int = 0,
        write_timestamp: int = 0,
        state_batches: list[ShareSnapshotStateBatch] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.snapshot_epoch = snapshot_epoch
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.create_timestamp = create_timestamp
        self.write_timestamp = write_timestamp
        self.state_batches: list[ShareSnapshotStateBatch] = (
            [] if state_batches is EMPTY else state_batches
        )


class ShareUpdateKey(Record):
    """Key of record 1, version 0."""

    __slots__ = ("group_id", "partition", "topic_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareUpdateKey", 1, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
        Field("topic_id", "uuid", 0, 0, default=NO_UUID),
        Field("partition", "int32", 0, 0, default=0),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
        topic_id: bytes = NO_UUID,
        partition: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition


class ShareUpdateStateBatch(Record):
    """A part of ShareUpdateValue."""

    __slots__ = ("delivery_count", "delivery_state", "first_offset", "last_offset")
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareUpdateStateBatch", -1, (0, 0), 0,
        Field("first_offset", "int64", default=0),
        Field("last_offset", "int64", default=0),
        Field("delivery_state", "int8", default=0),
        Field("delivery_count", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class ShareUpdateValue(Record):
    """Value of record 1, version 0, flexible from 0."""

    __slots__ = (
        "delivery_complete_count", "leader_epoch", "snapshot_epoch", "start_offset",
        "state_batches",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "ShareUpdateValue", 1, (0, 0), 0,
        Field("snapshot_epoch", "int32", default=0),
        Field("leader_epoch", "int32", default=0),
        Field("start_offset", "int64", default=0),
        Field("delivery_complete_count", "int32", default=-1, tag=0, tagged=0),
        Field("state_batches", "[]StateBatch", of=ShareUpdateStateBatch),
    )  # fmt: skip

    def __init__(
        self,
        snapshot_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[ShareUpdateStateBatch] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.snapshot_epoch = snapshot_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.state_batches: list[ShareUpdateStateBatch] = (
            [] if state_batches is EMPTY else state_batches
        )


KEYS: dict[int, type[Record]] = {
    0: ShareSnapshotKey,
    1: ShareUpdateKey,
}

VALUES: dict[int, type[Record]] = {
    0: ShareSnapshotValue,
    1: ShareUpdateValue,
}
