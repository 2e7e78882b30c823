"""Bytes that no client sends: the broker answers or closes, keeps its memory, serves the others.

Invariants: a healthy client beside the bad ones is served throughout and reads what it wrote; the
process lives; afterwards its open files are back to where they were, and its memory nearly so.
kbroker alone: with a hundred prefixes of 100 MB Apache Kafka has no heap left.
"""

from __future__ import annotations

import json
import random
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.reference.crafted_batches import GZIP, NONE, Batch, Record, batch, values_of
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import FETCH, LIST_OFFSETS, METADATA, PRODUCE, WireConnection
from tests.wire.test_connections import fetch_body, frame, produce_body

StartBroker = Callable[..., BrokerProcess]
GROWTH_MAX_KIB = 64 * 1024
IDLE_MS = 8000
SEED = 20260903
ADD_PARTITIONS_TO_TXN = 24


class HealthyClient(threading.Thread):
    """Produces and fetches over one connection until told to stop; keeps the first error."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__()
        self.port, self.topic = broker.port, "healthy"
        self.rounds = 0
        self.error: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            with WireConnection(self.port) as connection:
                while not self.stopping.is_set():
                    value = b"round %d" % self.rounds
                    connection.call(PRODUCE, 9, produce_body(self.topic, batch(value)))
                    answer = connection.call(FETCH, 11, fetch_body(self.topic, self.rounds))
                    got = values_of(answer["responses"][0]["partitions"][0]["records"])
                    assert got == [(self.rounds, value)], got
                    self.rounds += 1
                    self.stopping.wait(0.005)
        except BaseException as error:
            self.error = error


@contextmanager
def watched(broker: BrokerProcess) -> Iterator[HealthyClient]:
    """A healthy client runs during the block; afterwards the broker must be as before."""
    wire.create_topic(broker.port, "healthy")
    files, memory = broker.open_files(), broker.resident_kib()
    client = HealthyClient(broker)
    client.start()
    try:
        yield client
        wait_for("the healthy client's rounds", lambda: client.rounds > 10 or client.error, 60)
    finally:
        client.stopping.set()
        client.join()
    assert client.error is None, f"{client.error!r}\n{broker.log_tail()}"
    assert broker.is_running(), broker.log_tail()
    wait_for("connections are gone", lambda: broker.open_files() <= files + 8, 60)
    assert broker.resident_kib() < memory + GROWTH_MAX_KIB, f"from {memory} KiB"


def send_and_leave(port: int, data: bytes, timeout_s: float = 0.5) -> None:
    """Sends, says that no more comes, and reads what is answered until the end."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout_s) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass


@pytest.fixture
def broker(start_kbroker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker that drops silent connections; no object that is counted may outlive its stop."""
    overdue_every = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    started = start_kbroker(
        {"connections.max.idle.ms": str(IDLE_MS), overdue_every: "100"}, hooks=True
    )
    yield started
    assert started.stop() == 0
    assert "test hook: live objects {}" in started.log_text()


def real_frames() -> list[bytes]:
    """One right frame of many kinds, about a topic called victim."""
    topic = {"name": "victim"}
    part = {"partition_index": 0, "timestamp": -1}
    offsets = {"replica_id": -1, "topics": [topic | {"partitions": [part]}]}
    many = batch(*(b"value %d" % n for n in range(30)))
    config = {"resource_type": 2, "resource_name": "victim", "configuration_keys": None}
    new_topic = {"name": "victim-2", "num_partitions": 1, "replication_factor": 1}
    frames = [
        *(frame(PRODUCE, v, produce_body("victim", many)) for v in (3, 8, 9, 12)),
        *(frame(FETCH, v, fetch_body("victim", 0)) for v in (4, 11, 12)),
        *(frame(METADATA, v, {"topics": [topic]}) for v in (0, 1, 9, 12)),
        *(frame(LIST_OFFSETS, v, offsets) for v in (1, 5, 9)),
        frame(wire.API_VERSIONS, 0, {}),
        frame(wire.API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"}),
        frame(wire.CREATE_TOPICS, 5, {"topics": [new_topic], "timeout": 1000}),
        frame(wire.DESCRIBE_CONFIGS, 4, {"resources": [config]}),
        frame(wire.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout": 1000}),
        frame(wire.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]}),
        frame(wire.DESCRIBE_CLUSTER, 0, {}),
        frame(wire.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": [{"topic": "victim", "partitions": []}]}),
    ]  # fmt: skip
    return frames


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Bits flipped, bytes set to odd values, pieces cut, doubled or put in; the length put right
    in most cases, so that what is inside is read at all."""
    out = bytearray(data[4:])
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        at = chance.randrange(len(out))
        match chance.randrange(6):
            case 0:
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                out[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80\0\0\0"))
            case 3 if len(out) > 12:
                del out[at : at + chance.randrange(1, 9)]
            case 4:
                out[at:at] = out[at : at + chance.randrange(1, 40)]
            case _:
                out[at:at] = chance.randbytes(chance.randrange(1, 9))
        out = out or bytearray(b"\0")
    length = len(out) if chance.random() < 0.95 else chance.randrange(-2, 2 * len(out))
    return struct.pack(">i", length) + bytes(out)


@pytest.mark.parametrize("count", rounds(1500, long=10_000, full=40_000))
@pytest.mark.timeout(1800)
def test_mutated_frames(broker: BrokerProcess, count: int, tally: Tally) -> None:
    chance = random.Random(SEED)
    wire.create_topic(broker.port, "victim")
    frames = real_frames()
    with watched(broker):
        for _ in range(count):
            # A good frame after the bad one: what is left of the stream is read on as well.
            data = mutated(chance, chance.choice(frames)) + chance.choice(frames)
            send_and_leave(broker.port, data)
    tally("F20", tried=count)


@pytest.mark.parametrize("count", rounds(1000, long=6_000, full=20_000))
@pytest.mark.timeout(1800)
def test_random_frames(broker: BrokerProcess, count: int, tally: Tally) -> None:
    """Noise behind a right length, some of it behind a right header."""
    chance = random.Random(SEED)
    with watched(broker):
        for _ in range(count):
            noise = chance.randbytes(chance.randrange(0, 300))
            if chance.random() < 0.7:
                key, version = chance.randrange(0, 93), chance.randrange(0, 14)
                noise = struct.pack(">hhih", key, version, 1, -1) + noise
            send_and_leave(broker.port, struct.pack(">i", len(noise)) + noise)
    tally("F20", tried=count)


def test_huge_lengths(broker: BrokerProcess) -> None:
    """Two gigabytes announced: refused at once. A hundred megabytes: not taken before they come."""
    memory = broker.resident_kib()
    with watched(broker):
        for length in (2**31 - 1, 2**31 - 2, 1 << 30, -(2**31)):
            for _ in range(25):
                send_and_leave(broker.port, struct.pack(">i", length) + b"x" * 1000)
        waiting = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(100)]
        for sock in waiting:
            sock.sendall(struct.pack(">i", 100 * 1024 * 1024) + b"\0\0\0\x09" + b"x" * 5000)
        assert broker.resident_kib() < memory + GROWTH_MAX_KIB
        for sock in waiting:
            sock.close()


def test_half_frames_then_silence(broker: BrokerProcess, tally: Tally) -> None:
    """They are closed when they have been idle for long enough, without help."""
    data = real_frames()[0]
    with watched(broker):
        silent = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(300)]
        for number, sock in enumerate(silent):
            sock.sendall(data[: number % len(data)])
        wait_until_closed(silent)
    tally("F16", tried=len(silent))


