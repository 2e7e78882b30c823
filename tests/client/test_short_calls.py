"""Calls whose time limit is shorter than a connection takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from kbroker.client import Admin, AsyncProducer, Producer
from kbroker.client.errors import KafkaError
from kbroker.ext.client_clock import monotonic
from kbroker.protocol import ApiKey
from tests.support import wire
from tests.support.middle import Middle
from tests.support.processes import BrokerProcess
from tests.support.waits import passes

LIMIT_MS = 100
CONNECTING_MS = 500  # the answer to the first request of a connection
SLOW_S = 30.0


def delayed(_: int, answer: bytes) -> bytes:
    passes(CONNECTING_MS)
    return answer


@pytest.fixture
def slow(start_kbroker: Callable[..., BrokerProcess]) -> Iterator[BrokerProcess]:
    """A broker that can be reached slowly alone."""
    middle = Middle(ApiKey.API_VERSIONS, delayed)
    broker = start_kbroker(
        {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{middle.port}"}
    )
    middle.to = broker.port
    wire.create_topic(broker.port, "t", 1)
    broker.middle = middle  # type: ignore[attr-defined]
    yield broker
    middle.close()


def bootstrap(slow: BrokerProcess) -> str:
    return f"127.0.0.1:{slow.middle.port}"  # type: ignore[attr-defined]


def test_short_max_block_gets_a_connection_in_the_end(slow: BrokerProcess) -> None:
    deadline = monotonic() + SLOW_S
    failures = 0
    with Producer(
        bootstrap_servers=bootstrap(slow), max_block_ms=LIMIT_MS, linger_ms=0
    ) as producer:
        while True:
            assert monotonic() < deadline, "no send succeeds"
            began = monotonic()
            try:
                delivery = producer.send("t", b"some")
                break
            except KafkaError:
                failures += 1
                assert monotonic() - began < SLOW_S / 3, "the call does not end in time"
        assert delivery.result(SLOW_S).offset == 0
    assert failures > 0


def test_short_max_block_of_asyncio(slow: BrokerProcess) -> None:
    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=bootstrap(slow), max_block_ms=LIMIT_MS, linger_ms=0
        ) as producer:
            deadline = monotonic() + SLOW_S
            while True:
                assert monotonic() < deadline, "no send succeeds"
                try:
                    assert (await producer.send_and_wait("t", b"some")).offset == 0
                    return
                except KafkaError:
                    pass

    asyncio.run(main())


def test_short_limit_of_an_admin(slow: BrokerProcess) -> None:
    with Admin(
        bootstrap_servers=bootstrap(slow), default_api_timeout_ms=LIMIT_MS, request_timeout_ms=50
    ) as admin:
        deadline = monotonic() + SLOW_S
        while True:
            assert monotonic() < deadline, "no call succeeds"
            try:
                assert "t" in admin.describe_topics(["t"])
                return
            except KafkaError:
                pass
