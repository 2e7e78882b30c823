"""Coordinators under clients that lie, and over a log that is damaged.

Invariants: two healthy groups beside the bad ones, one of each protocol, keep their generation,
their epoch and what they committed; the process lives, its memory is bounded, and no object of
the data plane outlives its stop. A damaged `__consumer_offsets` costs what is damaged.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.reference.crafted_batches import Batch, Record
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, WireConnection, call_once
from tests.wire.test_bad_input import GROWTH_MAX_KIB, SEED, mutated, send_and_leave
from tests.wire.test_connections import frame

COMMIT, FETCH_OFFSETS, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 11, 12, 13, 14
DESCRIBE, LIST, DELETE_GROUPS, DELETE_OFFSETS = 15, 16, 42, 47
NEXT_HEARTBEAT, NEXT_DESCRIBE = 68, 69
UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE, METADATA_TOO_LARGE, MEMBER_ID_REQUIRED = (
    25, 22, 27, 12, 79
)  # fmt: skip
INVALID_REQUEST, FENCED_EPOCH, UNSUPPORTED_ASSIGNOR, INVALID_REGEX = 42, 110, 112, 128
STALE_MEMBER_EPOCH = 113

StartKbroker = Callable[..., KbrokerProcess]


def joining(group: str, member: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "group_id": group, "session_timeout": 30_000, "rebalance_timeout": 30_000,
        "member_id": member, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"}],
    } | fields  # fmt: skip


def beating(group: str, member: str, epoch: int, **fields: Any) -> dict[str, Any]:
    """A heartbeat of the next generation protocol; epoch 0 joins."""
    joins = {"subscribed_topic_names": ["t"], "topic_partitions": [], "rebalance_timeout": 60_000}
    body = {
        "group_id": group, "member_id": member, "member_epoch": epoch, "rebalance_timeout": -1,
        "subscribed_topic_names": None, "topic_partitions": None,
    }  # fmt: skip
    return body | (joins if epoch == 0 else {}) | fields


def committing(
    group: str, member: str, generation: int, offset: int, metadata: str = ""
) -> dict[str, Any]:
    part = {
        "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }  # fmt: skip
    return {
        "group_id": group, "generation_id_or_member_epoch": generation, "member_id": member,
        "topics": [{"name": "t", "partitions": [part]}],
    }  # fmt: skip


def commit(connection: WireConnection, *arguments: Any) -> int:
    answer = connection.call(COMMIT, 9, committing(*arguments))
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def committed(connection: WireConnection, group: str) -> int:
    asked = {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}
    (answer,) = connection.call(FETCH_OFFSETS, 9, {"groups": [asked]})["groups"]
    assert answer["error_code"] == 0, answer
    return int(answer["topics"][0]["partitions"][0]["committed_offset"])


class Stable:
    """Members alone in a stable group of each protocol; `round` wants all of it as it was."""

    def __init__(self, port: int) -> None:
        self.connection = WireConnection(port)
        call = self.connection.call
        first = call(JOIN, 9, joining("healthy"))
        assert first["error_code"] == MEMBER_ID_REQUIRED, first
        self.member = first["member_id"]
        joined = call(JOIN, 9, joining("healthy", self.member))
        assert joined["error_code"] == 0, joined
        self.generation = joined["generation_id"]
        mine = [{"member_id": self.member, "assignment": b"mine"}]
        synced = call(SYNC, 4, {"group_id": "healthy", "generation_id": self.generation,
                                "member_id": self.member, "assignments": mine})  # fmt: skip
        assert synced["assignment"] == b"mine", synced
        self.epoch = call(NEXT_HEARTBEAT, 1, beating("healthy-next", "next", 0))["member_epoch"]
        self.rounds = 0

    def round(self) -> None:
        self.rounds += 1
        body = {"group_id": "healthy", "generation_id": self.generation, "member_id": self.member}
        assert self.connection.call(HEARTBEAT, 4, body)["error_code"] == 0
        beat = beating("healthy-next", "next", self.epoch)
        answer = self.connection.call(NEXT_HEARTBEAT, 1, beat)
        assert (answer["error_code"], answer["member_epoch"]) == (0, self.epoch), answer
        for group, member, generation in (
            ("healthy", self.member, self.generation),
            ("healthy-next", "next", self.epoch),
        ):
            assert commit(self.connection, group, member, generation, self.rounds) == 0
            assert committed(self.connection, group) == self.rounds


@contextmanager
def beside_healthy(broker: KbrokerProcess) -> Iterator[Stable]:
    """Rounds of the healthy groups go on during the block; the broker bears it."""
    stable = Stable(broker.port)
    memory = broker.resident_kib()
    stopping = threading.Event()
    failure: list[BaseException] = []

    def work() -> None:
        try:
            while not stopping.is_set():
                stable.round()
                stopping.wait(0.01)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield stable
        wait_for("rounds of the healthy groups", lambda: stable.rounds > 10 or failure, 60)
    finally:
        stopping.set()
        thread.join()
    assert not failure, f"{failure[0]!r}\n{broker.log_tail()}"
    assert broker.is_running(), broker.log_tail()
    assert broker.resident_kib() < memory + GROWTH_MAX_KIB, f"from {memory} KiB"
    stable.connection.close()


def find(broker: KbrokerProcess) -> None:
    """Creates `__consumer_offsets` and waits until it is loaded."""
    with WireConnection(broker.port) as connection:
        keys = {"key_type": 0, "coordinator_keys": ["g"]}
        connection.call(FIND_COORDINATOR, 4, keys)
        wait_for("coordinators", lambda: commit(connection, "g", "", -1, 1) == 0, 60)


@pytest.fixture
def broker(start_kbroker: StartKbroker) -> Iterator[KbrokerProcess]:
    started = start_kbroker({"group.initial.rebalance.delay.ms": "0"}, hooks=True)
    wire.create_topic(started.port, "t", 2)
    find(started)
    yield started
    assert started.stop() == 0
    assert "test hook: live objects {}" in started.log_text()


def real_frames() -> list[bytes]:
    """Right frames of every group API, about a group called victim."""
    told = {"group_id": "victim", "generation_id": 1, "member_id": "m"}
    given = [{"member_id": "m", "assignment": b"x" * 40}]
    offsets = {"group_id": "victim", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
    leaving = [{"member_id": "m", "group_instance_id": None}]
    dropped = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    return [
        *(frame(JOIN, v, joining("victim", "m")) for v in (2, 5, 9)),
        *(frame(SYNC, v, told | {"assignments": given}) for v in (0, 4, 5)),
        *(frame(HEARTBEAT, v, told) for v in (0, 4)),
        *(frame(LEAVE, v, {"group_id": "victim", "members": leaving}) for v in (3, 5)),
        *(frame(COMMIT, v, committing("victim", "", -1, 5, "m" * 20)) for v in (8, 9)),
        frame(FETCH_OFFSETS, 9, {"groups": [offsets]}),
        *(frame(DESCRIBE, v, {"groups": ["victim", "healthy"]}) for v in (0, 5)),
        frame(LIST, 5, {"states_filter": ["Stable"], "types_filter": ["classic"]}),
        frame(DELETE_GROUPS, 2, {"groups_names": ["victim"]}),
        frame(DELETE_OFFSETS, 0, {"group_id": "victim", "topics": dropped}),
        *(frame(NEXT_HEARTBEAT, v, beating("victim-next", "m", 0)) for v in (0, 1)),
        frame(NEXT_HEARTBEAT, 1, beating("victim-next", "m", 1, subscribed_topic_regex="t.*")),
        frame(NEXT_DESCRIBE, 1, {"group_ids": ["victim-next", "healthy-next"]}),
        frame(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["victim", "healthy"]}),
    ]


@pytest.mark.parametrize("count", rounds(800, long=8_000, full=30_000))
@pytest.mark.timeout(1800)
def test_mutated_frames(broker: KbrokerProcess, count: int, tally: Tally) -> None:
    chance = random.Random(SEED)
    frames = real_frames()
    with beside_healthy(broker):
        for _ in range(count):
            send_and_leave(broker.port, mutated(chance, chance.choice(frames)), 0.05)
    tally("F20", tried=count)


def test_members_that_are_gone_while_they_wait(broker: KbrokerProcess) -> None:
    """Hundreds that join one group and reset, or say nothing more: none is kept for ever."""
    linger = struct.pack("ii", 1, 0)
    body = {"group_instance_id": None, "session_timeout": 6000, "rebalance_timeout": 1000}
    with beside_healthy(broker):
        silent = []
        for number in range(300):
            connection = WireConnection(broker.port)
            member = connection.call(JOIN, 9, joining("half-open", **body))["member_id"]
            connection.send(JOIN, 9, joining("half-open", member, **body))
            if number % 2:
                options = (socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.socket.setsockopt(*options)
                connection.close()
            else:
                silent.append(connection)
        with WireConnection(broker.port) as other:
            wait_for("nobody is left", lambda: state_of(other, "half-open") == "Empty", 60)
        for connection in silent:
            connection.close()


def state_of(connection: WireConnection, group: str) -> str:
    (told,) = connection.call(DESCRIBE, 5, {"groups": [group]})["groups"]
    return str(told["group_state"])


def test_a_leader_that_never_syncs(broker: KbrokerProcess) -> None:
    """Who waits for it is told to rejoin when its rebalance time is over."""
    body = {"session_timeout": 6000, "rebalance_timeout": 3000}
    with beside_healthy(broker), WireConnection(broker.port) as leader, \
            WireConnection(broker.port) as follower:  # fmt: skip
        a, b = (c.call(JOIN, 9, joining("unsynced", **body))["member_id"]
                for c in (leader, follower))  # fmt: skip
        assert leader.call(JOIN, 9, joining("unsynced", a, **body))["leader"] == a
        mine = {"group_id": "unsynced", "generation_id": 1, "member_id": a}
        assert leader.call(SYNC, 4, mine | {"assignments": []})["error_code"] == 0
        asked = follower.send(JOIN, 9, joining("unsynced", b, **body))

        def is_told() -> bool:
            return bool(leader.call(HEARTBEAT, 4, mine)["error_code"] == REBALANCE)

        wait_for("a rebalance", is_told, 3)
        first = leader.call(JOIN, 9, joining("unsynced", a, **body))
        second = follower.receive(JOIN, 9, asked)
        assert first["generation_id"] == second["generation_id"] == 2
        waits = {"group_id": "unsynced", "generation_id": 2, "member_id": b, "assignments": []}
        answer = follower.call(SYNC, 4, waits)
        assert answer["error_code"] in (REBALANCE, UNKNOWN_MEMBER), answer


def test_the_exact_error(broker: KbrokerProcess) -> None:
    """Strangers, other generations and epochs, too much metadata, expressions that are none."""
    with beside_healthy(broker) as stable, WireConnection(broker.port) as c:
        group, member, generation = "healthy", stable.member, stable.generation
        told = {"group_id": group, "generation_id": generation, "member_id": member}
        assert commit(c, group, "stranger", generation, 9) == UNKNOWN_MEMBER
        assert commit(c, group, member, generation + 1, 9) == ILLEGAL_GENERATION
        assert commit(c, group, member, generation, 9, "m" * 4097) == METADATA_TOO_LARGE
        assert commit(c, group, "", -1, 9) == UNKNOWN_MEMBER
        assert commit(c, "healthy-next", "next", stable.epoch + 1, 9) == STALE_MEMBER_EPOCH
        for changed, error in (
            ({"member_id": "stranger"}, UNKNOWN_MEMBER),
            ({"generation_id": generation - 1}, ILLEGAL_GENERATION),
        ):
            assert c.call(HEARTBEAT, 4, told | changed)["error_code"] == error
            assert c.call(SYNC, 4, told | changed)["error_code"] == error
        for beat, error in (
            (beating("healthy-next", "stranger", 1), UNKNOWN_MEMBER),
            (beating("healthy-next", "next", stable.epoch + 1), FENCED_EPOCH),
            (beating("healthy-next", "b", 0, server_assignor="none"), UNSUPPORTED_ASSIGNOR),
            (beating("healthy-next", "b", 0, subscribed_topic_names=None,
                     subscribed_topic_regex="(a"), INVALID_REGEX),
            (beating("", "b", 0), INVALID_REQUEST),
            (beating("healthy-next", "b", 0, topic_partitions=None), INVALID_REQUEST),
        ):  # fmt: skip
            answer = c.call(NEXT_HEARTBEAT, 1, beat)
            assert answer["error_code"] == error, (beat, answer)


def test_expressions_and_lists_without_end(broker: KbrokerProcess) -> None:
    """What would take another engine of expressions for ever, and 100,000 names and partitions."""
    topic = {"topic_id": wire.topic_id(broker.port, "t"), "partitions": [0] * 100_000}
    many = {"subscribed_topic_names": [f"topic-{n}" for n in range(100_000)]}
    patterns = ("(a*)*b", "(" * 1000, "((a{100}){100}){100}", "a" * 30_000)
    with beside_healthy(broker), WireConnection(broker.port) as c:
        for number, pattern in enumerate(patterns):
            expression = {"subscribed_topic_names": None, "subscribed_topic_regex": pattern}
            beat = beating("endless", f"m{number}", 0, **expression)
            answer = c.call(NEXT_HEARTBEAT, 1, beat)
            assert answer["error_code"] in (0, INVALID_REGEX), answer
        # More than fits a record: Apache Kafka's answer to that is UNKNOWN_SERVER_ERROR.
        assert c.call(NEXT_HEARTBEAT, 1, beating("names", "m", 0, **many))["error_code"] == -1
        owned = beating("owned", "m", 0, topic_partitions=[topic])
        c.call(NEXT_HEARTBEAT, 1, owned)


def damaged_batch(next_offset: int) -> bytes:
    """Keys and values that are none of Kafka's, or stop short, as one sound batch."""
    keys = (None, b"", b"\0", b"\0\1\0\5ab", b"\0\2\0", b"\x7f\xff", b"\0\1" + b"\xff" * 20,
            b"\0\3\0\1g", b"\0\5\0\1g\0\1m")  # fmt: skip
    values = (b"", b"\0", b"\x7f\xffx", b"\0\3" + b"\xff" * 8)
    records = [Record(value, key) for key in keys for value in values]
    return Batch(records, base_offset=next_offset, leader_epoch=0).encode()


