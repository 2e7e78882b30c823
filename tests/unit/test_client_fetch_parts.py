"""What a fetcher asks its control thread for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_fetch_parts import LEADER, POSITION
from kbroker.ext.client_loop import ClientLoop
from tests.support.waits import wait_for

NOBODY = 77  # a link that is not there


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    made = Fetcher(
        max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, partition_bytes=1 << 20,
        queue_bytes=1 << 20, request_timeout_ms=1000, backoff_ms=10, check_crcs=True,
        read_committed=False, rack="", decompressed_bytes_max=1 << 20, convert=None,
    )  # fmt: skip
    loop = ClientLoop(made, client_id="test", name="test-fetch-parts")
    loop.start()
    yield made
    loop.close()
    made.clear()


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
