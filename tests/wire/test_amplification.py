"""Small requests that would make the broker allocate much, answer with much, or think for long."""

from __future__ import annotations

import itertools
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema

from tests.reference.crafted_batches import GZIP, Batch, Record
from tests.support import messages
from tests.support.needs import is_sanitized
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    ELECT_LEADERS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WireConnection,
    call_once,
    create_topic,
)

GROWTH_BYTES_MAX = 128 << 20 if is_sanitized() else 64 << 20
SESSIONS_BYTES_MAX = 128 << 20  # ext/sessions.pxd
BAD_RECORDS_LISTED_MAX = 10_000  # ext/produce_wire.pxd
FETCH_SESSION_ID_NOT_FOUND, INVALID_RECORD = 70, 87
PARTITIONS, BAD_RECORDS = 30, 4_000


def fetch_v4(name: bytes, partitions: int) -> bytes:
    """A fetch of one topic, its partitions all the same one."""
    head = struct.pack(">iiiibi", -1, 0, 0, 1 << 20, 0, 1)
    topic = struct.pack(">h", len(name)) + name + struct.pack(">i", partitions)
    return head + topic + struct.pack(">iqi", 0, 0, 1) * partitions


def fetch_v7_session(name: bytes, partitions: range) -> bytes:
    """A full fetch that asks for a session and gives it many partitions."""
    head = struct.pack(">iiiibiii", -1, 0, 0, 1 << 20, 0, 0, 0, 1)
    topic = struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions))
    body = b"".join(struct.pack(">iqqi", i, 0, 0, 1) for i in partitions)
    return head + topic + body + struct.pack(">i", 0)


def produce_v3(name: bytes, partitions: int) -> bytes:
    """A produce without a record to many partitions."""
    head = struct.pack(">hhii", -1, -1, 1000, 1)
    topic = struct.pack(">h", len(name)) + name + struct.pack(">i", partitions)
    return head + topic + struct.pack(">ii", 0, -1) * partitions


def list_offsets_v1(name: bytes, partitions: int) -> bytes:
    """The offsets of one topic, its partitions all the same one."""
    topic = struct.pack(">h", len(name)) + name + struct.pack(">i", partitions)
    return struct.pack(">ii", -1, 1) + topic + struct.pack(">iq", 0, 0) * partitions


REQUESTS = {
    # 131,080 copies of a name of 32,767 bytes are 2^32 bytes and a few.
    "names that overflow a 32-bit sum": (FETCH, 4, fetch_v4(b"n" * 32767, 131_080)),
    "a long name": (FETCH, 4, fetch_v4(b"n" * 250, 1)),
    "partitions of a fetch": (FETCH, 4, fetch_v4(b"topic", 900_000)),
    "partitions of a session": (FETCH, 7, fetch_v7_session(b"topic", range(900_000))),
    "partitions of a produce": (PRODUCE, 3, produce_v3(b"topic", 900_000)),
    "partitions whose offsets are asked for": (
        LIST_OFFSETS, 1, list_offsets_v1(b"topic", 900_000)
    ),
}


