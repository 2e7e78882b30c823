"""Keys and values of `__consumer_offsets`: topologies and targets of streams groups.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, Field, Record, Schema


class StreamsGroupTargetAssignmentMemberKey(Record):
    """Key of record 21, version 0."""

    __slots__ = ("group_id", "member_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupTargetAssignmentMemberKey", 21, (0, 0), 32768,
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
    """A part of StreamsGroupTargetAssignmentMemberValue."""

    __slots__ = ("partitions", "subtopology_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "TaskIds", -1, (0, 0), 0,
        Field("subtopology_id", "string", default=""),
        Field("partitions", "[]int32"),
    )  # fmt: skip

    def __init__(
        self,
        subtopology_id: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.subtopology_id = subtopology_id
        self.partitions: list[int] = [] if partitions is EMPTY else partitions


class StreamsGroupTargetAssignmentMemberValue(Record):
    """Value of record 21, version 0, flexible from 0."""

    __slots__ = ("active_tasks", "standby_tasks", "warmup_tasks")
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupTargetAssignmentMemberValue", 21, (0, 0), 0,
        Field("active_tasks", "[]TaskIds", of=TaskIds),
        Field("standby_tasks", "[]TaskIds", of=TaskIds),
        Field("warmup_tasks", "[]TaskIds", of=TaskIds),
    )  # fmt: skip

    def __init__(
        self,
        active_tasks: list[TaskIds] = EMPTY,
        standby_tasks: list[TaskIds] = EMPTY,
        warmup_tasks: list[TaskIds] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.active_tasks: list[TaskIds] = [] if active_tasks is EMPTY else active_tasks
        self.standby_tasks: list[TaskIds] = [] if standby_tasks is EMPTY else standby_tasks
        self.warmup_tasks: list[TaskIds] = [] if warmup_tasks is EMPTY else warmup_tasks


class StreamsGroupTargetAssignmentMetadataKey(Record):
    """Key of record 20, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupTargetAssignmentMetadataKey", 20, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class StreamsGroupTargetAssignmentMetadataValue(Record):
    """Value of record 20, version 0, flexible from 0."""

    __slots__ = ("assignment_epoch", "assignment_timestamp")
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupTargetAssignmentMetadataValue", 20, (0, 0), 0,
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


class StreamsGroupTopologyKey(Record):
    """Key of record 23, version 0."""

    __slots__ = ("group_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupTopologyKey", 23, (0, 0), 32768,
        Field("group_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        group_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.group_id = group_id


class TopicConfig(Record):
    """A part of StreamsGroupTopologyValue."""

    __slots__ = ("key", "value")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicConfig", -1, (0, 0), 0,
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


class TopicInfo(Record):
    """A part of StreamsGroupTopologyValue."""

    __slots__ = ("name", "partitions", "replication_factor", "topic_configs")
    SCHEMA: ClassVar[Schema] = Schema(
        "TopicInfo", -1, (0, 0), 0,
        Field("name", "string", default=""),
        Field("partitions", "int32", default=0),
        Field("replication_factor", "int16", default=0),
        Field("topic_configs", "[]TopicConfig", of=TopicConfig),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        partitions: int = 0,
        replication_factor: int = 0,
        topic_configs: list[TopicConfig] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.topic_configs: list[TopicConfig] = [] if topic_configs is EMPTY else topic_configs


class CopartitionGroup(Record):
    """A part of StreamsGroupTopologyValue."""

    __slots__ = ("repartition_source_topics", "source_topic_regex", "source_topics")
    SCHEMA: ClassVar[Schema] = Schema(
        "CopartitionGroup", -1, (0, 0), 0,
        Field("source_topics", "[]int16"),
        Field("source_topic_regex", "[]int16"),
        Field("repartition_source_topics", "[]int16"),
    )  # fmt: skip

    def __init__(
        self,
        source_topics: list[int] = EMPTY,
        source_topic_regex: list[int] = EMPTY,
        repartition_source_topics: list[int] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.source_topics: list[int] = [] if source_topics is EMPTY else source_topics
        self.source_topic_regex: list[int] = (
            [] if source_topic_regex is EMPTY else source_topic_regex
        )
        self.repartition_source_topics: list[int] = (
            [] if repartition_source_topics is EMPTY else repartition_source_topics
        )


class Subtopology(Record):
    """A part of StreamsGroupTopologyValue."""

    __slots__ = (
        "copartition_groups", "repartition_sink_topics", "repartition_source_topics",
        "source_topic_regex", "source_topics", "state_changelog_topics", "subtopology_id",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "Subtopology", -1, (0, 0), 0,
        Field("subtopology_id", "string", default=""),
        Field("source_topics", "[]string"),
        Field("source_topic_regex", "[]string"),
        Field("state_changelog_topics", "[]TopicInfo", of=TopicInfo),
        Field("repartition_sink_topics", "[]string"),
        Field("repartition_source_topics", "[]TopicInfo", of=TopicInfo),
        Field("copartition_groups", "[]CopartitionGroup", of=CopartitionGroup),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        subtopology_id: str = "",
        source_topics: list[str] = EMPTY,
        source_topic_regex: list[str] = EMPTY,
        state_changelog_topics: list[TopicInfo] = EMPTY,
        repartition_sink_topics: list[str] = EMPTY,
        repartition_source_topics: list[TopicInfo] = EMPTY,
        copartition_groups: list[CopartitionGroup] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.subtopology_id = subtopology_id
        self.source_topics: list[str] = [] if source_topics is EMPTY else source_topics
        self.source_topic_regex: list[str] = (
            [] if source_topic_regex is EMPTY else source_topic_regex
        )
        self.state_changelog_topics: list[TopicInfo] = (
            [] if state_changelog_topics is EMPTY else state_changelog_topics
        )
        self.repartition_sink_topics: list[str] = (
            [] if repartition_sink_topics is EMPTY else repartition_sink_topics
        )
        self.repartition_source_topics: list[TopicInfo] = (
            [] if repartition_source_topics is EMPTY else repartition_source_topics
        )
        self.copartition_groups: list[CopartitionGroup] = (
            [] if copartition_groups is EMPTY else copartition_groups
        )


class StreamsGroupTopologyValue(Record):
    """Value of record 23, version 0, flexible from 0."""

    __slots__ = ("epoch", "subtopologies")
    SCHEMA: ClassVar[Schema] = Schema(
        "StreamsGroupTopologyValue", 23, (0, 0), 0,
        Field("epoch", "int32", default=0),
        Field("subtopologies", "[]Subtopology", of=Subtopology),
    )  # fmt: skip

    def __init__(
        self,
        epoch: int = 0,
        subtopologies: list[Subtopology] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.epoch = epoch
        self.subtopologies: list[Subtopology] = [] if subtopologies is EMPTY else subtopologies


KEYS: dict[int, type[Record]] = {
    20: StreamsGroupTargetAssignmentMetadataKey,
    21: StreamsGroupTargetAssignmentMemberKey,
    23: StreamsGroupTopologyKey,
}

VALUES: dict[int, type[Record]] = {
    20: StreamsGroupTargetAssignmentMetadataValue,
    21: StreamsGroupTargetAssignmentMemberValue,
    23: StreamsGroupTopologyValue,
}
