"""The network half with handlers that only tests install: order, framing, parking, regions."""

import ctypes
import os
import random
import socket
import struct
from itertools import pairwise
from statistics import median

import pytest

from kbroker.ext import testing_network as handlers
from tests.support.engine import API_VERSIONS, Client, engine_port, frame, running_engine
from tests.support.messages import write_uvarint
from tests.support.waits import wait_for

TELEMETRY = (71, 72)
UNSUPPORTED_VERSION = struct.pack(">hihhh", 35, 1, API_VERSIONS, 0, 4)


@pytest.fixture(scope="module")
def region_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("regions") / "bytes"
    path.write_bytes(random.Random(1).randbytes(8 << 20))
    fd = os.open(path, os.O_RDONLY)
    yield fd, path.read_bytes()
    os.close(fd)


@pytest.fixture
def engine(region_file):
    with running_engine(fd=region_file[0]) as running:
        yield running


@pytest.fixture
def client(engine):
    with Client(engine_port(engine)) as connected:
        yield connected


@pytest.fixture
def poster():
    handlers.start_poster()
    yield
    handlers.stop_poster()


# ---- headers and versions ---------------------------------------------------------------------


def test_answers_with_the_correlation_id(client):
    assert client.call(handlers.ECHO, 7, b"hello") == b"hello"
    assert client.call(handlers.ECHO, -3, b"") == b""


def test_flexible_versions_have_tagged_headers(client):
    assert client.call(handlers.ECHO, 1, b"hello", version=1) == b"\0hello"


def test_tagged_fields_of_a_header_are_skipped(client):
    tags = b"\x02" + b"\x00\x03abc" + b"\x81\x01\x80\x01" + b"x" * 128
    header = struct.pack(">hhih", handlers.ECHO, 1, 5, 2) + b"me" + tags
    client.socket.sendall(struct.pack(">i", len(header) + 4) + header + b"body")
    assert client.receive() == (5, b"\0body")


def test_api_versions_is_answered_from_what_was_pushed(engine, client):
    assert client.call(API_VERSIONS, 1) == struct.pack(">hi", 0, 0)
    software = b"\x06java1" + b"\x064.3.0"
    assert client.call(API_VERSIONS, 2, software + b"\0", version=3) == b"three"
    assert client.call(API_VERSIONS, 3, software + b"\0", version=4) == b"four"
    engine.set_api_versions({0: b"changed"}, [])
    assert client.call(API_VERSIONS, 4) == b"changed"


def test_unknown_versions_of_api_versions_are_answered_in_version_0(client):
    for version in (1, 5, 7, 100, 32767, -1):
        assert client.call(API_VERSIONS, version, b"?", version=version) == UNSUPPORTED_VERSION


@pytest.mark.parametrize("software", [b"\x01\x01\0", b"\x05-abc\x02x\0", b"\x02a\x05a b\0", b""])
def test_software_names_are_checked(client, software):
    invalid = struct.pack(">hBiB", 42, 1, 0, 0)
    assert client.call(API_VERSIONS, 1, software, version=3) == invalid


def said(*words):
    """The body of an ApiVersions request of version 3."""
    parts = bytearray()
    for word in words:
        write_uvarint(parts, len(word) + 1)
        parts += word.encode()
    return bytes(parts) + b"\0"


@pytest.fixture
def told(engine):
    """What the control plane gets to know of a client's software with a request of some API."""
    engine.set_api_versions({}, [(key, 0, 0, -1) for key in (*TELEMETRY, 73)])

    def ask(client, key=TELEMETRY[0]):
        client.send(key, 9)
        request = engine.next_request(5000)
        assert request.api_key == key
        request.respond(b"")
        assert client.receive() == (9, b"")
        return request.software

    return ask


def test_what_a_client_says_of_its_software_comes_with_what_asks_for_it(engine, client, told):
    assert told(client) == ("", "")
    client.call(API_VERSIONS, 1, said("java", "4.3.0"), version=3)
    for key in TELEMETRY:
        assert told(client, key) == ("java", "4.3.0")
    assert told(client, 73) == ("", "")
    with Client(engine_port(engine)) as other:
        assert told(other) == ("", "")
    for wrong in (said("-a", "1"), said("a", ""), said("a b", "1"), said("a"), b"\xff" * 9):
        assert client.call(API_VERSIONS, 2, wrong, version=3)[:2] == b"\0\x2a"
        assert told(client) == ("java", "4.3.0")
    client.call(API_VERSIONS, 3, said("b", "1"), version=4)
    assert told(client) == ("b", "1")
    for version in (0, 99):  # nothing is said in these
        client.call(API_VERSIONS, 4, said("b", "1"), version=4)
        client.call(API_VERSIONS, 5, version=version)
        assert told(client) == ("", "")


