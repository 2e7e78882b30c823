"""F18: every length and count of every request, in every version, with a value that lies."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from kio.index import UnknownEntity, load_request_schema

from tests.faults.fields import Versions, header, joined, lies_about, pieces_of, versions_of
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.tally import Tally
from tests.support.wire import API_VERSIONS, ConnectionClosedError, WireConnection
from tests.wire.test_bad_input import watched
from tests.wire.test_group_bad_input import find

LONG = pytest.mark.long
StartBroker = Callable[..., KbrokerProcess]
#: They wait for what does not come, or have no body to lie in.
WAITING = (11, 14)


def versions_tried(versions: Versions, *, every: bool) -> Iterator[tuple[int, int]]:
    """Of each API the lowest and the highest version, or all of them. Of those that are told only
    so that old clients come, as Produce 0, there is no schema."""
    for key, (low, high) in sorted(versions.items()):
        for version in range(low, high + 1) if every else sorted({low, high}):
            try:
                load_request_schema(key, version)
            except UnknownEntity:
                continue
            yield key, version


def framed(key: int, version: int, body: bytes) -> bytes:
    flexible = bool(load_request_schema(key, version).__flexible__)  # type: ignore[attr-defined]
    data = header(key, version, flexible=flexible) + body
    return struct.pack(">i", len(data)) + data


def is_answered(port: int, data: bytes) -> bool:
    """True for an answer, False where the connection is closed without one."""
    with WireConnection(port, timeout_s=60) as connection:
        connection.send_bytes(data)
        connection.socket.shutdown(socket.SHUT_WR)
        try:
            connection.receive_frame()
        except ConnectionClosedError:
            return False
    return True


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("most", [1500, pytest.param(10**9, marks=LONG)])
def test_every_length_lies(start_kbroker: StartBroker, most: int, tally: Tally) -> None:
    """Answered or closed, at no cost, and the others are served; the truth is answered."""
    broker = start_kbroker({"offsets.topic.num.partitions": "1"})
    versions = versions_of(wire.call_once(broker.port, API_VERSIONS, 0))
    wire.create_topic(broker.port, "t")
    find(broker)
    chance = random.Random(18)
    with watched(broker):
        told_right, lies = [], []
        for key, version in versions_tried(versions, every=most > 10**6):
            pieces = pieces_of(key, version)
            if key not in WAITING:
                told_right.append((key, version, framed(key, version, joined(pieces))))
            lies += [framed(key, version, body) for body in lies_about(pieces)]
        chance.shuffle(lies)
        for data in lies[:most]:
            is_answered(broker.port, data)
        answered = [(k, v) for k, v, data in told_right if is_answered(broker.port, data)]
        silent = [(k, v) for k, v, _ in told_right if (k, v) not in answered]
    tally("F18", tried=min(most, len(lies)), control=len(answered))
    assert len(answered) > len(versions), silent
