"""The client's native loop: links handed over, answers, and every way in which they fail."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kbroker.client.address import Address
from kbroker.client.connection import Connection
from kbroker.client.errors import ConnectError
from kbroker.ext.client_loop import ClientLoop, LoopDriver
from kbroker.protocol import ApiKey
from tests.support.frames import answer, read_frame
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for

CLOSED, LINK_DOWN = 0, 1
VERSIONS = {18: (0, 4), 3: (0, 13)}
METADATA_BODY = b"\x01\x00\x00\x00\x00"  # v9: no topics, nothing created or authorized

Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def hostile(serve: Serve) -> Iterator[int]:
    """A connected socket whose other end is served, in a thread, by the test."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs, contextlib.suppress(OSError, EOFError):
            serve(theirs)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ours.detach()
    finally:
        with contextlib.suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def loop() -> Iterator[ClientLoop]:
    made = ClientLoop(client_id="tester", name="kb-test")
    made.start()
    yield made
    made.close()


def echo(peer: socket.socket) -> None:
    """Answers each request with its own body, cut at random."""
    cuts = random.Random(7)
    while True:
        frame = read_frame(peer)
        (correlation_id,) = struct.unpack_from(">i", frame, 4)
        said = answer(correlation_id, frame[8 + 2 + 6 + 1 :])
        while said:
            size = cuts.choice((1, 3, 20, 5000, 1 << 20))
            peer.sendall(said[:size])
            said = said[size:]


def listen(peer: socket.socket) -> None:
    """Hears everything, says nothing."""
    while peer.recv(1000):
        pass


def down(loop: ClientLoop) -> tuple[int, int]:
    """(link, code) of the next link that broke."""
    seen = wait_for("a link to break", lambda: loop.events(1.0), 10)
    kind, link, _, code, _ = seen[0]
    assert kind == LINK_DOWN
    return link, code


def test_a_connection_handed_over_goes_on(kbroker: KbrokerProcess, loop: ClientLoop) -> None:
    connection = Connection(Address("127.0.0.1", kbroker.port))
    link = connection.hand_over(loop)
    assert connection.closed
    with pytest.raises(ConnectError):
        connection.hand_over(loop)
    said = loop.request(link, ApiKey.API_VERSIONS, 3, b"\x02a\x02b\x00", 10.0)
    assert said[:2] == b"\x00\x00"
    for _ in range(3):
        said = loop.request(link, ApiKey.METADATA, 9, METADATA_BODY, 10.0)
        assert said[:5] == b"\x00\x00\x00\x00\x02"  # not throttled, one broker
    stats = loop.link_stats(link)
    assert stats is not None
    assert (stats["requests"], stats["answers"], stats["in_flight"]) == (4, 4, 0)
    assert stats["latency_ns_max"] > 0


def test_requests_of_many_threads_get_their_own_answers(loop: ClientLoop) -> None:
    with hostile(echo) as fd:
        link = loop.add_link(fd, VERSIONS)
        wrong: list[int] = []

        def ask(seed: int) -> None:
            sizes = random.Random(seed)
            for _ in range(20):
                body = os.urandom(sizes.choice((0, 1, 100, 4000, 20000, 300000)))
                if loop.request(link, 3, 9, body, 30.0) != body:
                    wrong.append(len(body))

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        loop.drop_link(link)
        assert down(loop) == (link, -1)


def test_a_request_is_framed_as_the_protocol_wants(loop: ClientLoop) -> None:
    seen: list[bytes] = []

    def serve(peer: socket.socket) -> None:
        seen.append(read_frame(peer))
        peer.sendall(answer(1, b"ok"))
        seen.append(read_frame(peer))
        peer.sendall(answer(2, b"ok", b""))

    with hostile(serve) as fd:
        link = loop.add_link(fd, VERSIONS)
        assert loop.request(link, 3, 9, b"body", 10.0) == b"ok"
        assert loop.request(link, 3, 8, b"body", 10.0, flexible=False) == b"ok"
        loop.drop_link(link)
    header = struct.pack(">hhih", 3, 9, 1, 6) + b"tester"
    assert seen[0] == header + b"\x00body"
    assert seen[1] == struct.pack(">hhih", 3, 8, 2, 6) + b"testerbody"


