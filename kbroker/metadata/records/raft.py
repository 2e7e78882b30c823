"""The control records of a KRaft log and snapshot, and the election state file.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class KRaftVersionRecord(Record):
    """Version 0, flexible from 0."""

    __slots__ = ("kraft_version", "version")
    SCHEMA: ClassVar[Schema] = Schema(
        "KRaftVersionRecord", -1, (0, 0), 0,
        Field("version", "int16", default=0),
        Field("kraft_version", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        version: int = 0,
        kraft_version: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.version = version
        self.kraft_version = kraft_version


class LeaderChangeVoter(Record):
    """A part of LeaderChangeMessage."""

    __slots__ = ("voter_directory_id", "voter_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "LeaderChangeVoter", -1, (0, 1), 0,
        Field("voter_id", "int32", default=0),
        Field("voter_directory_id", "uuid", 1, default=NO_UUID),
    )  # fmt: skip

    def __init__(
        self,
        voter_id: int = 0,
        voter_directory_id: bytes = NO_UUID,
    ) -> None:
        self.unknown_tags = ()
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id


class LeaderChangeMessage(Record):
    """Versions 0-1, flexible from 0."""

    __slots__ = ("granting_voters", "leader_id", "version", "voters")
    SCHEMA: ClassVar[Schema] = Schema(
        "LeaderChangeMessage", -1, (0, 1), 0,
        Field("version", "int16", default=0),
        Field("leader_id", "int32", default=0),
        Field("voters", "[]Voter", of=LeaderChangeVoter),
        Field("granting_voters", "[]Voter", of=LeaderChangeVoter),
    )  # fmt: skip

    def __init__(
        self,
        version: int = 0,
        leader_id: int = 0,
        voters: list[LeaderChangeVoter] = EMPTY,
        granting_voters: list[LeaderChangeVoter] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.version = version
        self.leader_id = leader_id
        self.voters: list[LeaderChangeVoter] = [] if voters is EMPTY else voters
        self.granting_voters: list[LeaderChangeVoter] = (
            [] if granting_voters is EMPTY else granting_voters
        )


class QuorumStateDataVoter(Record):
    """A part of QuorumStateData."""

    __slots__ = ("voter_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "QuorumStateDataVoter", -1, (0, 1), 0,
        Field("voter_id", "int32", 0, 0, default=0),
    )  # fmt: skip

    def __init__(
        self,
        voter_id: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.voter_id = voter_id


class QuorumStateData(Record):
    """Versions 0-1, flexible from 0."""

    __slots__ = (
        "applied_offset", "cluster_id", "current_voters", "leader_epoch", "leader_id",
        "voted_directory_id", "voted_id",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "QuorumStateData", -1, (0, 1), 0,
        Field("cluster_id", "string", 0, 0, default=""),
        Field("leader_id", "int32", default=-1),
        Field("leader_epoch", "int32", default=-1),
        Field("voted_id", "int32", default=-1),
        Field("voted_directory_id", "uuid", 1, default=NO_UUID),
        Field("applied_offset", "int64", 0, 0, default=0),
        Field("current_voters", "[]Voter", 0, 0, nullable=0, of=QuorumStateDataVoter),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        cluster_id: str = "",
        leader_id: int = -1,
        leader_epoch: int = -1,
        voted_id: int = -1,
        voted_directory_id: bytes = NO_UUID,
        applied_offset: int = 0,
        current_voters: list[QuorumStateDataVoter] | None = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.cluster_id = cluster_id
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.voted_id = voted_id
        self.voted_directory_id = voted_directory_id
        self.applied_offset = applied_offset
        self.current_voters: list[QuorumStateDataVoter] | None = (
            [] if current_voters is EMPTY else current_voters
        )


class SnapshotFooterRecord(Record):
    """Version 0, flexible from 0."""

    __slots__ = ("version",)
    SCHEMA: ClassVar[Schema] = Schema(
        "SnapshotFooterRecord", -1, (0, 0), 0,
        Field("version", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        version: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.version = version


class SnapshotHeaderRecord(Record):
    """Version 0, flexible from 0."""

    __slots__ = ("last_contained_log_timestamp", "version")
    SCHEMA: ClassVar[Schema] = Schema(
        "SnapshotHeaderRecord", -1, (0, 0), 0,
        Field("version", "int16", default=0),
        Field("last_contained_log_timestamp", "int64", default=0),
    )  # fmt: skip

    def __init__(
        self,
        version: int = 0,
        last_contained_log_timestamp: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.version = version
        self.last_contained_log_timestamp = last_contained_log_timestamp


class Endpoint(Record):
    """A part of VotersRecord."""

    __slots__ = ("host", "name", "port")
    SCHEMA: ClassVar[Schema] = Schema(
        "Endpoint", -1, (0, 0), 0,
        Field("name", "string", default=""),
        Field("host", "string", default=""),
        Field("port", "uint16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        host: str = "",
        port: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.host = host
        self.port = port


class KRaftVersionFeature(Record):
    """A part of VotersRecord."""

    __slots__ = ("max_supported_version", "min_supported_version")
    SCHEMA: ClassVar[Schema] = Schema(
        "KRaftVersionFeature", -1, (0, 0), 0,
        Field("min_supported_version", "int16", default=0),
        Field("max_supported_version", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        min_supported_version: int = 0,
        max_supported_version: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class VotersVoter(Record):
    """A part of VotersRecord."""

    __slots__ = ("endpoints", "kraft_version_feature", "voter_directory_id", "voter_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "VotersVoter", -1, (0, 0), 0,
        Field("voter_id", "int32", default=0),
        Field("voter_directory_id", "uuid", default=NO_UUID),
        Field("endpoints", "[]Endpoint", of=Endpoint),
        Field("kraft_version_feature", "KRaftVersionFeature", default=None, of=KRaftVersionFeature),
    )  # fmt: skip

    def __init__(
        self,
        voter_id: int = 0,
        voter_directory_id: bytes = NO_UUID,
        endpoints: list[Endpoint] = EMPTY,
        kraft_version_feature: KRaftVersionFeature | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.endpoints: list[Endpoint] = [] if endpoints is EMPTY else endpoints
        self.kraft_version_feature = (
            KRaftVersionFeature() if kraft_version_feature is None else kraft_version_feature
        )


class VotersRecord(Record):
    """Version 0, flexible from 0."""

    __slots__ = ("version", "voters")
    SCHEMA: ClassVar[Schema] = Schema(
        "VotersRecord", -1, (0, 0), 0,
        Field("version", "int16", default=0),
        Field("voters", "[]Voter", of=VotersVoter),
    )  # fmt: skip

    def __init__(
        self,
        version: int = 0,
        voters: list[VotersVoter] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.version = version
        self.voters: list[VotersVoter] = [] if voters is EMPTY else voters