def test_long_names_of_software_are_taken_and_not_known(client, told):
    for length in (126, 127, 255, 256, 32767):
        word = "a" * length
        kept = word if length <= 255 else ""
        assert client.call(API_VERSIONS, 1, said(word, "1"), version=3) == b"three"
        assert told(client) == (kept, "1")
        assert client.call(API_VERSIONS, 2, said("b", word), version=3) == b"three"
        assert told(client) == ("b", kept)
        assert client.call(API_VERSIONS, 3, said(word, word), version=3) == b"three"
        assert told(client) == (kept, kept)
    assert client.call(API_VERSIONS, 4, said("a" * 32768, "1"), version=3)[:2] == b"\0\x2a"


def test_who_is_with_the_control_thread_tells_its_software_after_it_has_gone(engine, told):
    for _ in range(2):
        with Client(engine_port(engine)) as client:
            client.call(API_VERSIONS, 1, said("a" * 255, "b" * 255), version=3)
            client.send(TELEMETRY[0], 2)
            wait_for("the request", lambda: engine.stats()["control_queue"] == 1, 10)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for("the client's end", lambda: engine.connections() == 0, 10)
        assert engine.next_request(0).software == ("a" * 255, "b" * 255)


class Mallinfo(ctypes.Structure):
    """The C library's numbers on malloc; `used` are bytes of blocks that are not given back."""

    _fields_ = (("before", ctypes.c_int * 7), ("used", ctypes.c_int), ("behind", ctypes.c_int * 2))


def allocated_bytes():
    mallinfo = ctypes.CDLL(None).mallinfo
    mallinfo.restype = Mallinfo
    return mallinfo().used


def test_what_is_remembered_of_software_is_given_back(engine, told):
    """Replaced on one connection, and closed with many."""

    def once():
        for _ in range(300):
            with Client(engine_port(engine)) as client:
                for number in range(3):
                    client.call(API_VERSIONS, 1, said("a" * 255, f"{number}" * 255), version=3)
                told(client)
        wait_for("the clients' end", lambda: engine.connections() == 0, 10)
        return allocated_bytes()

    used = [once() for _ in range(6)]
    grown = [after - before for before, after in pairwise(used)]
    assert median(grown) < 300 * 255, grown  # what else the process does, it does now and then


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (frame(99, 1), "api key 99 (version 0) is not known"),
        (frame(-1, 1), "api key -1 (version 0) is not known"),
        (frame(999, 1), "api key 999 (version 0) is not known"),
        (frame(handlers.ECHO, 1, version=2), "version 2 of api key 100 is not supported"),
        (frame(handlers.ECHO, 1, version=-1), "version -1 of api key 100 is not supported"),
        (struct.pack(">i", 0), "a frame of 0 bytes holds no request header"),
        (struct.pack(">ihhi", 8, 18, 0, 1), "a frame of 8 bytes holds no request header"),
        (struct.pack(">i", -1), "a frame of -1 bytes; socket.request.max.bytes is 104857600"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        (struct.pack(">ihhih", 10, 18, 0, 1, 5), "a frame of 10 bytes holds no request header"),
        (frame(handlers.ECHO, 1, version=1)[:-1] + b"\x05", "holds no request header"),
        (frame(handlers.CLOSE, 1), "the test says so"),
    ],
)
def test_what_is_wrong_closes_with_a_line_that_says_why(engine, client, sent, why):
    client.socket.sendall(frame(handlers.ECHO, 1, b"first") + sent)
    assert client.receive() == (1, b"first")
    assert client.is_closed()
    told = []
    wait_for("the log line", lambda: told.extend(engine.next_log_lines()) or told, 5)
    assert why in told[0][1]
    assert "127.0.0.1:" in told[0][1]
    assert " on PLAINTEXT: " in told[0][1]


# ---- framing ----------------------------------------------------------------------------------