@pytest.mark.parametrize("kind", ["records", "flipped bit", "cut"])
def test_damage_in_the_log_of_the_groups(
    start_kbroker: StartKbroker, tmp_path: Path, kind: str
) -> None:
    """The broker starts, says what it passed over, serves the group, and takes new commits."""
    broker = start_kbroker({"offsets.topic.num.partitions": "1"})
    wire.create_topic(broker.port, "t", 2)
    find(broker)
    with WireConnection(broker.port) as connection:
        for offset in range(20):
            assert commit(connection, "kept", "", -1, offset) == 0
    assert broker.stop() == 0
    log = broker.partition_dir("__consumer_offsets", 0) / "00000000000000000000.log"
    data = log.read_bytes()
    if kind == "records":
        log.write_bytes(data + damaged_batch(next_offset_of(data)))
        (broker.data_dir / ".kafka_cleanshutdown").unlink()
    elif kind == "flipped bit":
        at = len(data) // 2
        log.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    else:
        log.write_bytes(data[: len(data) - 7])
    broker.start()
    with WireConnection(broker.port) as connection:
        wait_for("a commit", lambda: commit(connection, "kept", "", -1, 99) == 0, 60)
        assert committed(connection, "kept") == 99
        assert commit(connection, "new", "", -1, 7) == 0
    assert ("passing over" in broker.log_text()) == (kind != "cut"), broker.log_tail()
    # A recovery after a crash cuts a log at a damaged batch that it walks over, as Apache Kafka's.
    _ = broker.stop() if kind == "flipped bit" else broker.kill()
    broker.start()
    with WireConnection(broker.port) as connection:
        find_again = {"key_type": 0, "coordinator_keys": ["kept"]}
        connection.call(FIND_COORDINATOR, 4, find_again)
        wait_for("the offsets", lambda: committed_or_none(connection, "kept") == 99, 60)
        assert committed(connection, "new") == 7


