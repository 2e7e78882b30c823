"""Requests and responses as the client speaks them: plain mappings out, kio's dataclasses in.

The bytes are kbroker.protocol's, which reads and writes along kio's schemas. Answers are read as
carefully as the broker reads requests: kio's own reader takes whatever memory an array claims to
need, which would be the end of the process. When written, fields that the negotiated
version does not have are left out, those not given take the schema's default, or zero, empty,
null. A name that no version of the API knows is a bug of the caller and raises KeyError.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from kbroker.client.errors import CorruptDataError, SerializationError
from kbroker.limits import STRING_LENGTH_MAX_BYTES
from kbroker.protocol import ApiKey, request_header_version
from kbroker.protocol.decode import decode_answer
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import fields_of, request_schema, response_schema

__all__ = ["VERSIONS", "decode_body", "decode_response", "encode_body", "encode_request",
           "versions_of"]  # fmt: skip

# Lowest and highest version of each API that this client is written for. The lowest are those of
# Kafka 2.4 to 2.6 (flexible headers everywhere); what a broker offers is met in ApiVersions.
VERSIONS: dict[ApiKey, tuple[int, int]] = {
    ApiKey.PRODUCE: (9, 13),
    ApiKey.FETCH: (12, 17),
    ApiKey.LIST_OFFSETS: (6, 10),
    ApiKey.METADATA: (9, 13),
    ApiKey.OFFSET_COMMIT: (8, 10),
    ApiKey.OFFSET_FETCH: (7, 10),
    ApiKey.FIND_COORDINATOR: (3, 6),
    ApiKey.JOIN_GROUP: (5, 9),
    ApiKey.HEARTBEAT: (3, 4),
    ApiKey.LEAVE_GROUP: (3, 5),
    ApiKey.SYNC_GROUP: (3, 5),
    ApiKey.DESCRIBE_GROUPS: (5, 6),
    ApiKey.LIST_GROUPS: (3, 5),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (5, 7),
    ApiKey.DELETE_TOPICS: (4, 6),
    ApiKey.DELETE_RECORDS: (2, 2),
    ApiKey.INIT_PRODUCER_ID: (3, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (2, 3),  # from 4 on it is for brokers
    ApiKey.ADD_OFFSETS_TO_TXN: (2, 4),
    ApiKey.END_TXN: (2, 5),
    ApiKey.TXN_OFFSET_COMMIT: (3, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 1),
    ApiKey.DESCRIBE_ACLS: (2, 3),
    ApiKey.CREATE_ACLS: (2, 3),
    ApiKey.DELETE_ACLS: (2, 3),
    ApiKey.DESCRIBE_CONFIGS: (3, 4),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (2, 4),
    ApiKey.SASL_AUTHENTICATE: (1, 2),
    ApiKey.CREATE_PARTITIONS: (2, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (2, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (2, 3),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (4, 4),
    ApiKey.DELETE_GROUPS: (2, 2),
    ApiKey.ELECT_LEADERS: (2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
}


_QUOTED_CHARS = 20  # of a string that cannot be sent


# From here on topics go by their ids alone (KIP-848): for callers that know these.
_BY_NAME = {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}


def versions_of(api: ApiKey, *, by_id: bool) -> tuple[int, int]:
    """The lowest and highest version for a caller that names topics, or tells their ids."""
    low, high = VERSIONS[api]
    return low, high if by_id else min(high, _BY_NAME.get(api, high))


def encode_request(
    key: ApiKey, version: int, correlation_id: int, values: Mapping[str, Any], client_id: str
) -> bytes:
    """A whole request, header and body, without the length in front of it.

    Raises SerializationError for a string or a number that the protocol cannot hold.
    """
    _check_strings("client_id", client_id)
    name = client_id.encode()
    out = bytearray(struct.pack(">hhih", key, version, correlation_id, len(name)) + name)
    if request_header_version(key, version) > 1:
        out.append(0)  # no tagged fields
    _write_body(out, key, version, values)
    return bytes(out)


def decode_response(key: ApiKey, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and body (kio's dataclass) of a response frame."""
    schema = response_schema(key, version)
    try:
        header, at = decode_answer(schema.__header_schema__, frame)
        body, end = decode_answer(schema, frame, at)
    except (ValueError, OverflowError, struct.error) as error:
        raise CorruptDataError(f"{key.name} v{version} answer cannot be read: {error}") from error
    if end != len(frame):
        left = len(frame) - end
        raise CorruptDataError(f"{key.name} v{version} answer has {left} bytes too many")
    return int(header.correlation_id), body


def encode_body(key: ApiKey, version: int, values: Mapping[str, Any]) -> bytes:
    """A request without its header, which a loop writes by itself. Raises SerializationError."""
    out = bytearray()
    _write_body(out, key, version, values)
    return bytes(out)


def _write_body(out: bytearray, key: ApiKey, version: int, values: Mapping[str, Any]) -> None:
    unknown = values.keys() - _names(key)
    if unknown:
        raise KeyError(f"{key.name} has no field {', '.join(sorted(unknown))}")
    _check_strings(key.name, values)
    try:
        struct_writer(request_schema(key, version))(out, values)
    except OverflowError as error:
        raise SerializationError(str(error)) from None


def decode_body(key: ApiKey, version: int, body: bytes) -> Any:
    """kio's dataclass of an answer without its header."""
    try:
        answer, used = decode_answer(response_schema(key, version), body)
    except (ValueError, OverflowError, struct.error) as error:
        raise CorruptDataError(f"{key.name} v{version} answer cannot be read: {error}") from error
    if used != len(body):
        left = len(body) - used
        raise CorruptDataError(f"{key.name} v{version} answer has {left} bytes too many")
    return answer


def _check_strings(name: str, value: Any) -> None:
    """Refuses a string that is too long here, where its field is known: a broker that reads it can
    only close the connection, and does not say why."""
    if isinstance(value, str):
        check_string(name, value)
    elif isinstance(value, Mapping):
        for part, inner in value.items():
            _check_strings(part, inner)
    elif isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        for inner in value:
            _check_strings(name, inner)


def check_string(name: str, value: str) -> None:
    """Raises SerializationError for one that the protocol cannot hold."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise SerializationError(f"{name} {value[:_QUOTED_CHARS]!r} is not UTF-8") from None
    if size > STRING_LENGTH_MAX_BYTES:
        raise SerializationError(
            f"{name} {value[:_QUOTED_CHARS]!r}... has {size:,} bytes;"
            f" a string of Kafka's protocol holds {STRING_LENGTH_MAX_BYTES:,} at most"
        )


@functools.cache
def _names(key: ApiKey) -> frozenset[str]:
    """Fields of the first and the last version that the client speaks."""
    low, high = VERSIONS[key]
    return frozenset(
        field.name for version in (low, high) for field in fields_of(request_schema(key, version))
    )
