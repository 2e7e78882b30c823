"""Produce, Fetch and ListOffsets as the data plane reads them; the first byte of an input picks the
version."""

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from kio.index import load_request_schema

from kbroker.ext import testing_requests
from tests.fuzz.engine import Target
from tests.reference.crafted_batches import batch
from tests.support import messages
from tests.support.wire import FETCH, LIST_OFFSETS, PRODUCE

PRODUCE_VERSIONS, FETCH_VERSIONS, LIST_OFFSETS_VERSIONS = range(3, 14), range(4, 19), range(1, 12)
TOPIC_IDS = 13  # of the first two, from this version on
ID = uuid.UUID(int=77)


def inputs(api: int, versions: range, body: Callable[[int], dict[str, Any]]) -> Sequence[bytes]:
    schemas = {version: load_request_schema(api, version) for version in versions}
    return [
        bytes([version - versions.start]) + messages.encode(schema, body(version))
        for version, schema in schemas.items()
    ]


def produce_body(version: int) -> dict[str, Any]:
    name = {"topic_id": ID} if version >= TOPIC_IDS else {"name": "tøpic"}
    parts = [{"index": index, "records": data} for index, data in enumerate((batch(b"v"), None))]
    topics = [name | {"partition_data": parts}] * 2
    return {"transactional_id": "t", "acks": -1, "timeout": 9, "topic_data": topics}


def fetch_body(version: int) -> dict[str, Any]:
    name = {"topic_id": ID} if version >= TOPIC_IDS else {"topic": "tøpic"}
    parts = [{"partition": n, "fetch_offset": n, "partition_max_bytes": 9} for n in range(2)]
    body = {"max_wait": 0, "min_bytes": 0, "topics": [name | {"partitions": parts}] * 2}
    if version >= 7:
        body["forgotten_topics_data"] = [name | {"partitions": [3, 4]}]
    return body | ({"rack_id": "r"} if version >= 11 else {})


def list_offsets_body(version: int) -> dict[str, Any]:
    parts = [{"partition_index": n, "timestamp": n - 1} for n in range(2)]
    topics = [{"name": "tøpic", "partitions": parts}] * 2
    return {"replica_id": -1, "topics": topics} | ({"timeout": 9} if version >= 10 else {})


def version_of(data: memoryview, versions: range) -> int:
    return versions[data[0] % len(versions)]


def produce_run(data: memoryview) -> None:
    found = testing_requests.produce(data[1:], version_of(data, PRODUCE_VERSIONS)) if data else None
    for name, _, taken in found or ():
        assert name in bytes(data) and taken in bytes(data)


def fetch_run(data: memoryview) -> None:
    found = testing_requests.fetch(data[1:], version_of(data, FETCH_VERSIONS)) if data else None
    for name, _, _ in found or ():
        assert name in bytes(data)


def list_offsets_run(data: memoryview) -> None:
    if not data:
        return
    found = testing_requests.list_offsets(data[1:], version_of(data, LIST_OFFSETS_VERSIONS))
    for name, partition, timestamp in found or ():
        assert name in bytes(data) and struct.pack(">i", partition) in bytes(data)
        assert struct.pack(">q", timestamp) in bytes(data)


TARGETS = {
    "produce_request": Target(
        "what is read stands in the request",
        lambda: inputs(PRODUCE, PRODUCE_VERSIONS, produce_body),
        produce_run,
    ),
    "fetch_request": Target(
        "what is read stands in the request",
        lambda: inputs(FETCH, FETCH_VERSIONS, fetch_body),
        fetch_run,
    ),
    "list_offsets_request": Target(
        "what is read stands in the request",
        lambda: inputs(LIST_OFFSETS, LIST_OFFSETS_VERSIONS, list_offsets_body),
        list_offsets_run,
    ),
}