def committed_or_none(connection: WireConnection, group: str) -> int | None:
    try:
        return committed(connection, group)
    except AssertionError:
        return None


def next_offset_of(data: bytes) -> int:
    at = offset = 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        (delta,) = struct.unpack_from(">i", data, at + 23)
        offset, at = base + delta + 1, at + 12 + length
    return offset


def test_no_topic_of_another_name_is_read(broker: KbrokerProcess) -> None:
    """FindCoordinator for names of every length and sort, in one request."""
    names = ["", "a" * 32_000, "ünï", "\0", "..", "/etc/passwd", "healthy"]
    with beside_healthy(broker):
        keys = {"key_type": 0, "coordinator_keys": names}
        answer = call_once(broker.port, FIND_COORDINATOR, 4, keys)
        assert [each["key"] for each in answer["coordinators"]] == names


def test_a_subscription_that_lies_about_its_length(broker: KbrokerProcess) -> None:
    """Nobody looks into it until a member of the next protocol comes."""
    lie = [{"name": "range", "metadata": b"\0\1\x7f\xff\xff\xff"}]
    with beside_healthy(broker), WireConnection(broker.port) as c:
        member = c.call(JOIN, 9, joining("liars"))["member_id"]
        joined = c.call(JOIN, 9, joining("liars", member, protocols=lie))
        assert joined["error_code"] == 0
        mine = [{"member_id": member, "assignment": lie[0]["metadata"]}]
        synced = c.call(SYNC, 4, {"group_id": "liars", "generation_id": joined["generation_id"],
                                  "member_id": member, "assignments": mine})  # fmt: skip
        assert synced["error_code"] == 0
        assert c.call(NEXT_HEARTBEAT, 1, beating("liars", "next", 0))["error_code"] != 0
