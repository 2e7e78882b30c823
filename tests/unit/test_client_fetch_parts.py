"""What a fetcher asks its control thread for."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode
from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_fetch_parts import LEADER, POSITION
from kbroker.ext.client_loop import ClientLoop
from kbroker.protocol import ApiKey
from kbroker.protocol.decode import decode_request
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import response_schema
from tests.support.frames import answer, read_frame
from tests.support.waits import wait_for

NOBODY = 77  # a link that is not there
LINK_DOWN = 1  # kind of an event
FETCH_VERSION = 13  # topics by id
OLD, NEW = UUID(int=7), UUID(int=8)


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher(
        max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, partition_bytes=1 << 20,
        queue_bytes=1 << 20, request_timeout_ms=1000, backoff_ms=10, check_crcs=True,
        read_committed=False, rack="", decompressed_bytes_max=1 << 20, convert=None,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def loop(fetcher: Fetcher) -> Iterator[ClientLoop]:
    made = ClientLoop(fetcher, client_id="test", name="test-fetch-parts")
    made.start()
    yield made
    made.close()
    fetcher.clear()


def asked(fetcher: Fetcher) -> list[int]:
    """Why the partition waits, as often as it is told."""
    return [told[2] for told in fetcher.attention()]


def test_a_dead_link_has_the_leader_asked_for(fetcher: Fetcher) -> None:
    fetcher.add("t", 0)
    fetcher.seek("t", 0, 5)
    assert asked(fetcher) == [LEADER]
    fetcher.lead("t", 0, NOBODY, 1, 3, None)
    wait_for("the leader is asked for again", lambda: asked(fetcher) == [LEADER], 5)


def test_a_seek_has_the_leader_asked_for_again(fetcher: Fetcher) -> None:
    """Who was to try again later forgets it with the seek."""
    fetcher.add("t", 0)
    assert asked(fetcher) == [LEADER]
    assert asked(fetcher) == []
    fetcher.seek("t", 0, 5)
    assert asked(fetcher) == [LEADER]
    fetcher.seek("t", 0, -1)
    assert asked(fetcher) == [LEADER]


def test_an_offset_with_its_epoch_is_validated_first(fetcher: Fetcher) -> None:
    fetcher.add("t", 0)
    assert asked(fetcher) == [LEADER]
    fetcher.lead("t", 0, NOBODY, 1, 3, None)
    assert asked(fetcher) == [POSITION]
    fetcher.seek("t", 0, 5, 2)
    assert asked(fetcher) == [LEADER]
    state = fetcher.state("t", 0)
    assert (state["offset"], state["offset_epoch"], state["leader_epoch"]) == (5, 2, -1)


@pytest.mark.parametrize("offset", [5, -1])
def test_a_seek_after_the_link_broke_has_the_leader_asked_for(
    fetcher: Fetcher, loop: ClientLoop, offset: int
) -> None:
    """The link breaks while the partition waits for its position: that it needs another one was
    told to nobody, and the seek ends what it waited for."""
    ours, peer = socket.socketpair()
    fetcher.add("t", 0)
    assert asked(fetcher) == [LEADER]
    link = loop.add_link(ours.detach(), {1: (4, 12)})
    fetcher.lead("t", 0, link, 1, 3, None)
    assert asked(fetcher) == [POSITION]
    peer.close()
    wait_for(
        "the link is down",
        lambda: any(kind == LINK_DOWN for kind, *_ in loop.events(1.0)),
        60,
    )
    assert asked(fetcher) == []
    fetcher.seek("t", 0, offset)
    assert asked(fetcher) == [LEADER]


def test_what_was_told_in_vain_is_told_again(fetcher: Fetcher) -> None:
    fetcher.add("t", 0)
    fetcher.add("t", 1)
    assert asked(fetcher) == [LEADER, LEADER]
    assert asked(fetcher) == []
    fetcher.tell_again()
    assert asked(fetcher) == [LEADER, LEADER]


def next_fetch(peer: socket.socket) -> tuple[int, Any]:
    """Correlation id and body of the request that comes next."""
    frame = read_frame(peer)
    key, version, correlation, name = struct.unpack_from(">hhih", frame)
    assert (key, version) == (ApiKey.FETCH, FETCH_VERSION)
    return correlation, decode_request(ApiKey.FETCH, version, frame[10 + name + 1 :])


def fetch_answer(correlation: int, body: dict[str, Any]) -> bytes:
    out = bytearray()
    struct_writer(response_schema(ApiKey.FETCH, FETCH_VERSION))(out, body)
    return answer(correlation, bytes(out))


def test_a_topic_made_again_is_asked_for_by_its_new_id(fetcher: Fetcher, loop: ClientLoop) -> None:
    """Also where all else of the partition is as the broker's session has it, and the answer that
    would tell of the old id's end came too late to be taken."""
    ours, peer = socket.socketpair()
    peer.settimeout(60)
    for partition in range(2):
        fetcher.add("t", partition)
    asked(fetcher)
    link = loop.add_link(ours.detach(), {1: (4, FETCH_VERSION)})
    fetcher.seek("t", 0, 0)
    asked(fetcher)
    fetcher.lead("t", 0, link, 1, 0, OLD.bytes)
    correlation, first = next_fetch(peer)
    assert [topic.topic_id for topic in first.topics] == [OLD]
    peer.sendall(fetch_answer(correlation, {"session_id": 5}))
    correlation, second = next_fetch(peer)
    assert (second.session_id, list(second.topics)) == (5, [])
    fetcher.lead("t", 1, link, 1, 0, NEW.bytes)
    told = {partition: (why, generation)
            for _, partition, why, generation, *_ in fetcher.attention()}  # fmt: skip
    # What 0 has read of the old one means nothing now.
    assert {partition: why for partition, (why, _) in told.items()} == {0: LEADER, 1: POSITION}
    assert fetcher.move("t", 0, told[0][1], 0)
    fetcher.lead("t", 0, link, 1, 0, NEW.bytes)
    gone = {"partition_index": 0, "error_code": ErrorCode.UNKNOWN_TOPIC_ID, "high_watermark": -1}
    late = {"session_id": 5, "responses": [{"topic_id": OLD, "partitions": [gone]}]}
    peer.sendall(fetch_answer(correlation, late))
    _, third = next_fetch(peer)
    assert third.session_epoch == 0
    assert [(topic.topic_id, [part.partition for part in topic.partitions])
            for topic in third.topics] == [(NEW, [0])]  # fmt: skip
    peer.close()
