"""How the network half stops: what is in flight is answered, what waits for nothing is closed."""

import logging
import struct
import threading
import time

import pytest

from kbroker.ext import testing_network as handlers
from kbroker.ext.engine import Engine
from tests.support.engine import Client, engine_port, running_engine

SLOW_S = 10


def test_stop_answers_what_is_in_flight():
    with running_engine() as engine:
        client, quiet = Client(engine_port(engine)), Client(engine_port(engine))
        with client, quiet:
            quiet.call(handlers.ECHO, 1)
            client.send(handlers.DEADLINE, 1, struct.pack(">i", 300))
            client.send(handlers.CONTROL, 2, b"late")
            request = engine.next_request(5000)
            stopper = threading.Thread(target=engine.stop, args=(5000,))
            stopper.start()
            assert quiet.is_closed()
            request.respond(b"still")
            assert client.receive() == (1, b"")
            assert client.receive() == (2, b"still")
            assert client.is_closed()
            stopper.join(5)
            assert not stopper.is_alive()
            assert engine.next_request(1000) is None


def test_stop_before_a_thread_has_run_ends_it():
    """The announcement wakes a thread that sleeps; one that has yet to begin must see it, too."""
    for _ in range(200):
        engine = Engine({"num.network.threads": 8, "num.io.threads": 1})
        engine.listen("127.0.0.1", 0, "PLAINTEXT")
        engine.start()
        stopper = threading.Thread(target=engine.stop, args=(0,), daemon=True)
        stopper.start()
        stopper.join(SLOW_S)
        assert not stopper.is_alive()


def test_stop_does_not_wait_longer_than_told():
    with running_engine() as engine, Client(engine_port(engine)) as client:
        client.send(handlers.DEADLINE, 1, struct.pack(">i", 60_000))
        client.send(handlers.CONTROL, 2)
        request = engine.next_request(5000)
        begin = time.monotonic()
        engine.stop(100)
        assert time.monotonic() - begin < 3
        assert client.is_closed()
        request.respond(b"too late")


def warnings_of(engine):
    return [text for level, text, *_ in engine.next_log_lines() if level >= logging.WARNING]


@pytest.mark.parametrize("stops", [False, True])
def test_a_request_that_is_dropped_warns_unless_the_broker_stops(stops):
    """What waited for something that no longer comes goes with its connection then."""
    with running_engine() as engine, Client(engine_port(engine)) as client:
        client.send(handlers.CONTROL, 1)
        request = engine.next_request(5000)
        stopper = threading.Thread(target=engine.stop, args=(5000,))
        if stops:
            with Client(engine_port(engine)) as quiet:
                quiet.call(handlers.ECHO, 1)
                stopper.start()
                assert quiet.is_closed()
        del request
        assert client.is_closed()
        if stops:
            stopper.join(5)
            assert not warnings_of(engine)
        else:
            (line,) = warnings_of(engine)
            assert "dropped without an answer" in line


def test_stop_accepting_keeps_what_is_connected():
    with running_engine() as engine, Client(engine_port(engine)) as client:
        client.call(handlers.ECHO, 1)
        engine.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            Client(engine_port(engine))
        assert client.call(handlers.ECHO, 2) == b""


def test_an_engine_that_never_started_goes_quietly():
    engine = Engine({})
    assert engine.listen("127.0.0.1", 0, "PLAINTEXT") > 0
    del engine
    Engine({}).stop()
