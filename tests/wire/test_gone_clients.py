"""Clients that hang up before they are answered: nothing is computed for them any more."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from tests.support import messages
from tests.support.kbroker import KbrokerProcess
from tests.support.largest import LARGEST, largest_body
from tests.support.wire import METADATA, WireConnection, create_topic

CREATE_TOPICS = 19
HUNG_UP = 120
ELEMENTS = 100_000
ANSWERED_S = 15  # without the mend some 50


@pytest.fixture
def broker(start_kbroker: Callable[..., KbrokerProcess]) -> KbrokerProcess:
    return start_kbroker()


def large_request() -> bytes:
    """A DescribeGroups of 800 KB, which takes some 0.4 s."""
    key, version, *_ = LARGEST["DescribeGroups"]
    return messages.request_frame(key, version, largest_body("DescribeGroups", ELEMENTS), 1)


def creating(name: str) -> dict[str, object]:
    topic = {
        "name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    return {"timeout": 60_000, "validate_only": False, "topics": [topic]}


def test_large_requests_of_clients_that_are_gone_hold_up_nobody(broker: KbrokerProcess) -> None:
    request = large_request()
    for _ in range(HUNG_UP):
        with WireConnection(broker.port) as client:
            client.send_bytes(request)
    names = [{"name": f"a-name-of-{n:06}"} for n in range(3_300)]  # over 64 KiB
    with WireConnection(broker.port, timeout_s=150) as client:
        began_s = time.monotonic()
        answer = client.call(
            METADATA, 12, {"topics": names, "allow_auto_topic_creation": False}
        )
        create_topic(broker.port, "after")
        took_s = time.monotonic() - began_s
    assert len(answer["topics"]) == len(names)
    assert took_s < ANSWERED_S


def test_client_that_only_ends_its_sending_is_answered(broker: KbrokerProcess) -> None:
    with WireConnection(broker.port) as client:
        number = client.send(CREATE_TOPICS, 7, creating("half"))
        client.socket.shutdown(socket.SHUT_WR)
        answer = client.receive(CREATE_TOPICS, 7, number)
    assert answer["topics"][0]["error_code"] == 0


def test_requests_sent_before_the_end_of_sending_are_all_served(broker: KbrokerProcess) -> None:
    """The connection is not given up while requests of it wait behind long ones."""
    with WireConnection(broker.port, timeout_s=60) as client:
        client.send_bytes(large_request() * 4)
        number = client.send(CREATE_TOPICS, 7, creating("last"))
        client.socket.shutdown(socket.SHUT_WR)
        for _ in range(4):
            client.receive_frame()
        answer = client.receive(CREATE_TOPICS, 7, number)
    assert answer["topics"][0]["error_code"] == 0