def test_a_long_answer_in_pieces_of_all_sizes(loop: ClientLoop) -> None:
    """The reader is woken for much at once; what is short of that is not forgotten."""
    body = random.Random(5).randbytes(3 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    link = loop.add_link(ours.detach(), VERSIONS)

    def come(count: int) -> Callable[[], bool]:
        return lambda: (loop.link_stats(link) or {})["bytes_in"] >= count

    def serve() -> None:
        for said in (body, b"short", body):
            (correlation_id,) = struct.unpack_from(">i", read_frame(peer), 4)
            whole = answer(correlation_id, said)
            begun = (loop.link_stats(link) or {})["bytes_in"]
            sent = 0
            for size in (100, 600_000, len(whole) - 700_000, len(whole) - 1):
                if sent < size < len(whole):
                    peer.sendall(whole[sent:size])
                    sent = size
                    wait_for("what is read", come(begun + sent - (512 << 10)), 60)
            peer.sendall(whole[sent:] if said is not body or begun == 0 else b"")
        peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        for said in (body, b"short"):
            assert loop.request(link, 3, 9, METADATA_BODY, 60) == said
        with pytest.raises(ConnectionResetError):
            loop.request(link, 3, 9, METADATA_BODY, 60)
    finally:
        thread.join(60)
    assert not thread.is_alive()


def test_a_link_that_breaks_ends_its_calls(loop: ClientLoop) -> None:
    with hostile(lambda peer: peer.recv(4, socket.MSG_WAITALL) and None) as fd:
        link = loop.add_link(fd, VERSIONS)
        with pytest.raises(ConnectionResetError):
            loop.request(link, 3, 9, METADATA_BODY, 10.0)
        assert down(loop) == (link, -1)
        with pytest.raises(ConnectionResetError):
            loop.request(link, 3, 9, METADATA_BODY, 10.0)
        wait_for("the link to go", lambda: loop.link_stats(link) is None, 5)


def test_a_broker_that_is_silent(loop: ClientLoop) -> None:
    with hostile(listen) as fd:
        link = loop.add_link(fd, VERSIONS)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            loop.request(link, 3, 9, METADATA_BODY, 0.2)
        assert 0.15 < time.monotonic() - began < 5
        assert down(loop) == (link, -2)


@pytest.mark.parametrize(
    "said",
    [
        answer(2, b"another's"),
        answer(0, b"another's"),
        struct.pack(">i", -1) + b"x" * 100,
        struct.pack(">i", 3) + b"x" * 100,
        struct.pack(">i", 0),
        struct.pack(">i", (256 << 20) + 1) + b"x" * 100,
        struct.pack(">i", 0x7FFFFFFF),
        answer(1, b"", b""),
        answer(1, b"", b"\xff\xff\xff\xff\xff\xff"),
        answer(1, b"", b"\x01\x00\x7f"),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        answer(1, b"mine") + answer(2, b"nobody asked"),
    ],
)
def test_what_is_no_answer(loop: ClientLoop, said: bytes) -> None:
    def serve(peer: socket.socket) -> None:
        read_frame(peer)
        peer.sendall(said)
        peer.recv(1)

    with hostile(serve) as fd:
        link = loop.add_link(fd, VERSIONS)
        if said.startswith(answer(1, b"mine")):
            assert loop.request(link, 3, 9, METADATA_BODY, 10.0) == b"mine"
        else:
            with pytest.raises(ConnectionAbortedError):
                loop.request(link, 3, 9, METADATA_BODY, 10.0)
        assert down(loop) == (link, -3)


def test_bytes_that_nobody_asked_for(loop: ClientLoop) -> None:
    with hostile(lambda peer: peer.sendall(answer(1, b"hello")) or (peer.recv(1) and None)) as fd:
        link = loop.add_link(fd, VERSIONS)
        assert down(loop) == (link, -3)


def test_an_answer_of_a_length_that_never_comes_takes_no_memory(loop: ClientLoop) -> None:
    def serve(peer: socket.socket) -> None:
        read_frame(peer)
        peer.sendall(struct.pack(">i", 256 << 20) + b"x" * 1000)
        peer.recv(1)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    with contextlib.ExitStack() as stack:
        links = [loop.add_link(stack.enter_context(hostile(serve)), VERSIONS) for _ in range(8)]
        threads = []
        for link in links:

            def ask(link: int = link) -> None:
                with pytest.raises(TimeoutError):
                    loop.request(link, 3, 9, METADATA_BODY, 0.3)

            threads.append(threading.Thread(target=ask))
            threads[-1].start()
        for thread in threads:
            thread.join(10)
        assert resident() - before < 16 << 20


def test_close_with_calls_in_flight() -> None:
    loop = ClientLoop()
    loop.start()
    ended: list[BaseException] = []
    with hostile(listen) as fd:
        link = loop.add_link(fd, VERSIONS)

        def ask() -> None:
            try:
                loop.request(link, 3, 9, METADATA_BODY, 60.0)
            except ConnectionResetError as error:
                ended.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for("the calls", lambda: (loop.link_stats(link) or {}).get("in_flight") == 3, 10)
        loop.close()
        for thread in threads:
            thread.join(10)
    assert len(ended) == 3
    assert loop.events(0.0)[-1][0] == CLOSED
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.request(link, 3, 9, METADATA_BODY, 1.0)
    with pytest.raises(RuntimeError, match="closed"):
        loop.wake()


def test_a_waiting_control_thread_learns_that_the_loop_is_closed() -> None:
    loop = ClientLoop()
    loop.start()
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(e[0] for e in loop.events(60.0)))
    thread.start()
    loop.close()
    thread.join(10)
    assert seen == [CLOSED]