def resident_bytes(broker: BrokerProcess) -> int:
    pages = Path(f"/proc/{broker.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


@pytest.mark.parametrize("what", REQUESTS)
def test_is_refused_at_no_cost(kbroker: BrokerProcess, what: str) -> None:
    api, version, body = REQUESTS[what]
    call_once(kbroker.port, API_VERSIONS, 0)
    before = resident_bytes(kbroker)
    for correlation_id in range(3):
        with WireConnection(kbroker.port) as connection:
            connection.send_bytes(messages.request_frame(api, version, body, correlation_id))
            connection.wait_closed()
    assert resident_bytes(kbroker) - before < GROWTH_BYTES_MAX + len(body)
    assert call_once(kbroker.port, API_VERSIONS, 0)["error_code"] == 0


def test_sessions_of_all_clients_together_are_bounded(
    start_kbroker: Callable[..., BrokerProcess],
) -> None:
    """Past the bound a fetch is answered without a session; a session that would grow ends."""
    broker = start_kbroker()
    call_once(broker.port, API_VERSIONS, 0)
    before = resident_bytes(broker)
    ids = [full_fetch(broker.port, part * 100_000) for part in range(20)]
    assert ids[0] != 0 and ids[-1] == 0
    assert resident_bytes(broker) - before < SESSIONS_BYTES_MAX + GROWTH_BYTES_MAX
    more = struct.pack(">iiiibiii", -1, 0, 0, 1 << 20, 0, ids[0], 1, 1)
    more += struct.pack(">h", 5) + b"other" + struct.pack(">i", 50_000)
    more += b"".join(struct.pack(">iqqi", i, 0, 0, 1) for i in range(50_000)) + bytes(4)
    assert fetch_v7(broker.port, more)[:2] == (FETCH_SESSION_ID_NOT_FOUND, 0)
    # It has gone, and what it held is there for others.
    assert full_fetch(broker.port, 0, 50_000) != 0


def test_names_that_collide_cost_no_more_than_others(kbroker: BrokerProcess) -> None:
    """Of 65,536 with the same hash as Java has it each would be compared with each."""
    row = struct.pack(">iiqqi", 1, 0, 0, 0, 1)
    names = ["".join(pairs).encode() for pairs in itertools.product(("Aa", "BB"), repeat=16)]
    head = struct.pack(">iiiibiii", -1, 0, 0, 1 << 20, 0, 0, 0, len(names))
    body = head + b"".join(struct.pack(">h", len(name)) + name + row for name in names) + bytes(4)
    error, session_id = fetch_v7(kbroker.port, body)
    assert error == 0 and session_id != 0
    closed = struct.pack(">iiiibiii", -1, 0, 0, 1 << 20, 0, session_id, -1, 0) + bytes(4)
    assert fetch_v7(kbroker.port, closed) == (0, 0)


def full_fetch(port: int, first: int, count: int = 100_000) -> int:
    """The session id that a full fetch of so many partitions gets."""
    error, session_id = fetch_v7(port, fetch_v7_session(b"topic", range(first, first + count)))
    assert error == 0
    return session_id


def fetch_v7(port: int, body: bytes) -> tuple[int, int]:
    """(error, session id) of the answer."""
    with WireConnection(port) as connection:
        connection.send_bytes(messages.request_frame(FETCH, 7, body, 1))
        error, session_id = struct.unpack_from(">hi", connection.receive_frame(), 8)
    return error, session_id


def test_bad_records_of_a_request_are_listed_up_to_a_bound(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """All are refused; the list stops where an answer would be many times its request."""
    broker = start_kbroker()
    create_topic(broker.port, topic, PARTITIONS, {"cleanup.policy": "compact"})
    data = Batch(records=[Record(b"")] * BAD_RECORDS, codec=GZIP).encode()
    partitions = [{"index": index, "records": data} for index in range(PARTITIONS)]
    body = {"acks": -1, "timeout": 9000,
            "topic_data": [{"name": topic, "partition_data": partitions}]}  # fmt: skip
    answer = call_once(broker.port, PRODUCE, 9, body)
    parts = answer["responses"][0]["partition_responses"]
    assert {part["error_code"] for part in parts} == {INVALID_RECORD}
    listed = [len(part["record_errors"]) for part in parts]
    assert sum(listed) == BAD_RECORDS_LISTED_MAX and listed[:2] == [BAD_RECORDS] * 2


ANSWER_BYTES_MAX = 2 << 20
ANSWER_SECONDS_MAX = 5.0
METADATA_CHARS = 4_000


def repeating(topic: str) -> dict[str, tuple[int, int, dict[str, Any]]]:
    """Requests of less than a megabyte whose answers were gigabytes, or took minutes."""
    many = 20_000
    settings = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    unknown = {"topic": "n" * 32_000, "partitions": [7] * many}
    offsets = {"group_id": "g", "topics": [{"name": topic, "partition_indexes": [0] * many}]}
    names = [{"name": f"{n}", "partitions": [{"partition_index": 0, "timestamp": -1}]}
             for n in range(many)]  # fmt: skip
    twice = [{"partition_index": n, "timestamp": -1} for n in range(many // 4)]
    again = [{"name": topic, "partitions": parts} for parts in (twice, twice, *[[]] * many)]
    return {
        "a group": (15, 5, {"groups": ["g"] * many}),
        "a group of the next protocol": (69, 1, {"group_ids": ["g"] * many}),
        "a resource": (DESCRIBE_CONFIGS, 4, {"resources": [settings] * many,
                                             "include_documentation": True}),
        "a partition of a group": (9, 9, {"groups": [offsets]}),
        "all of a group": (9, 9, {"groups": [{"group_id": "g", "topics": None}] * many}),
        "partitions that are not there": (ELECT_LEADERS, 2, {"topic_partitions": [unknown]}),
        "topics with a partition each": (LIST_OFFSETS, 9, {"replica_id": -1, "topics": names}),
        "partitions named twice": (LIST_OFFSETS, 9, {"replica_id": -1, "topics": again}),
    }  # fmt: skip


def test_what_is_named_again_and_again(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """The answer grows with what there is to tell, and not with how often it is asked for."""
    broker = start_kbroker()
    create_topic(broker.port, topic)
    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1,
            "committed_metadata": "m" * METADATA_CHARS}  # fmt: skip
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
              "topics": [{"name": topic, "partitions": [part]}]}  # fmt: skip
    call_once(broker.port, 10, 4, {"key_type": 0, "coordinator_keys": ["g"]})

    def is_committed() -> bool:
        answer = call_once(broker.port, 8, 9, commit)
        return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)

    wait_for("a committed offset", is_committed, 60)
    before = resident_bytes(broker)
    for what, (api, version, body) in repeating(topic).items():
        with WireConnection(broker.port) as connection:
            began = time.monotonic()
            connection.send(api, version, body)
            answer = connection.receive_frame()
            assert len(answer) < ANSWER_BYTES_MAX, what
            assert time.monotonic() - began < ANSWER_SECONDS_MAX, what
    assert resident_bytes(broker) - before < GROWTH_BYTES_MAX


def test_answers_that_wait_for_their_turn_are_bounded(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """A long poll that nothing ends, and behind it small requests with large answers: the broker
    stops to read. Once the poll is answered all the others are, in their order."""
    broker = start_kbroker()
    create_topic(broker.port, topic)
    metadata = {"allow_auto_topic_creation": False,
                "topics": [{"name": f"{'n' * 200}{n}"} for n in range(2_000)]}  # fmt: skip
    poll = {"replica_id": -1, "max_wait": 600_000, "min_bytes": 1, "max_bytes": 1 << 20,
            "topics": [{"topic": topic, "partitions": [
                {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}]}  # fmt: skip
    requests = 300
    with WireConnection(broker.port) as connection:
        connection.send(FETCH, 11, poll)
        body = messages.encode(load_request_schema(METADATA, 9), metadata)
        frame = messages.request_frame(METADATA, 9, body, 2)
        before = resident_bytes(broker)
        sender = threading.Thread(target=connection.send_bytes, args=(frame * requests,))
        sender.start()
        sender.join(2)
        assert resident_bytes(broker) - before < GROWTH_BYTES_MAX
        assert sender.is_alive(), "all was read, whatever its answers take"
        records = Batch([Record(value=b"v")]).encode()
        part = {"index": 0, "records": records}
        produce = {"acks": -1, "timeout": 10_000,
                   "topic_data": [{"name": topic, "partition_data": [part]}]}  # fmt: skip
        call_once(broker.port, PRODUCE, 9, produce)
        for _ in range(requests + 1):
            connection.receive_frame()
        sender.join()
