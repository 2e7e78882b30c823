"""When a Fetch waits for min_bytes and max_wait, and when it is answered at once.

What Apache Kafka's broker looks up before it reads (a topic or a partition that is not there, a
topic that the client may not read) takes no part in the wait of the others.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from kbroker import runfile
from kbroker.cli.scrape import scrape
from tests.reference.crafted_batches import batch, values_of
from tests.support import guarded as g
from tests.support import wire
from tests.support.fixtures import BrokerFactory
from tests.support.guarded import acl, granted
from tests.support.processes import BrokerProcess
from tests.support.wire import DELETE_TOPICS, FETCH, PRODUCE, WireConnection
from tests.wire.test_connections import produce_body

NONE, OUT_OF_RANGE, UNKNOWN, DENIED, FENCED, UNKNOWN_EPOCH, UNKNOWN_ID = 0, 1, 3, 29, 74, 75, 100
WAIT_MS = 1_500
SILENT_S = 1.0
LONG_MS = 60_000
"""Nothing that is answered at once takes as long."""
BY_NAME, BY_ID = 12, 17

Place = tuple[Any, int, int]
"""Topic, by name or id; partition; offset."""


def fetch(version: int, *places: Place, **fields: Any) -> dict[str, Any]:
    topics = [
        {
            "topic_id" if version >= 13 else "topic": topic,
            "partitions": [
                {"partition": index, "fetch_offset": at, "partition_max_bytes": 1 << 20}
            ],
        }
        for topic, index, at in places
    ]
    body = {"max_wait": WAIT_MS, "min_bytes": 1, "topics": topics} | fields
    return body if version >= 15 else {"replica_id": -1} | body


def parts_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for topic in answer["responses"] for part in topic["partitions"]]


def errors(answer: dict[str, Any]) -> list[int]:
    return [part["error_code"] for part in parts_of(answer)]


def names(broker: BrokerProcess, version: int, *topics: str) -> list[Any]:
    """What a version calls them: one that is not there has an id that no topic has."""
    if version < 13:
        return list(topics)
    return [uuid.uuid4() if one.startswith("nope") else wire.topic_id(broker.port, one)
            for one in topics]  # fmt: skip


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
@pytest.mark.parametrize("absent", ["nope", "too high", "negative"])
def test_what_is_not_there_holds_nobody_from_waiting(
    target: BrokerProcess, topic: str, version: int, absent: str
) -> None:
    wire.create_topic(target.port, topic)
    idle, nope = names(target, version, topic, f"nope-{topic}")
    other = {
        "nope": (nope, 0, 0), "too high": (idle, 7, 0), "negative": (idle, -1, 0),
    }[absent]  # fmt: skip
    wanted = sorted((NONE, UNKNOWN_ID if absent == "nope" and version >= 13 else UNKNOWN))
    with WireConnection(target.port) as connection:
        for places in ([(idle, 0, 0), other], [other, (idle, 0, 0)]):
            asked = connection.send(FETCH, version, fetch(version, *places))
            assert connection.is_silent(SILENT_S)
            answer = connection.receive(FETCH, version, asked)
            assert sorted(errors(answer)) == wanted


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_record_ends_the_wait_beside_what_is_not_there(
    target: BrokerProcess, topic: str, version: int
) -> None:
    wire.create_topic(target.port, topic)
    idle, nope = names(target, version, topic, f"nope-{topic}")
    with WireConnection(target.port) as connection:
        asked = connection.send(
            FETCH, version, fetch(version, (idle, 0, 0), (nope, 0, 0), max_wait=LONG_MS)
        )
        assert connection.is_silent(0.2)
        wire.call_once(target.port, PRODUCE, 9, produce_body(topic, batch(b"news")))
        found = parts_of(connection.receive(FETCH, version, asked))
        (readable,) = (part for part in found if part["error_code"] == NONE)
        assert values_of(readable["records"]) == [(0, b"news")]
        assert len(found) == 2


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_nothing_that_can_be_read_is_answered_at_once(
    target: BrokerProcess, topic: str, version: int
) -> None:
    nope, other = names(target, version, f"nope-{topic}", f"nope-{topic}-b")
    with WireConnection(target.port) as connection:
        answer = connection.call(
            FETCH, version, fetch(version, (nope, 0, 0), (other, 0, 0), max_wait=LONG_MS)
        )
        assert errors(answer) == [UNKNOWN_ID if version >= 13 else UNKNOWN] * 2


def test_errors_of_a_log_are_answered_at_once(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    with WireConnection(target.port) as connection:
        beyond = fetch(BY_NAME, (topic, 0, 0), (topic, 1, 99), max_wait=LONG_MS)
        assert errors(connection.call(FETCH, BY_NAME, beyond)) == [NONE, OUT_OF_RANGE]
        epoch = fetch(BY_NAME, (topic, 0, 0), (topic, 1, 0), max_wait=LONG_MS)
        epoch["topics"][1]["partitions"][0]["current_leader_epoch"] = 99
        assert errors(connection.call(FETCH, BY_NAME, epoch)) == [NONE, UNKNOWN_EPOCH]


def test_a_topic_that_is_deleted_ends_the_wait_once(target: BrokerProcess, topic: str) -> None:
    """Whoever waits hears of it at once, and from then on waits for the others."""
    kept, gone = f"{topic}-kept", f"{topic}-gone"
    wire.create_topic(target.port, kept)
    wire.create_topic(target.port, gone)
    places = (kept, 0, 0), (gone, 0, 0)
    with WireConnection(target.port) as connection:
        asked = connection.send(FETCH, BY_NAME, fetch(BY_NAME, *places, max_wait=LONG_MS))
        assert connection.is_silent(0.2)
        body = {"topics": [{"name": gone, "topic_id": None}], "timeout": 30_000}
        (done,) = wire.call_once(target.port, DELETE_TOPICS, 6, body)["responses"]
        assert done["error_code"] == NONE
        answer = connection.receive(FETCH, BY_NAME, asked)
        assert errors(answer)[0] == NONE
        assert errors(answer)[1] != NONE
        begun = time.monotonic()
        rounds = 0
        while time.monotonic() - begun < 3:
            answer = connection.call(FETCH, BY_NAME, fetch(BY_NAME, *places, max_wait=1000))
            rounds += 1
        assert errors(answer) == [NONE, UNKNOWN]
        assert rounds <= 6, "it spins"


def test_a_session_waits_beside_what_is_not_there(target: BrokerProcess, topic: str) -> None:
    """KIP-227: what has an error is told again each time, and the wait is kept."""
    wire.create_topic(target.port, topic)
    places = (topic, 0, 0), (f"nope-{topic}", 0, 0)
    with WireConnection(target.port) as connection:
        opened = connection.call(
            FETCH, BY_NAME, fetch(BY_NAME, *places, max_wait=0, session_epoch=0)
        )
        for epoch in (1, 2):
            more = fetch(BY_NAME, session_id=opened["session_id"], session_epoch=epoch)
            asked = connection.send(FETCH, BY_NAME, more)
            assert connection.is_silent(SILENT_S)
            answer = connection.receive(FETCH, BY_NAME, asked)
            assert errors(answer) == [UNKNOWN]


def test_a_topic_that_may_not_be_read_holds_nobody_from_waiting(
    start_kbroker: BrokerFactory,
) -> None:
    broker = start_kbroker(g.SETTINGS)
    g.guard(broker)
    for name in ("open", "closed"):
        wire.create_topic(broker.port, name)
    with granted(broker.port, acl(g.TOPIC, "open", g.READ)), g.other(broker.port) as connection:
        for _ in range(2):  # the first asks the control thread for the rights
            asked = connection.send(
                FETCH, BY_NAME, fetch(BY_NAME, ("open", 0, 0), ("closed", 0, 0))
            )
            assert connection.is_silent(SILENT_S)
            assert errors(connection.receive(FETCH, BY_NAME, asked)) == [NONE, DENIED]
        denied = fetch(BY_NAME, ("closed", 0, 0), max_wait=LONG_MS)
        assert errors(connection.call(FETCH, BY_NAME, denied)) == [DENIED]


def test_a_long_poll_is_no_slow_request_where_rights_are_asked_first(
    start_kbroker: BrokerFactory,
) -> None:
    """The first Fetch of a connection goes to the control thread for the rights. Its wait is remote
    time all the same."""
    broker = start_kbroker(g.SETTINGS | {"kbroker.slow.request.ms": "500"})
    g.guard(broker)
    wire.create_topic(broker.port, "open")
    info = runfile.running(broker.data_dir)
    assert info is not None
    page = info.http[0].removeprefix("http://")
    with granted(broker.port, acl(g.TOPIC, "open", g.READ)):
        for _ in range(3):
            with g.other(broker.port) as connection:
                asked = fetch(BY_NAME, ("open", 0, 0), max_wait=1000)
                assert errors(connection.call(FETCH, BY_NAME, asked)) == [NONE]
    now = scrape(page)
    name = "kbroker_request_phase_seconds_sum"
    local, remote = (now.value(name, request="Fetch", phase=one) for one in ("local", "remote"))
    assert remote is not None and remote > 2.5
    assert local is not None and local < 0.5
    assert '"Fetch"' not in broker.log_text()


def test_min_bytes_is_no_more_than_may_be_answered(target: BrokerProcess, topic: str) -> None:
    """Who asks to wait for more than it would take does not wait for that."""
    wire.create_topic(target.port, topic)
    wire.call_once(target.port, PRODUCE, 9, produce_body(topic, batch(b"x" * 100)))
    with WireConnection(target.port) as connection:
        asked = fetch(
            BY_NAME, (topic, 0, 0), max_wait=LONG_MS, min_bytes=1 << 20, max_bytes=100
        )
        (part,) = parts_of(connection.call(FETCH, BY_NAME, asked))
        assert values_of(part["records"]) == [(0, b"x" * 100)]
        nothing = fetch(BY_NAME, (topic, 0, 1), max_wait=LONG_MS, min_bytes=1, max_bytes=0)
        (part,) = parts_of(connection.call(FETCH, BY_NAME, nothing))
        assert part["error_code"] == NONE
