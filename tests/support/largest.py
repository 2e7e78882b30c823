"""Largest legal requests: one array of an API filled with as many elements as a request may
have."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from kio.index import load_request_schema

from tests.support import messages

ELEMENTS_MAX: Final = 999_000
"""Of all arrays of a request together (kbroker.limits.ARRAY_ELEMENTS_MAX_COUNT is a little
more)."""
_NAME: Final = "N000000"
_PARTITIONS: Final = [0]


def _offsets(**fields: Any) -> list[dict[str, Any]]:
    return [{"partition_index": 0, **fields}]


LARGEST: Final[Mapping[str, tuple[int, int, dict[str, Any], int]]] = {
    # name: API key, version, a request with one element of the array, arrays of an element
    "OffsetCommit": (8, 8, {"group_id": "flood", "topics": [
        {"name": _NAME, "partitions": _offsets(committed_offset=1)}]}, 2),
    "OffsetCommit, one partition": (8, 8, {"group_id": "flood", "topics": [
        {"name": "ordinary", "partitions": _offsets(committed_offset=1,
                                                    committed_metadata=_NAME)}]}, 1),
    "TxnOffsetCommit, one partition": (28, 3, {
        "transactional_id": "flood", "group_id": "flood", "topics": [
            {"name": "unknown", "partitions": _offsets(committed_offset=1,
                                                       committed_metadata=_NAME)}]}, 1),
    "OffsetFetch": (9, 8, {"groups": [{"group_id": _NAME, "topics": None}]}, 1),
    "Metadata": (3, 12, {"topics": [{"name": _NAME}], "allow_auto_topic_creation": False}, 1),
    "FindCoordinator": (10, 4, {"key_type": 0, "coordinator_keys": [_NAME]}, 1),
    "JoinGroup": (11, 9, {"group_id": "flood", "session_timeout": 10_000,
                          "rebalance_timeout": 10_000, "protocol_type": "consumer",
                          "protocols": [{"name": _NAME, "metadata": b""}]}, 1),
    "LeaveGroup": (13, 5, {"group_id": "flood", "members": [{"member_id": _NAME}]}, 1),
    "SyncGroup": (14, 5, {"group_id": "flood", "generation_id": 1, "member_id": "m",
                          "assignments": [{"member_id": _NAME, "assignment": b""}]}, 1),
    "DescribeGroups": (15, 5, {"groups": [_NAME]}, 1),
    "DeleteRecords": (21, 2, {"timeout": 30_000, "topics": [
        {"name": _NAME, "partitions": _offsets(offset=1)}]}, 2),
    "OffsetForLeaderEpoch": (23, 4, {"topics": [{"topic": _NAME, "partitions": [
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]}, 2),
    "AddPartitionsToTxn": (24, 3, {
        "v3_and_below_transactional_id": "flood", "v3_and_below_producer_id": 1,
        "v3_and_below_topics": [{"name": _NAME, "partitions": _PARTITIONS}]}, 2),
    "WriteTxnMarkers": (27, 1, {"markers": [
        {"producer_id": 7, "topics": [{"name": _NAME, "partition_indexes": _PARTITIONS}]}]}, 2),
    "TxnOffsetCommit": (28, 3, {"transactional_id": "flood", "group_id": "flood", "topics": [
        {"name": _NAME, "partitions": _offsets(committed_offset=1)}]}, 2),
    "CreateAcls": (30, 3, {"creations": [
        {"resource_type": 2, "resource_name": _NAME, "resource_pattern_type": 3,
         "principal": "User:x", "host": "*", "operation": 3, "permission_type": 3}]}, 1),
    "DeleteAcls": (31, 3, {"filters": [
        {"resource_type_filter": 2, "resource_name_filter": _NAME, "pattern_type_filter": 3,
         "principal_filter": None, "host_filter": None, "operation": 3, "permission_type": 3}]}, 1),
    "DescribeConfigs": (32, 4, {"resources": [
        {"resource_type": 2, "resource_name": _NAME, "configuration_keys": None}]}, 1),
    "AlterReplicaLogDirs": (34, 2, {"dirs": [{"path": "/", "topics": [
        {"name": _NAME, "partitions": _PARTITIONS}]}]}, 2),
    "DescribeLogDirs": (35, 4, {"topics": [{"topic": _NAME, "partitions": _PARTITIONS}]}, 2),
    "CreatePartitions": (37, 3, {"timeout": 30_000, "topics": [
        {"name": _NAME, "count": 2, "assignments": None}]}, 1),
    "CreateDelegationToken": (38, 3, {"renewers": [
        {"principal_type": "User", "principal_name": _NAME}]}, 1),
    "DeleteGroups": (42, 2, {"groups_names": [_NAME]}, 1),
    "ElectLeaders": (43, 2, {"timeout": 30_000, "topic_partitions": [
        {"topic": _NAME, "partitions": _PARTITIONS}]}, 2),
    "IncrementalAlterConfigs": (44, 1, {"resources": [
        {"resource_type": 2, "resource_name": _NAME,
         "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}]}]}, 2),
    "AlterPartitionReassignments": (45, 0, {"timeout": 30_000, "topics": [
        {"name": _NAME, "partitions": [{"partition_index": 0, "replicas": None}]}]}, 2),
    "ListPartitionReassignments": (46, 0, {"timeout": 30_000, "topics": [
        {"name": _NAME, "partition_indexes": _PARTITIONS}]}, 2),
    "OffsetDelete": (47, 0, {"group_id": "flood", "topics": [
        {"name": _NAME, "partitions": _offsets()}]}, 2),
    "AlterClientQuotas": (49, 1, {"entries": [
        {"entity": [{"entity_type": "user", "entity_name": _NAME}],
         "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}]}, 3),
    "DescribeUserScramCredentials": (50, 0, {"users": [{"name": _NAME}]}, 1),
    "AlterUserScramCredentials": (51, 0, {"deletions": [{"name": _NAME, "mechanism": 1}]}, 1),
    "UpdateFeatures": (57, 1, {"feature_updates": [
        {"feature": _NAME, "max_version_level": 1}]}, 1),
    "DescribeProducers": (61, 0, {"topics": [
        {"name": _NAME, "partition_indexes": _PARTITIONS}]}, 2),
    "DescribeTransactions": (65, 0, {"transactional_ids": [_NAME]}, 1),
    "ConsumerGroupHeartbeat": (68, 0, {
        "group_id": "flood", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1_000,
        "subscribed_topic_names": [_NAME], "topic_partitions": []}, 1),
    "ConsumerGroupDescribe": (69, 0, {"group_ids": [_NAME]}, 1),
    "DescribeTopicPartitions": (75, 0, {"topics": [{"name": _NAME}],
                                        "response_partition_limit": 2_000}, 1),
    "CreateTopics": (19, 7, {"timeout": 30_000, "topics": [
        {"name": _NAME, "num_partitions": 0, "replication_factor": 1}]}, 1),
    "CreateTopics, settings": (19, 7, {"timeout": 30_000, "topics": [
        {"name": "flood", "num_partitions": 1, "replication_factor": 1,
         "configs": [{"name": _NAME, "value": "1"}]}]}, 1),
    "AlterConfigs, settings": (33, 2, {"resources": [
        {"resource_type": 4, "resource_name": "",
         "configs": [{"name": _NAME, "value": "1"}]}]}, 1),
    "IncrementalAlterConfigs, settings": (44, 1, {"resources": [
        {"resource_type": 4, "resource_name": "",
         "configs": [{"name": _NAME, "config_operation": 0, "value": "1"}]}]}, 1),
    "IncrementalAlterConfigs, settings of a topic": (44, 1, {"resources": [
        {"resource_type": 2, "resource_name": "flood",
         "configs": [{"name": _NAME, "config_operation": 1, "value": None}]}]}, 1),
    "DeleteTopics": (20, 6, {"timeout": 30_000, "topics": [{"name": _NAME}]}, 1),
}  # fmt: skip


def largest_body(name: str, elements: int = ELEMENTS_MAX) -> bytes:
    """The body of an API's largest request: its array with as many elements, named differently."""
    key, version, request, arrays = LARGEST[name]
    schema = load_request_schema(key, version)
    one = messages.encode(schema, request)
    two = messages.encode(schema, _with_two(request))
    at = next(index for index, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    size = len(two) - len(one)
    element = one[at + 1 : at + 1 + size]
    count = elements // arrays
    before, _, behind = element.partition(_NAME.encode())
    filled = b"".join(before + b"N%06d" % number + behind for number in range(count))
    if schema.__flexible__:
        return one[:at] + _uvarint(count + 1) + filled + one[at + 1 + size :]
    return one[: at - 3] + struct.pack(">i", count) + filled + one[at + 1 + size :]


def largest_frame(name: str, elements: int = ELEMENTS_MAX) -> bytes:
    """The whole request with its header."""
    key, version, _, _ = LARGEST[name]
    return messages.request_frame(key, version, largest_body(name, elements), 1)


def _with_two(value: Any) -> Any:
    """The request with the innermost array whose element has the name doubled."""
    if isinstance(value, dict):
        return {key: _with_two(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and _named(value[0]):
        return [value[0], value[0]]
    if isinstance(value, list):
        return [_with_two(inner) for inner in value]
    return value


def _named(element: Any) -> bool:
    """Whether the element has the name as itself, as a field, or in the entity of a quota."""
    if element == _NAME:
        return True
    if not isinstance(element, dict):
        return False
    entity = element.get("entity")
    return _NAME in element.values() or bool(entity and _NAME in entity[0].values())


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