def test_half_frames_byte_by_byte(client):
    stream = b"".join(frame(handlers.ECHO, at, bytes([at]) * at) for at in range(12))
    for at in range(len(stream)):
        client.socket.sendall(stream[at : at + 1])
    for at in range(12):
        assert client.receive() == (at, bytes([at]) * at)


@pytest.mark.parametrize("size", [4096, 262144 - 14, 262144 - 4, 262144, 300_000, 3_000_000])
def test_frames_of_all_sizes_survive_any_cut(client, size):
    rng = random.Random(size)
    bodies = [rng.randbytes(max(0, size + rng.randrange(-20, 20))) for _ in range(6)]
    stream = b"".join(frame(handlers.COUNT, at, body) for at, body in enumerate(bodies))
    at = 0
    while at < len(stream):
        cut = rng.choice((1, 3, 1000, 65536, 1 << 20))
        client.socket.sendall(stream[at : at + cut])
        at += cut
    for number, body in enumerate(bodies):
        words = struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8])
        assert client.receive() == (number, struct.pack("<Q", sum(words) % (1 << 64)))


def test_pipelined_requests_are_answered_in_order(client):
    count = 5000
    stream = b"".join(frame(handlers.ECHO, at, b"%d" % at) for at in range(count))
    client.socket.sendall(stream)
    for at in range(count):
        assert client.receive() == (at, b"%d" % at)


def test_requests_without_answers_leave_no_gap(client):
    for at in range(100):
        client.send(handlers.SILENCE if at % 2 else handlers.ECHO, at)
    assert [client.receive()[0] for _ in range(50)] == list(range(0, 100, 2))


# ---- parked operations ------------------------------------------------------------------------


def test_parked_answers_keep_the_order_of_requests(client, poster):
    rng = random.Random(2)
    keys = (handlers.ECHO, handlers.POSTED, handlers.POSTED_ON_IO, handlers.ON_IO)
    sent = [(rng.choice(keys), at, rng.randbytes(rng.choice((0, 5, 300, 20_000))))
            for at in range(1500)]  # fmt: skip
    client.socket.sendall(b"".join(frame(key, at, body) for key, at, body in sent))
    for _, at, body in sent:
        assert client.receive() == (at, body)


def test_deadlines_answer(client):
    client.send(handlers.DEADLINE, 1, struct.pack(">i", 50))
    client.send(handlers.DEADLINE, 2, struct.pack(">i", 1))
    client.send(handlers.ECHO, 3, b"last")
    assert [client.receive() for _ in range(3)] == [(1, b""), (2, b""), (3, b"last")]


def test_a_connection_that_dies_cancels_what_it_parked(engine):
    handlers.counts()
    with Client(engine_port(engine)) as client:
        for at in range(20):
            client.send(handlers.POSTED, at)
        wait_for("all parked", lambda: handlers.parked() == 20, 5)
        client.send(handlers.DEADLINE, 20, struct.pack(">i", 60_000))
        wait_for("one more", lambda: engine.stats()["parked"] >= 21, 5)
    wait_for("all cancelled", lambda: engine.connections() == 0, 5)
    assert handlers.counts()[0] == 21
    handlers.post_once()
    wait_for("none left", lambda: engine.stats()["ops_live"] == 0, 5)


def test_many_unanswered_requests_stop_reading():
    settings = {"kbroker.connection.requests.max": 10}
    with running_engine(settings) as engine, Client(engine_port(engine)) as client:
        count = 100
        client.socket.sendall(
            b"".join(frame(handlers.POSTED, at, b"%d" % at) for at in range(count))
        )
        wait_for("ten parked", lambda: handlers.parked() == 10, 5)
        client.send(handlers.ECHO, count, b"")
        assert handlers.parked() == 10
        got = []
        while len(got) <= count:
            handlers.post_once()
            got.append(client.receive()[0])
        assert got == list(range(count + 1))


# ---- file regions -----------------------------------------------------------------------------


def pairs(*regions):
    return b"".join(struct.pack(">ii", position, length) for position, length in regions)


def expected(content, *regions):
    parts = [struct.pack(">i", length) + content[position : position + length]
             for position, length in regions]  # fmt: skip
    return b"".join(parts) + b"DONE"


