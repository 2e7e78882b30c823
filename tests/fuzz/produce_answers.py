"""Answers to a Produce as the client reads them: any bytes, in every version."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

from kbroker.ext.testing_producer import read_produce_answer
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import encode_response
from tests.fuzz.engine import Target

TOPICS = {"topic-a": (bytes(range(16)), 3), "b": (bytes(range(16, 32)), 1)}
VERSIONS = range(3, 14)
TEXT_BYTES_MAX = 1 << 16


def partition(index: int, version: int, chosen: random.Random) -> dict[str, Any]:
    """One partition's part of an answer."""
    told: dict[str, Any] = {
        "index": index,
        "error_code": chosen.choice([0, 0, 3, 6, 10, 45, 46, 87]),
        "base_offset": chosen.getrandbits(40),
        "log_append_time": -1,
        "log_start_offset": chosen.getrandbits(20),
    }
    if version >= 8:
        told["record_errors"] = [
            {"batch_index": i, "batch_index_error_message": chosen.choice([None, "bad", "é" * 9])}
            for i in range(chosen.choice([0, 0, 1, 5]))
        ]
        told["error_message"] = chosen.choice([None, "", "what was wrong"])
    if version >= 10 and chosen.random() < 0.5:
        told["current_leader"] = {"leader_id": chosen.randrange(9), "leader_epoch": 7}
    return told


def answer(version: int, chosen: random.Random) -> bytes:
    """An answer to a request for every partition of TOPICS."""
    topics = [
        {
            ("topic_id" if version >= 13 else "name"): (
                uuid.UUID(bytes=topic_id) if version >= 13 else name
            ),
            "partition_responses": [partition(i, version, chosen) for i in range(count)],
        }
        for name, (topic_id, count) in TOPICS.items()
    ]
    if chosen.random() < 0.3:
        topics.reverse()
    body = {"responses": topics, "throttle_time": chosen.randrange(9)}
    return encode_response(ApiKey.PRODUCE, version, body)


def corpus() -> Sequence[bytes]:
    """The first byte says which version."""
    chosen = random.Random(5)
    return [bytes([version]) + answer(version, chosen) for version in VERSIONS for _ in range(4)]


def run(data: memoryview) -> None:
    if not data:
        return
    version = VERSIONS[data[0] % len(VERSIONS) - 3] if data[0] not in VERSIONS else data[0]
    told = read_produce_answer(version, TOPICS, data[1:])
    if told is None:
        return
    assert len(told) == sum(count for _, count in TOPICS.values())
    texts = 0
    for _, _, _, _, faults, message, _, _ in told:
        texts += len(message or b"") + sum(len(text or b"") for _, text in faults)
        texts += len(faults)
    assert texts <= len(data)


TARGETS = {
    "produce_answer": Target(
        "an answer tells of every partition that was asked about, or it is none", corpus, run
    ),
}
