"""What a fetcher asks its control thread for."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_fetch_parts import LEADER, POSITION
from kbroker.ext.client_loop import ClientLoop
from tests.support.waits import wait_for

NOBODY = 77  # a link that is not there
LINK_DOWN = 1  # kind of an event


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
