"""Bounds of the network half: memory, queues, slow readers, connections, idleness, stopping."""

import contextlib
import itertools
import os
import resource
import struct
import threading
import time
from contextlib import ExitStack

import pytest

from kbroker.ext import testing_network as handlers
from kbroker.ext.engine import Engine, checked_settings
from tests.support.engine import KEYS, Client, engine_port, frame, running_engine
from tests.support.waits import wait_for


def pump(engine, answers=None):
    """A control thread that echoes; it ends when the engine stops."""

    def run():
        while (request := engine.next_request()) is not None:
            if answers is not None:
                answers.append(request)
            request.respond(request.body)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def is_quiet(engine):
    """True when nothing has been read for a moment."""
    before = engine.stats()["reads"], engine.stats()["bytes_in"]
    threading.Event().wait(0.1)
    return (engine.stats()["reads"], engine.stats()["bytes_in"]) == before


# ---- request memory ---------------------------------------------------------------------------


def test_memory_is_reserved_before_a_body_is_read():
    with running_engine({"queued.max.request.bytes": 1 << 20}) as engine:
        whole = frame(handlers.COUNT, 1, bytes(900_000))
        with Client(engine_port(engine)) as first, Client(engine_port(engine)) as second, \
                Client(engine_port(engine)) as third:  # fmt: skip
            first.socket.sendall(whole[:400_000])
            second.socket.sendall(whole[:400_000])
            wait_for("all reserved", lambda: engine.stats()["request_bytes_available"] <= 0, 5)
            third.socket.setblocking(False)
            third.socket.send(whole)
            wait_for("the third waits", lambda: is_quiet(engine), 5)
            assert engine.stats()["request_bytes_available"] > -(2 << 20)
            assert engine.stats()["request_buffer_bytes"] < 4 << 20
            first.socket.sendall(whole[400_000:])
            assert first.receive() == (1, bytes(8))
            second.socket.sendall(whole[400_000:])
            assert second.receive() == (1, bytes(8))
        wait_for("all closed", lambda: engine.connections() == 0, 5)
        assert engine.stats()["request_bytes_available"] == 1 << 20
        assert engine.stats()["request_buffers"] == 0


def test_many_large_requests_pass_through_little_memory():
    with running_engine({"queued.max.request.bytes": 1 << 20}) as engine:
        body = os.urandom(700_000)
        clients = [Client(engine_port(engine)) for _ in range(12)]
        senders = [
            threading.Thread(
                target=client.socket.sendall, args=(frame(handlers.ECHO, at, body) * 3,)
            )
            for at, client in enumerate(clients)
        ]
        readers = [threading.Thread(target=lambda c=client: [c.receive() for _ in range(3)])
                   for client in clients]  # fmt: skip
        for thread in (*senders, *readers):
            thread.start()
        for thread in (*senders, *readers):
            thread.join(20)
            assert not thread.is_alive()
        for client in clients:
            client.socket.close()
        wait_for("all closed", lambda: engine.connections() == 0, 5)
        assert engine.stats()["request_bytes_available"] == 1 << 20


def test_the_largest_frame_passes_and_one_more_byte_does_not():
    settings = {"socket.request.max.bytes": 100_000}
    with running_engine(settings) as engine, Client(engine_port(engine)) as client:
        body = os.urandom(100_000 - 10)
        assert client.call(handlers.ECHO, 1, body) == body
        client.send(handlers.ECHO, 1, body + b"x")
        assert client.is_closed()


# ---- stalls and queues ------------------------------------------------------------------------


@pytest.mark.parametrize("key", [handlers.STALL, handlers.STALL_ON_IO])
def test_what_stalls_is_tried_again_and_keeps_its_order(key):
    with running_engine() as engine, Client(engine_port(engine)) as client:
        handlers.set_stalling(engine, True)
        for at in range(50):
            client.send(key if at % 5 == 0 else handlers.ECHO, at, b"%d" % at)
        wait_for("it stalls", lambda: is_quiet(engine), 5)
        client.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        client.socket.settimeout(20)
        handlers.set_stalling(engine, False)
        for at in range(50):
            assert client.receive() == (at, b"%d" % at)


