"""Broken streams against the network half.

Invariant tested: whatever bytes come in whatever pieces, the engine answers or closes, another
connection's answers are untouched, and nothing is left behind: no connection, operation, buffer or
reserved byte.
"""

import contextlib
import os
import random
import struct
import threading

import pytest

from kbroker.ext import testing_network as handlers
from tests.support.engine import API_VERSIONS, Client, engine_port, frame, running_engine
from tests.support.waits import wait_for

STREAMS = int(os.environ.get("KBROKER_FUZZ_STREAMS", "300"))
SETTINGS = {
    "socket.request.max.bytes": 200_000,
    "queued.max.request.bytes": 400_000,
    "queued.max.requests": 8,
    "kbroker.control.queue.requests.max": 8,
    "kbroker.connection.requests.max": 20,
    "kbroker.connection.unsent.bytes.max": 100_000,
    "kbroker.network.read.bytes": 4096,
}
KEYS = (API_VERSIONS, *range(handlers.ECHO, handlers.CONTROL + 1))


def any_frame(rng, correlation_id):
    """A request that is all right, of any key but the stalling ones' worst."""
    key = rng.choice(KEYS)
    if key == handlers.DEADLINE:
        body = struct.pack(">i", rng.randrange(20))
    elif key in (handlers.REGIONS, handlers.REGIONS_POSTED):
        body = struct.pack(">ii", rng.randrange(1000), rng.randrange(100_000)) * rng.randrange(5)
    else:
        body = rng.randbytes(rng.choice((0, 3, 8, 100, 4000, 5000, 150_000)))
    return frame(key, correlation_id, body, rng.choice((0, 0, 1)))


def spoil(rng, stream):
    """Bits flipped, lengths changed, pieces lost or doubled; sometimes nothing."""
    stream = bytearray(stream)
    for _ in range(rng.choice((0, 1, 1, 2, 10))):
        at = rng.randrange(len(stream))
        match rng.randrange(5):
            case 0:
                stream[at] ^= 1 << rng.randrange(8)
            case 1:
                stream[at : at + 4] = struct.pack(">i", rng.choice((-1, 0, 3, 7, 2**31 - 1, 5000)))
            case 2:
                del stream[at : at + rng.randrange(1, 20)]
            case 3:
                stream[at:at] = stream[at : at + rng.randrange(200)]
            case 4:
                del stream[at:]
        if not stream:
            return b"\0"
    return bytes(stream)


def send_pieces(rng, client, stream):
    """Send in pieces, read now and then, leave in any way."""
    with contextlib.suppress(OSError, EOFError), client:
        client.socket.settimeout(0.02)
        at = 0
        while at < len(stream):
            size = rng.choice((1, 7, 100, 4096, 65536, 1 << 20))
            with contextlib.suppress(TimeoutError):
                at += client.socket.send(stream[at : at + size])
            if rng.random() < 0.3:
                with contextlib.suppress(TimeoutError):
                    client.socket.recv(1 << 20)
        if rng.random() < 0.5:
            with contextlib.suppress(TimeoutError):
                while client.socket.recv(1 << 20):
                    pass


def serve_control(engine, rng):
    """A control thread that answers, closes or forgets."""
    while (request := engine.next_request()) is not None:
        what = rng.random()
        if what < 0.8:
            request.respond(request.body)
        elif what < 0.9:
            request.close()
        # Forgotten means let go of: not held by this name until the next one comes.
        request = None


def watch_neighbour(engine, finished, wrong):
    """A client that behaves: each of its answers must be its own."""
    rng = random.Random(5)
    with Client(engine_port(engine)) as client:
        number = 0
        while not finished.is_set():
            body = rng.randbytes(rng.randrange(3000))
            key = rng.choice((handlers.ECHO, handlers.POSTED, handlers.ON_IO))
            if client.call(key, number, body) != body:
                wrong.append(number)
                return
            number += 1


@pytest.fixture
def region_fd(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(200_000))
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def is_all_gone(engine):
    """No connection but the neighbour's, and no memory in use.

    What was still in a socket when the poster stopped is parked after it: posted here.
    """
    handlers.post_once()
    stats = engine.stats()
    return (
        engine.connections() == 0
        and stats["ops_live"] == 0
        and stats["request_buffers"] == 0
        and stats["request_bytes_available"] == SETTINGS["queued.max.request.bytes"]
    )


def test_broken_streams_leave_nothing_behind(region_fd):
    wrong = []
    finished = threading.Event()
    with running_engine(SETTINGS, region_fd) as engine:
        handlers.start_poster()
        control = threading.Thread(target=serve_control, args=(engine, random.Random(6)))
        neighbour = threading.Thread(target=watch_neighbour, args=(engine, finished, wrong))
        control.start()
        neighbour.start()
        try:
            for seed in range(STREAMS):
                rng = random.Random(seed)
                stream = b"".join(any_frame(rng, at) for at in range(rng.randrange(1, 25)))
                client = Client(engine_port(engine), rng.choice((None, 4096)))
                send_pieces(rng, client, spoil(rng, stream))
                engine.next_log_lines()
        finally:
            finished.set()
            neighbour.join(20)
            handlers.stop_poster()
        assert not wrong
        assert not neighbour.is_alive()
        wait_for("nothing left", lambda: is_all_gone(engine), 10)
        engine.stop(1000)
        control.join(5)
        assert not control.is_alive()


def test_the_fuzzer_sees_a_wrong_answer(monkeypatch):
    """The canary: a neighbour whose echo is something else must be noticed."""
    monkeypatch.setattr(handlers, "ECHO", handlers.COUNT)
    wrong = []
    with running_engine(SETTINGS) as engine:
        handlers.start_poster()
        watch_neighbour(engine, threading.Event(), wrong)
        handlers.stop_poster()
    assert wrong


def test_the_fuzzer_sees_what_is_left_behind():
    """The canary: an operation that nobody answers, and half a frame, must be noticed."""
    with running_engine(SETTINGS) as engine:
        with Client(engine_port(engine)) as client:
            client.send(handlers.POSTED, 1)
            wait_for("parked", lambda: handlers.parked() == 1, 5)
        wait_for("closed", lambda: engine.connections() == 0, 5)
        assert engine.stats()["ops_live"] == 1  # is_all_gone would post it first
        handlers.post_once()
        with Client(engine_port(engine)) as client:
            client.socket.sendall(frame(handlers.ECHO, 1, bytes(100_000))[:50_000])
            wait_for("kept", lambda: engine.stats()["request_buffers"] == 1, 5)
            assert not is_all_gone(engine)
        wait_for("nothing left", lambda: is_all_gone(engine), 10)
