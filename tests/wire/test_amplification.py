"""Small requests that would make the broker allocate much: refused, whatever they ask for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.support import messages
from tests.support.processes import BrokerProcess
from tests.support.wire import API_VERSIONS, FETCH, PRODUCE, WireConnection, call_once

GROWTH_BYTES_MAX = 64 << 20


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


REQUESTS = {
    # 131,080 copies of a name of 32,767 bytes are 2^32 bytes and a few.
    "names that overflow a 32-bit sum": (FETCH, 4, fetch_v4(b"n" * 32767, 131_080)),
    "a long name": (FETCH, 4, fetch_v4(b"n" * 250, 1)),
    "partitions of a fetch": (FETCH, 4, fetch_v4(b"topic", 900_000)),
    "partitions of a session": (FETCH, 7, fetch_v7_session(b"topic", range(900_000))),
    "partitions of a produce": (PRODUCE, 3, produce_v3(b"topic", 900_000)),
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