def test_stalling_and_unstalling_loses_no_request():
    with running_engine({"num.io.threads": 1}) as engine:
        clients = [Client(engine_port(engine)) for _ in range(8)]
        for client in clients:
            client.socket.sendall(b"".join(
                frame(handlers.STALL if at % 2 else handlers.STALL_ON_IO, at) for at in range(200)
            ))  # fmt: skip
        finished = threading.Event()

        def toggle():
            for stall in itertools.cycle((True, False)):
                handlers.set_stalling(engine, stall)
                if finished.is_set() and not stall:
                    return

        thread = threading.Thread(target=toggle)
        thread.start()
        try:
            for client in clients:
                assert [client.receive()[0] for _ in range(200)] == list(range(200))
        finally:
            finished.set()
            thread.join()
            for client in clients:
                client.socket.close()


def test_a_full_control_queue_stalls_connections():
    with running_engine({"kbroker.control.queue.requests.max": 4}) as engine:
        clients = [Client(engine_port(engine)) for _ in range(20)]
        for at, client in enumerate(clients):
            client.socket.sendall(frame(handlers.CONTROL, at, b"c") + frame(handlers.ECHO, -at))
        wait_for("it is full", lambda: engine.stats()["control_queue"] == 4, 5)
        wait_for("the others stall", lambda: engine.stats()["stalls"] >= 16, 5)
        thread = pump(engine)
        for at, client in enumerate(clients):
            assert client.receive() == (at, b"c")
            assert client.receive() == (-at, b"")
            client.socket.close()
        engine.stop(1000)
        thread.join(5)
        assert not thread.is_alive()


def test_a_slow_reader_is_not_read():
    settings = {"kbroker.connection.unsent.bytes.max": 65536}
    with running_engine(settings) as engine, \
            Client(engine_port(engine), receive_buffer=4096) as client:  # fmt: skip
        body = os.urandom(20_000)
        client.socket.setblocking(False)
        request = frame(handlers.ECHO, 1, body)
        sent = 0
        while True:
            try:
                sent += client.socket.send(request[sent % len(request) :])
            except BlockingIOError:
                if is_quiet(engine):
                    break
        assert engine.stats()["bytes_in"] < sent
        client.socket.settimeout(20)
        rest = request[sent % len(request) :] if sent % len(request) else b""
        count = (sent + len(rest)) // len(request)
        sender = threading.Thread(target=client.socket.sendall, args=(rest,))
        sender.start()
        for _ in range(count):
            assert client.receive() == (1, body)
        sender.join()


def test_a_muted_connection_is_not_read_for_its_time():
    with running_engine() as engine, Client(engine_port(engine)) as client:
        body = struct.pack(">i", 200)
        began = time.monotonic()
        client.socket.sendall(frame(handlers.MUTE, 1, body) + frame(handlers.ECHO, 2))
        assert client.receive() == (1, body)
        client.send(handlers.ECHO, 3)
        assert [client.receive()[0] for _ in range(2)] == [2, 3]
        assert time.monotonic() - began >= 0.198  # the wheel counts whole milliseconds


# ---- the control lane -------------------------------------------------------------------------


def test_control_requests_carry_what_the_client_sent():
    with running_engine() as engine, Client(engine_port(engine)) as client:
        header = struct.pack(">hhih", handlers.CONTROL, 1, 77, 6) + b"my-app\0"
        client.socket.sendall(struct.pack(">i", len(header) + 4) + header + b"body")
        request = engine.next_request(5000)
        assert (request.api_key, request.api_version) == (handlers.CONTROL, 1)
        assert (request.correlation_id, request.client_id) == (77, "my-app")
        assert (request.body, request.listener) == (b"body", "PLAINTEXT")
        assert request.peer == client.socket.getsockname()
        assert request.connection_id == 1
        assert request.received_ns <= time.monotonic_ns()
        request.respond(b"answer")
        assert client.receive() == (77, b"\0answer")
        with pytest.raises(RuntimeError):
            request.respond(b"again")
        large = os.urandom(3_000_000)
        client.send(handlers.CONTROL, 1, large)
        request = engine.next_request(5000)
        request.respond(request.body)
        assert client.receive() == (1, large)