@pytest.mark.parametrize("key", [handlers.REGIONS, handlers.REGIONS_POSTED])
def test_file_regions_between_bytes(client, region_file, poster, key):
    content = region_file[1]
    handlers.counts()
    for regions in (
        [(0, 10)],
        [(0, 0)],
        [(5, 0), (7, 3), (100, 0)],
        [(1000, 1 << 20), (0, 1), (123, 4567)],
        [(at * 100, 99) for at in range(300)],
        [(0, 8 << 20)],
    ):
        assert client.call(key, 1, pairs(*regions)) == expected(content, *regions)
        assert handlers.counts()[1] == len(regions)


def test_regions_among_other_answers(client, region_file, poster):
    content = region_file[1]
    rng = random.Random(3)
    sent = []
    for at in range(400):
        key = rng.choice((handlers.ECHO, handlers.POSTED, handlers.REGIONS,
                          handlers.REGIONS_POSTED))  # fmt: skip
        body = pairs((rng.randrange(1 << 20), rng.randrange(50_000)))
        answer = body
        if key in (handlers.REGIONS, handlers.REGIONS_POSTED):
            answer = expected(content, *struct.iter_unpack(">ii", body))
        sent.append((frame(key, at, body), answer))
    client.socket.sendall(b"".join(request for request, _ in sent))
    for at, (_, answer) in enumerate(sent):
        assert client.receive() == (at, answer)


def test_a_region_beyond_the_file_closes(engine, client):
    client.send(handlers.REGIONS, 1, pairs((8 << 20, 1)))
    with pytest.raises(EOFError):
        client.receive()
    lines = []
    wait_for("the log line", lambda: lines.extend(engine.next_log_lines()) or lines, 5)
    assert "shorter than announced" in lines[0][1]


GIVEN_UP = (0, -1)


@pytest.mark.parametrize("key", [handlers.REGIONS, handlers.REGIONS_POSTED])
@pytest.mark.parametrize("ahead", [handlers.ECHO, handlers.POSTED, handlers.REGIONS])
def test_an_answer_given_up_leaves_no_region(engine, region_file, poster, key, ahead):
    """What was answered before it leaves whole, nothing of it, and its files are let go of."""
    handlers.counts()
    body = pairs((0, 20_000))
    answer = expected(region_file[1], (0, 20_000)) if ahead == handlers.REGIONS else body
    begun = pairs((5, 7000), (90, 20_000), GIVEN_UP)
    for _ in range(20):
        with Client(engine_port(engine)) as client:
            client.socket.sendall(frame(ahead, 1, body) * 3 + frame(key, 2, begun))
            answered = 0
            with pytest.raises(EOFError):
                while True:
                    assert client.receive() == (1, answer)
                    answered += 1
            assert answered == 3 or ahead == handlers.POSTED, "what waits ends with the connection"
    wait_for("closed", lambda: engine.connections() == 0, 5)
    wait_for("all let go", lambda: engine.stats()["ops_live"] == 0, 5)
    assert handlers.counts()[1] == 20 * (5 if ahead == handlers.REGIONS else 2)
    with Client(engine_port(engine)) as client:
        assert client.call(handlers.ECHO, 1, b"well") == b"well"


def test_regions_of_a_dead_connection_are_released(engine, region_file):
    handlers.counts()
    with Client(engine_port(engine), receive_buffer=4096) as client:
        for at in range(20):
            client.send(handlers.REGIONS, at, pairs((0, 8 << 20)))
        wait_for("sending", lambda: engine.stats()["sendfile_bytes"] > 0, 5)
    wait_for("closed", lambda: engine.connections() == 0, 5)
    assert handlers.counts()[1] >= 1
    assert engine.stats()["ops_live"] == 0


# ---- many connections -------------------------------------------------------------------------


def test_many_connections_share_the_threads(engine):
    clients = [Client(engine_port(engine)) for _ in range(200)]
    try:
        for at, client in enumerate(clients):
            client.send(handlers.ECHO, at, b"x" * at)
        for at, client in enumerate(clients):
            assert client.receive() == (at, b"x" * at)
        assert engine.connections() == 200
        assert engine.stats()["request_buffers"] == 0
    finally:
        for client in clients:
            client.socket.close()
    wait_for("all closed", lambda: engine.connections() == 0, 5)


def test_a_reset_connection_is_forgotten(engine):
    for _ in range(50):
        with Client(engine_port(engine)) as client:
            client.send(handlers.ECHO, 1, b"x" * 100_000)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for("all closed", lambda: engine.connections() == 0, 5)
