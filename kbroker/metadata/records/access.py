"""Metadata records (KIP-631) of ACLs, SCRAM credentials, delegation tokens and quotas.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, NO_UUID, Field, Record, Schema


class AccessControlEntryRecord(Record):
    """Metadata record 18, version 0, flexible from 0."""

    __slots__ = (
        "host", "id", "operation", "pattern_type", "permission_type", "principal", "resource_name",
        "resource_type",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "AccessControlEntryRecord", 18, (0, 0), 0,
        Field("id", "uuid", default=NO_UUID),
        Field("resource_type", "int8", default=0),
        Field("resource_name", "string", default=""),
        Field("pattern_type", "int8", default=0),
        Field("principal", "string", default=""),
        Field("host", "string", default=""),
        Field("operation", "int8", default=0),
        Field("permission_type", "int8", default=0),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        id: bytes = NO_UUID,
        resource_type: int = 0,
        resource_name: str = "",
        pattern_type: int = 0,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.id = id
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.pattern_type = pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class EntityData(Record):
    """A part of ClientQuotaRecord."""

    __slots__ = ("entity_name", "entity_type")
    SCHEMA: ClassVar[Schema] = Schema(
        "EntityData", -1, (0, 0), 0,
        Field("entity_type", "string", default=""),
        Field("entity_name", "string", nullable=0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        entity_type: str = "",
        entity_name: str | None = "",
    ) -> None:
        self.unknown_tags = ()
        self.entity_type = entity_type
        self.entity_name = entity_name


class ClientQuotaRecord(Record):
    """Metadata record 14, version 0, flexible from 0."""

    __slots__ = ("entity", "key", "remove", "value")
    SCHEMA: ClassVar[Schema] = Schema(
        "ClientQuotaRecord", 14, (0, 0), 0,
        Field("entity", "[]EntityData", of=EntityData),
        Field("key", "string", default=""),
        Field("value", "float64", default=0.0),
        Field("remove", "bool", default=False),
    )  # fmt: skip

    def __init__(
        self,
        entity: list[EntityData] = EMPTY,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
    ) -> None:
        self.unknown_tags = ()
        self.entity: list[EntityData] = [] if entity is EMPTY else entity
        self.key = key
        self.value = value
        self.remove = remove


class DelegationTokenRecord(Record):
    """Metadata record 10, version 0, flexible from 0."""

    __slots__ = (
        "expiration_timestamp", "issue_timestamp", "max_timestamp", "owner", "renewers",
        "requester", "token_id",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "DelegationTokenRecord", 10, (0, 0), 0,
        Field("owner", "string", default=""),
        Field("requester", "string", default=""),
        Field("renewers", "[]string"),
        Field("issue_timestamp", "int64", default=0),
        Field("max_timestamp", "int64", default=0),
        Field("expiration_timestamp", "int64", default=0),
        Field("token_id", "string", default=""),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        owner: str = "",
        requester: str = "",
        renewers: list[str] = EMPTY,
        issue_timestamp: int = 0,
        max_timestamp: int = 0,
        expiration_timestamp: int = 0,
        token_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.owner = owner
        self.requester = requester
        self.renewers: list[str] = [] if renewers is EMPTY else renewers
        self.issue_timestamp = issue_timestamp
        self.max_timestamp = max_timestamp
        self.expiration_timestamp = expiration_timestamp
        self.token_id = token_id


class RemoveAccessControlEntryRecord(Record):
    """Metadata record 19, version 0, flexible from 0."""

    __slots__ = ("id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "RemoveAccessControlEntryRecord", 19, (0, 0), 0,
        Field("id", "uuid", default=NO_UUID),
    )  # fmt: skip

    def __init__(
        self,
        id: bytes = NO_UUID,
    ) -> None:
        self.unknown_tags = ()
        self.id = id


class RemoveDelegationTokenRecord(Record):
    """Metadata record 26, version 0, flexible from 0."""

    __slots__ = ("token_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "RemoveDelegationTokenRecord", 26, (0, 0), 0,
        Field("token_id", "string", default=""),
    )  # fmt: skip

    def __init__(
        self,
        token_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.token_id = token_id


class RemoveUserScramCredentialRecord(Record):
    """Metadata record 22, version 0, flexible from 0."""

    __slots__ = ("mechanism", "name")
    SCHEMA: ClassVar[Schema] = Schema(
        "RemoveUserScramCredentialRecord", 22, (0, 0), 0,
        Field("name", "string", default=""),
        Field("mechanism", "int8", default=0),
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        mechanism: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.mechanism = mechanism


class UserScramCredentialRecord(Record):
    """Metadata record 11, version 0, flexible from 0."""

    __slots__ = ("iterations", "mechanism", "name", "salt", "server_key", "stored_key")
    SCHEMA: ClassVar[Schema] = Schema(
        "UserScramCredentialRecord", 11, (0, 0), 0,
        Field("name", "string", default=""),
        Field("mechanism", "int8", default=0),
        Field("salt", "bytes", default=b""),
        Field("stored_key", "bytes", default=b""),
        Field("server_key", "bytes", default=b""),
        Field("iterations", "int32", default=0),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        name: str = "",
        mechanism: int = 0,
        salt: bytes = b"",
        stored_key: bytes = b"",
        server_key: bytes = b"",
        iterations: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.name = name
        self.mechanism = mechanism
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key
        self.iterations = iterations


METADATA: dict[int, type[Record]] = {
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    14: ClientQuotaRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
    26: RemoveDelegationTokenRecord,
}