def test_a_dropped_or_closed_request_closes_its_connection():
    with running_engine() as engine:
        for close in (False, True):
            with Client(engine_port(engine)) as client:
                client.send(handlers.CONTROL, 1)
                request = engine.next_request(5000)
                if close:
                    request.close()
                    request.close()
                del request
                assert client.is_closed()


def test_the_answer_to_a_dead_connection_goes_nowhere():
    with running_engine() as engine:
        with Client(engine_port(engine)) as client:
            client.send(handlers.CONTROL, 1)
            request = engine.next_request(5000)
        with Client(engine_port(engine)) as client:
            client.call(handlers.ECHO, 1)
        request.respond(b"x" * 100_000)
        wait_for("gone", lambda: engine.connections() == 0, 5)
        wait_for("freed", lambda: engine.stats()["ops_live"] == 0, 5)


def test_next_request_gives_up_in_time():
    with running_engine() as engine:
        begin = time.monotonic()
        assert engine.next_request(0) is None
        assert engine.next_request(20) is None
        assert 0.02 <= time.monotonic() - begin < 5


# ---- connections ------------------------------------------------------------------------------


def test_connections_per_address_are_limited():
    with running_engine({"max.connections.per.ip": 3}) as engine:
        clients = [Client(engine_port(engine)) for _ in range(3)]
        for client in clients:
            assert client.call(handlers.ECHO, 1) == b""
        with Client(engine_port(engine)) as refused:
            assert refused.is_closed()
        clients.pop().socket.close()
        wait_for("one left", lambda: engine.connections() == 2, 5)
        clients.append(Client(engine_port(engine)))
        for client in clients:
            assert client.call(handlers.ECHO, 1) == b""
            client.socket.close()


def test_at_max_connections_the_next_one_waits():
    with running_engine({"max.connections": 2}) as engine:
        clients = [Client(engine_port(engine)) for _ in range(3)]
        for at, client in enumerate(clients):
            client.send(handlers.ECHO, at)
        assert clients[0].receive() == (0, b"")
        assert clients[1].receive() == (1, b"")
        assert engine.connections() == 2
        clients[0].socket.close()
        assert clients[2].receive() == (2, b"")
        for client in clients:
            client.socket.close()


LOOPBACK = bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1])
MANY = 2**31 - 1


def test_limits_of_connections_change_while_the_engine_runs():
    """What is open counts against a limit that comes later; a limit that goes lets who waits in."""
    with running_engine() as engine, ExitStack() as clients:

        def connect() -> Client:
            return clients.enter_context(Client(engine_port(engine)))

        for _ in range(2):
            assert connect().call(handlers.ECHO, 1) == b""
        engine.limit_connections(MANY, 2, [])
        assert connect().is_closed()
        engine.limit_connections(MANY, 0, [(LOOPBACK, 3), (bytes(16), 0)])
        assert connect().call(handlers.ECHO, 1) == b""
        assert connect().is_closed()
        engine.limit_connections(3, MANY, [])
        waiting = connect()
        waiting.send(handlers.ECHO, 5)
        assert engine.connections() == 3
        engine.limit_connections(4, MANY, [])
        assert waiting.receive() == (5, b"")


def test_without_descriptors_the_acceptor_waits_and_recovers():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with running_engine() as engine:
        clients = [Client(engine_port(engine)) for _ in range(4)]
        for client in clients:
            client.call(handlers.ECHO, 1)
        highest = max(client.socket.fileno() for client in clients)
        waiting = Client(engine_port(engine))
        waiting.call(handlers.ECHO, 1)
        lacking = Client(engine_port(engine))
        lacking.call(handlers.ECHO, 1)
        late = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        try:
            threads_before = time.process_time()
            with pytest.raises(OSError, match="Too many open files"):
                late.extend(Client(engine_port(engine)) for _ in range(100))
            assert time.process_time() - threads_before < 5
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with Client(engine_port(engine)) as again:
            assert again.call(handlers.ECHO, 1, b"again") == b"again"
        for client in (*clients, waiting, lacking, *late):
            client.socket.close()


