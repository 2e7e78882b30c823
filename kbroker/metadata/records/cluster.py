"""Metadata records (KIP-631) of features, brokers, controllers and the log itself.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class AbortTransactionRecord(Record):
    """Metadata record 25, version 0, flexible from 0."""

    __slots__ = ("reason",)
    SCHEMA: ClassVar[Schema] = Schema(
        "AbortTransactionRecord", 25, (0, 0), 0,
        Field("reason", "string", nullable=0, default=None, tag=0, tagged=0),
    )  # fmt: skip

    def __init__(
        self,
        reason: str | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.reason = reason


class BeginTransactionRecord(Record):
    """Metadata record 23, version 0, flexible from 0."""

    __slots__ = ("name",)
    SCHEMA: ClassVar[Schema] = Schema(
        "BeginTransactionRecord", 23, (0, 0), 0,
        Field("name", "string", nullable=0, default=None, tag=0, tagged=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.name = name


class BrokerRegistrationChangeRecord(Record):
    """Metadata record 17, versions 0-3, flexible from 0."""

    __slots__ = (
        "broker_epoch", "broker_id", "cordoned_log_dirs", "fenced", "in_controlled_shutdown",
        "log_dirs",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "BrokerRegistrationChangeRecord", 17, (0, 3), 0,
        Field("broker_id", "int32", default=0),
        Field("broker_epoch", "int64", default=0),
        Field("fenced", "int8", default=0, tag=0, tagged=0),
        Field("in_controlled_shutdown", "int8", 1, default=0, tag=1, tagged=1),
        Field("log_dirs", "[]uuid", 2, tag=2, tagged=2),
        Field("cordoned_log_dirs", "[]uuid", 3, nullable=3, default=None, tag=3, tagged=3),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        broker_id: int = 0,
        broker_epoch: int = 0,
        fenced: int = 0,
        in_controlled_shutdown: int = 0,
        log_dirs: list[bytes] = EMPTY,
        cordoned_log_dirs: list[bytes] | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs: list[bytes] = [] if log_dirs is EMPTY else log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs


class EndTransactionRecord(Record):
    """Metadata record 24, version 0, flexible from 0."""

    __slots__ = ()
    SCHEMA: ClassVar[Schema] = Schema(
        "EndTransactionRecord", 24, (0, 0), 0,
    )  # fmt: skip

    def __init__(self) -> None:
        self.unknown_tags = ()


class FeatureLevelRecord(Record):
    """Metadata record 12, version 0, flexible from 0."""

    __slots__ = ("feature_level", "name")
    SCHEMA: ClassVar[Schema] = Schema(
        "FeatureLevelRecord", 12, (0, 0), 0,
        Field("name", "string", default=""),
        Field("feature_level", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        feature_level: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.feature_level = feature_level


class FenceBrokerRecord(Record):
    """Metadata record 7, version 0, flexible from 0."""

    __slots__ = ("epoch", "id")
    SCHEMA: ClassVar[Schema] = Schema(
        "FenceBrokerRecord", 7, (0, 0), 0,
        Field("id", "int32", default=0),
        Field("epoch", "int64", default=0),
    )  # fmt: skip

    def __init__(
        self,
        id: int = 0,
        epoch: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.id = id
        self.epoch = epoch


class NoOpRecord(Record):
    """Metadata record 20, version 0, flexible from 0."""

    __slots__ = ()
    SCHEMA: ClassVar[Schema] = Schema(
        "NoOpRecord", 20, (0, 0), 0,
    )  # fmt: skip

    def __init__(self) -> None:
        self.unknown_tags = ()


class ProducerIdsRecord(Record):
    """Metadata record 15, version 0, flexible from 0."""

    __slots__ = ("broker_epoch", "broker_id", "next_producer_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "ProducerIdsRecord", 15, (0, 0), 0,
        Field("broker_id", "int32", default=0),
        Field("broker_epoch", "int64", default=-1),
        Field("next_producer_id", "int64", default=0),
    )  # fmt: skip

    def __init__(
        self,
        broker_id: int = 0,
        broker_epoch: int = -1,
        next_producer_id: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.next_producer_id = next_producer_id


class BrokerEndpoint(Record):
    """A part of RegisterBrokerRecord."""

    __slots__ = ("host", "name", "port", "security_protocol")
    SCHEMA: ClassVar[Schema] = Schema(
        "BrokerEndpoint", -1, (0, 4), 0,
        Field("name", "string", default=""),
        Field("host", "string", default=""),
        Field("port", "uint16", default=0),
        Field("security_protocol", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        host: str = "",
        port: int = 0,
        security_protocol: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol


class BrokerFeature(Record):
    """A part of RegisterBrokerRecord."""

    __slots__ = ("max_supported_version", "min_supported_version", "name")
    SCHEMA: ClassVar[Schema] = Schema(
        "BrokerFeature", -1, (0, 4), 0,
        Field("name", "string", default=""),
        Field("min_supported_version", "int16", default=0),
        Field("max_supported_version", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        min_supported_version: int = 0,
        max_supported_version: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class RegisterBrokerRecord(Record):
    """Metadata record 0, versions 0-4, flexible from 0."""

    __slots__ = (
        "broker_epoch", "broker_id", "cordoned_log_dirs", "end_points", "features", "fenced",
        "in_controlled_shutdown", "incarnation_id", "is_migrating_zk_broker", "log_dirs", "rack",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "RegisterBrokerRecord", 0, (0, 4), 0,
        Field("broker_id", "int32", default=0),
        Field("is_migrating_zk_broker", "bool", 2, default=False),
        Field("incarnation_id", "uuid", default=NO_UUID),
        Field("broker_epoch", "int64", default=0),
        Field("end_points", "[]BrokerEndpoint", of=BrokerEndpoint),
        Field("features", "[]BrokerFeature", of=BrokerFeature),
        Field("rack", "string", nullable=0, default=""),
        Field("fenced", "bool", default=True),
        Field("in_controlled_shutdown", "bool", 1, default=False),
        Field("log_dirs", "[]uuid", 3, tag=0, tagged=3),
        Field("cordoned_log_dirs", "[]uuid", 4, nullable=4, default=None, tag=1, tagged=4),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        broker_id: int = 0,
        is_migrating_zk_broker: bool = False,
        incarnation_id: bytes = NO_UUID,
        broker_epoch: int = 0,
        end_points: list[BrokerEndpoint] = EMPTY,
        features: list[BrokerFeature] = EMPTY,
        rack: str | None = "",
        fenced: bool = True,
        in_controlled_shutdown: bool = False,
        log_dirs: list[bytes] = EMPTY,
        cordoned_log_dirs: list[bytes] | None = None,
    ) -> None:
        self.unknown_tags = ()
        self.broker_id = broker_id
        self.is_migrating_zk_broker = is_migrating_zk_broker
        self.incarnation_id = incarnation_id
        self.broker_epoch = broker_epoch
        self.end_points: list[BrokerEndpoint] = [] if end_points is EMPTY else end_points
        self.features: list[BrokerFeature] = [] if features is EMPTY else features
        self.rack = rack
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs: list[bytes] = [] if log_dirs is EMPTY else log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs


class ControllerEndpoint(Record):
    """A part of RegisterControllerRecord."""

    __slots__ = ("host", "name", "port", "security_protocol")
    SCHEMA: ClassVar[Schema] = Schema(
        "ControllerEndpoint", -1, (0, 0), 0,
        Field("name", "string", default=""),
        Field("host", "string", default=""),
        Field("port", "uint16", default=0),
        Field("security_protocol", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        host: str = "",
        port: int = 0,
        security_protocol: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol


class ControllerFeature(Record):
    """A part of RegisterControllerRecord."""

    __slots__ = ("max_supported_version", "min_supported_version", "name")
    SCHEMA: ClassVar[Schema] = Schema(
        "ControllerFeature", -1, (0, 0), 0,
        Field("name", "string", default=""),
        Field("min_supported_version", "int16", default=0),
        Field("max_supported_version", "int16", default=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        min_supported_version: int = 0,
        max_supported_version: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class RegisterControllerRecord(Record):
    """Metadata record 27, version 0, flexible from 0."""

    __slots__ = ("controller_id", "end_points", "features", "incarnation_id", "zk_migration_ready")
    SCHEMA: ClassVar[Schema] = Schema(
        "RegisterControllerRecord", 27, (0, 0), 0,
        Field("controller_id", "int32", default=0),
        Field("incarnation_id", "uuid", default=NO_UUID),
        Field("zk_migration_ready", "bool", default=False),
        Field("end_points", "[]ControllerEndpoint", of=ControllerEndpoint),
        Field("features", "[]ControllerFeature", of=ControllerFeature),
    )  # fmt: skip

    def __init__(
        self,
        controller_id: int = 0,
        incarnation_id: bytes = NO_UUID,
        zk_migration_ready: bool = False,
        end_points: list[ControllerEndpoint] = EMPTY,
        features: list[ControllerFeature] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.controller_id = controller_id
        self.incarnation_id = incarnation_id
        self.zk_migration_ready = zk_migration_ready
        self.end_points: list[ControllerEndpoint] = [] if end_points is EMPTY else end_points
        self.features: list[ControllerFeature] = [] if features is EMPTY else features


class UnfenceBrokerRecord(Record):
    """Metadata record 8, version 0, flexible from 0."""

    __slots__ = ("epoch", "id")
    SCHEMA: ClassVar[Schema] = Schema(
        "UnfenceBrokerRecord", 8, (0, 0), 0,
        Field("id", "int32", default=0),
        Field("epoch", "int64", default=0),
    )  # fmt: skip

    def __init__(
        self,
        id: int = 0,
        epoch: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.id = id
        self.epoch = epoch


class UnregisterBrokerRecord(Record):
    """Metadata record 1, version 0, flexible from 0."""

    __slots__ = ("broker_epoch", "broker_id")
    SCHEMA: ClassVar[Schema] = Schema(
        "UnregisterBrokerRecord", 1, (0, 0), 0,
        Field("broker_id", "int32", default=0),
        Field("broker_epoch", "int64", default=0),
    )  # fmt: skip

    def __init__(
        self,
        broker_id: int = 0,
        broker_epoch: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class ZkMigrationStateRecord(Record):
    """Metadata record 21, version 0, flexible from 0."""

    __slots__ = ("zk_migration_state",)
    SCHEMA: ClassVar[Schema] = Schema(
        "ZkMigrationStateRecord", 21, (0, 0), 0,
        Field("zk_migration_state", "int8", default=0),
    )  # fmt: skip

    def __init__(
        self,
        zk_migration_state: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.zk_migration_state = zk_migration_state


METADATA: dict[int, type[Record]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    12: FeatureLevelRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    27: RegisterControllerRecord,
}