def test_events_end_in_time(loop: ClientLoop) -> None:
    began = time.monotonic()
    assert loop.events(0.25) == []
    assert 0.2 < time.monotonic() - began < 5


def test_a_loop_that_was_never_started_or_never_closed() -> None:
    with hostile(lambda peer: peer.recv(1) and None) as fd:
        unused = ClientLoop()
        unused.add_link(fd, VERSIONS)
        with pytest.raises(RuntimeError, match="not been started"):
            unused.request(0, 3, 9, b"", 1.0)
        del unused
    with hostile(lambda peer: peer.recv(1) and None) as fd:
        dropped = ClientLoop()
        dropped.start()
        dropped.add_link(fd, VERSIONS)
        del dropped
    gc.collect()


def test_a_fork_is_told(loop: ClientLoop) -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            for call in (loop.wake, loop.start, loop.close, lambda: loop.events(1.0)):
                try:
                    call()
                except RuntimeError as error:
                    os.write(tell, b"1" if "fork" in str(error) else b"0")
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    assert os.read(told, 100) == b"1111"
    os.close(told)
    loop.wake()


def test_more_links_than_a_client_may_have(loop: ClientLoop) -> None:
    pairs = [socket.socketpair() for _ in range(200)]
    links = [loop.add_link(ours.detach(), VERSIONS) for ours, _ in pairs]
    assert len(set(links)) == 200
    for _, theirs in pairs:
        theirs.close()
    broken: set[int] = set()

    def all_broken() -> bool:
        broken.update(event[1] for event in loop.events(1.0))
        return broken == set(links)

    wait_for("all links to break", all_broken, 10)


def test_random_bytes_of_a_broker() -> None:
    """Invariant tested: whatever a broker sends, each call ends, and so does the loop."""
    chance = random.Random(20)
    loop = ClientLoop()
    loop.start()
    for _ in range(150):
        whole = answer(1, chance.randbytes(chance.choice((0, 30, 3000, 60000))))
        kind = chance.randrange(4)
        if kind == 0:
            said = chance.randbytes(chance.randrange(200))
        elif kind == 1:
            said = whole[: chance.randrange(len(whole))]
        else:
            torn = bytearray(whole)
            for _ in range(kind - 1):
                torn[chance.randrange(min(len(torn), 16))] = chance.randrange(256)
            said = bytes(torn)

        def serve(peer: socket.socket, said: bytes = said) -> None:
            read_frame(peer)
            step = chance.choice((1, 7, 100000))
            for at in range(0, len(said), max(step, len(said) // 50)):
                peer.sendall(said[at : at + max(step, len(said) // 50)])

        with hostile(serve) as fd:
            link = loop.add_link(fd, VERSIONS)
            with contextlib.suppress(ConnectionError):
                loop.request(link, 3, 9, METADATA_BODY, 10.0)
            wait_for("the link to go", lambda link=link: loop.link_stats(link) is None, 10)
    assert loop.events(5.0)
    loop.close()


def test_drivers_are_hung_in_before_the_start(loop: ClientLoop) -> None:
    with pytest.raises(RuntimeError, match="started"):
        loop.add_driver(LoopDriver())
    made = ClientLoop(LoopDriver())
    for _ in range(3):
        made.add_driver(LoopDriver())
    with pytest.raises(RuntimeError, match="at most 4"):
        made.add_driver(LoopDriver())
    made.start()
    made.wake()
    made.close()