def test_idle_connections_are_closed_and_busy_ones_are_not():
    with running_engine({"connections.max.idle.ms": 1000}) as engine:
        idle, half, busy, parked = (Client(engine_port(engine)) for _ in range(4))
        half.socket.sendall(frame(handlers.ECHO, 1, b"half")[:9])
        parked.send(handlers.DEADLINE, 1, struct.pack(">i", 2500))
        closed = []
        thread = threading.Thread(
            target=lambda: closed.extend((idle.is_closed(), half.is_closed()))
        )
        thread.start()
        while thread.is_alive():
            assert busy.call(handlers.ECHO, 1) == b""
        assert closed == [True, True]
        assert parked.receive() == (1, b"")
        assert engine.stats()["idle_closed"] >= 2
        for client in (idle, half, busy, parked):
            client.socket.close()


def test_who_never_reads_its_answers_is_idle():
    """Closed here, with all that was to be sent. What the kernel has of it stays with the kernel
    for some minutes, and the client, whose window is shut, hears nothing of the end."""
    with (
        running_engine({"connections.max.idle.ms": 1000}) as engine,
        Client(engine_port(engine), receive_buffer=4096) as deaf,
    ):
        deaf.socket.settimeout(0.2)
        with contextlib.suppress(OSError):
            while True:
                deaf.send(handlers.ECHO, 1, bytes(200_000))
        wait_for("it is closed", lambda: engine.stats()["idle_closed"] == 1, 60)


def test_idle_connections_cost_nothing():
    with running_engine() as engine:
        clients = [Client(engine_port(engine)) for _ in range(100)]
        for client in clients:
            client.call(handlers.ECHO, 1, b"x" * 1000)
        wait_for("quiet", lambda: is_quiet(engine), 5)
        before = engine.stats()["turns"]
        threading.Event().wait(0.5)
        assert engine.stats()["turns"] - before <= 2
        for client in clients:
            client.socket.close()


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"num\.cpus"):
        Engine({"num.cpus": 3})
    with pytest.raises(ValueError, match=r"num\.network\.threads=0"):
        Engine({"num.network.threads": 0})
    assert checked_settings({})["connections.max.idle.ms"] == 600_000


def test_synchronize_returns_while_requests_flow():
    with running_engine() as engine, Client(engine_port(engine)) as client:
        for at in range(200):
            client.send(handlers.ECHO, at)
            handlers.synchronize(engine)
        assert [client.receive()[0] for _ in range(200)] == list(range(200))


def test_above_the_limit_those_that_were_quiet_for_longest_are_closed():
    """The exempt listener's are let in all the same, and none of them is closed; so it is when the
    limit is lowered."""
    engine = Engine(checked_settings({"num.network.threads": 2, "num.io.threads": 1}))
    inner, outer = (engine.listen("127.0.0.1", 0, name) for name in ("INNER", "OUTER"))
    handlers.install(engine)
    engine.set_api_versions({}, KEYS)
    engine.start()
    engine.limit_listeners(float("inf"), "INNER", {})
    engine.limit_connections(6, 100, [])
    with ExitStack() as stack:
        stack.callback(engine.stop)
        outside = []
        for _ in range(6):
            outside.append(stack.enter_context(Client(outer)))
            outside[-1].call(handlers.COUNT, 1)
        outside[0].call(handlers.COUNT, 1)        # so that the second is the quietest
        inside = [stack.enter_context(Client(inner)) for _ in range(2)]
        for one in inside:
            one.call(handlers.COUNT, 1)
        wait_for("two are closed", lambda: engine.connections() == 6, 60)
        engine.limit_connections(3, 100, [])
        wait_for("three more are closed", lambda: engine.connections() == 3, 60)
        for one in inside:
            one.call(handlers.COUNT, 1)
        left = [one for one in outside if is_open(one)]
        assert len(left) == 1
        engine.limit_connections(1, 100, [])
        wait_for("the last one is closed", lambda: engine.connections() == 2, 60)
        for one in inside:
            one.call(handlers.COUNT, 1)


def is_open(client):
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        client.socket.setblocking(True)