def wait_until_closed(sockets: list[socket.socket]) -> None:
    """By the broker, all of them; and by us, once they are."""
    open_ones = list(sockets)

    def all_closed() -> bool:
        open_ones[:] = [sock for sock in open_ones if not is_closed(sock)]
        return not open_ones

    wait_for("the silent ones are closed", all_closed, 60)
    for sock in sockets:
        sock.close()


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_thousands_of_connections_with_one_byte(broker: BrokerProcess, tally: Tally) -> None:
    """Others are served meanwhile, and all are closed when they have been idle for long enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with watched(broker) as client:
            sockets = []
            for _ in range(5000):
                sock = socket.create_connection(("127.0.0.1", broker.port))
                sock.sendall(b"\0")
                sockets.append(sock)
            reached = client.rounds
            wait_for("the healthy client goes on", lambda: client.rounds > reached + 5, 60)
            wait_until_closed(sockets)
        tally("F16", tried=len(sockets))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_that_are_reset(broker: BrokerProcess) -> None:
    """SO_LINGER 0: the broker meets RST at every stage of a request."""
    linger = struct.pack("ii", 1, 0)
    with watched(broker):
        for number in range(1000):
            sock = socket.create_connection(("127.0.0.1", broker.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            data = real_frames()[number % 12]
            sock.sendall(data[: number % (len(data) + 1)])
            sock.close()


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_flipped_bit_of_a_batch_is_never_stored(broker: BrokerProcess, codec: int) -> None:
    """Each byte in turn; only the leader epoch is the broker's to overwrite."""
    chance = random.Random(SEED)
    sound = Batch([Record(b"value %d" % n) for n in range(5)], codec=codec).encode()
    overwritten = range(12, 16)
    wire.create_topic(broker.port, "victim")
    stored = 0
    with watched(broker), WireConnection(broker.port) as connection:
        for at in range(len(sound)):
            flipped = bytearray(sound)
            flipped[at] ^= 1 << chance.randrange(8)
            answer = connection.call(PRODUCE, 9, produce_body("victim", bytes(flipped)))
            (part,) = answer["responses"][0]["partition_responses"]
            assert (part["error_code"] == 0) is (at in overwritten), f"byte {at}: {part}"
            stored += part["error_code"] == 0
        answer = connection.call(FETCH, 11, fetch_body("victim", 0))
    found = values_of(answer["responses"][0]["partitions"][0]["records"])
    assert found == [(n, b"value %d" % (n % 5)) for n in range(5 * stored)]


def test_each_connection_that_is_closed_is_told_with_its_reason(broker: BrokerProcess) -> None:
    told = {
        "api key 999 (version 0) is not known": request_bytes(999, 0),
        "frame of 10 bytes holds no request header": request_bytes(METADATA, 99),
        "a frame of -1 bytes; socket.request.max.bytes is": struct.pack(">i", -1),
        "a frame of 1195725856 bytes": b"GET / HTTP/1.1\r\n\r\n",
        "malformed request: METADATA v1": request_bytes(METADATA, 1),
        "malformed ListOffsets request": request_bytes(LIST_OFFSETS, 1),
    }
    for data in told.values():
        send_and_leave(broker.port, data)
    wait_for("all is told", lambda: all(reason in broker.log_text() for reason in told), 60)


def leave_transaction_open(port: int, transactional_id: str) -> None:
    """Begin a transaction that may last for a millisecond."""
    body = {"key_type": 1, "coordinator_keys": [transactional_id]}
    wire.call_once(port, wire.FIND_COORDINATOR, 4, body)
    body = {"transactional_id": transactional_id, "transaction_timeout": 1}

    def ask() -> dict[str, Any] | None:
        answer = wire.call_once(port, wire.INIT_PRODUCER_ID, 4, body)
        return None if answer["error_code"] in (14, 15, 16) else answer

    given = wait_for("a producer id", ask, 30)
    who = {"transactional_id": transactional_id, "producer_id": given["producer_id"],
           "producer_epoch": given["producer_epoch"],
           "topics": [{"name": "victim", "partitions": [0]}]}  # fmt: skip
    fields = {f"v3_and_below_{name}": value for name, value in who.items()}
    answer = wire.call_once(port, ADD_PARTITIONS_TO_TXN, 3, fields)
    (topic,) = answer["results_by_topic_v3_and_below"]
    assert topic["results_by_partition"][0]["partition_error_code"] == 0


def test_clients_write_no_lines_of_their_own_into_the_log(broker: BrokerProcess) -> None:
    wire.create_topic(broker.port, "victim")
    for text in ("mine\n2026-01-01 00:00:00,000 ERROR kbroker: forged\x1b[2J", "x" * 30_000):
        leave_transaction_open(broker.port, text)
    told = '"kbroker.txn"'
    wait_for("both are told", lambda: broker.log_text().count(told) == 2, 60)
    lines = [line for line in broker.log_text().splitlines() if told in line]
    first, second = sorted((json.loads(line)["msg"] for line in lines), key=len)
    assert r"mine\n2026-01-01 00:00:00,000 ERROR kbroker: forged\x1b[2J" in first
    assert len(second) < 2_200 and "characters)" in second


def request_bytes(key: int, version: int) -> bytes:
    """A frame that holds a request header and nothing else."""
    header = struct.pack(">hhih", key, version, 1, -1)
    return struct.pack(">i", len(header)) + header
