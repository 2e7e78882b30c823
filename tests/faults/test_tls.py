"""F26: handshakes that stop half way, by the thousand, and clients that are somebody else."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.test_floods import many_files
from tests.reference.crafted_batches import batch
from tests.support import wire
from tests.support.certificates import Authority
from tests.support.kbroker import KbrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    ConnectionClosedError,
    WireConnection,
)
from tests.wire.test_connections import produce_body

StartBroker = Callable[..., KbrokerProcess]
HELD_KB_MAX = 80
HANDSHAKES_MAX = 512
PLACES_WAITED_FOR = 100


def trusting(authority: Authority, store: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if store is not None:
        context.load_cert_chain(store)
    return context


def hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()
    return outgoing.read()


def resident_kb(broker: KbrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@contextlib.contextmanager
def half_open(port: int, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """A third says nothing, a third half of its first record, a third all of it and no more."""
    with contextlib.ExitStack() as stack:
        held = []
        for at in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            one.sendall((b"", first[: len(first) // 2], first)[at % 3])
            held.append(one)
        yield held


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", rounds(900, long=4_000, full=10_000))
def test_half_open_handshakes(
    start_kbroker: StartBroker, authority: Authority, count: int, tally: Tally
) -> None:
    """They hold little, others are served meanwhile, and the time limit ends them all."""
    settings = {
        "ssl.keystore.location": str(authority.issue("broker").pem),
        "kbroker.handshake.timeout.ms": str(8_000 if count < 1000 else 12 * count),
        "num.network.threads": "2",
    }
    broker = start_kbroker(settings, listeners=("SSL",))
    wire.create_topic(broker.port, "served")
    context = trusting(authority)
    with many_files(), WireConnection(broker.ports["SSL"], tls=context) as served:
        body = produce_body("served", batch(b"x" * 1000))
        served.call(PRODUCE, 9, body)
        before = resident_kb(broker)
        slowest = 0.0
        with half_open(broker.ports["SSL"], count, hello(context)) as held:
            for _ in range(20):
                begun = time.monotonic()
                served.call(PRODUCE, 9, body)
                with WireConnection(broker.ports["SSL"], tls=context) as newcomer:
                    newcomer.call(API_VERSIONS, 0)
                slowest = max(slowest, time.monotonic() - begun)
            grown = (resident_kb(broker) - before) / count
            kept = sum(not is_over(one) for one in held)
            tally("F26", tried=count, control=kept)
            assert slowest < 20, "who is connected waits"
            assert grown < HELD_KB_MAX, f"{grown:.0f} KiB for each half-open handshake"
            wait_for("all are closed", lambda: all(is_over(one) for one in held), 300, 0.5)
        served.call(PRODUCE, 9, body)


def test_handshakes_beyond_the_limit_wait_for_a_place(
    start_kbroker: StartBroker, authority: Authority
) -> None:
    """In order; those that have taken long make room, no more of them than are waited for."""
    settings = {
        "ssl.keystore.location": str(authority.issue("broker").pem),
        "kbroker.handshake.timeout.ms": "120000",
        "num.network.threads": "1",
    }
    broker = start_kbroker(settings, listeners=("SSL",))
    context = trusting(authority)
    first = hello(context)
    with many_files(), WireConnection(broker.ports["SSL"], tls=context) as served:
        with contextlib.ExitStack() as stack:
            held = []
            for _ in range(HANDSHAKES_MAX + PLACES_WAITED_FOR):
                address = ("127.0.0.1", broker.ports["SSL"])
                one = stack.enter_context(socket.create_connection(address, timeout=60))
                one.sendall(first)
                held.append(one)
            served.call(API_VERSIONS, 0)
            with WireConnection(broker.ports["SSL"], tls=context) as newcomer:
                newcomer.call(API_VERSIONS, 0)
            answered = sum(map(is_answered, held[HANDSHAKES_MAX:]))
            ended = sum(map(is_over, held))
        assert answered == PLACES_WAITED_FOR, "the newcomer was let in before them"
        assert ended == PLACES_WAITED_FOR + 1, "one for each that waited, the newcomer too"


def is_answered(connection: socket.socket) -> bool:
    """The server's half of the handshake has come."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


def is_over(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def test_who_is_not_who_it_should_be(
    start_kbroker: StartBroker, authority: Authority, tmp_path: Path, tally: Tally
) -> None:
    """None, a foreign, an expired and a server's certificate, and old versions; renegotiation."""
    settings = {
        "ssl.keystore.location": str(authority.issue("broker").pem),
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
    }
    broker = start_kbroker(settings, listeners=("SSL",))
    good = authority.issue("good")
    wrong = [None, Authority(tmp_path, "foreign").issue("good"), authority.issue("old", days=-1)]
    let_in = 0
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for one in wrong:
            context = trusting(authority, one.pem if one else None)
            context.maximum_version = version
            let_in += is_let_in(broker, context)
    control = is_let_in(broker, trusting(authority, good.pem))
    tally("F26", tried=2 * len(wrong), lost=let_in, control=int(control))
    assert let_in == 0
    assert control
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.ports['SSL']}", "-tls1_2",
         "-cert", str(good.certificate), "-key", str(good.key)],
        check=False, input="R\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "no renegotiation" in done.stdout + done.stderr
    assert is_let_in(broker, trusting(authority, good.pem))


def is_let_in(broker: KbrokerProcess, context: ssl.SSLContext) -> bool:
    try:
        with WireConnection(broker.ports["SSL"], tls=context) as connection:
            return bool(connection.call(METADATA, 9, {"topics": None})["cluster_id"])
    except (OSError, ConnectionClosedError):
        return False
