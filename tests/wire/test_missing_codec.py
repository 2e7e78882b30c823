"""A machine without libzstd.so.1: what needs it is refused and told once, the rest works.

An empty file of that name on LD_LIBRARY_PATH is found first and is no library.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reference.crafted_batches import GZIP, ZSTD, Batch, Record, batch, values_of
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import FETCH, PRODUCE, WireConnection
from tests.wire.test_connections import fetch_body, produce_body

UNSUPPORTED_COMPRESSION_TYPE = 76
LINE = "zstd: libzstd.so.1 (package libzstd1"


@pytest.fixture
def broker(
    start_kbroker: Callable[..., BrokerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BrokerProcess:
    folder = tmp_path / "libraries"
    folder.mkdir()
    (folder / "libzstd.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    return start_kbroker()


def produce(connection: WireConnection, topic: str, data: bytes) -> dict[str, Any]:
    answer = connection.call(PRODUCE, 9, produce_body(topic, data))
    part: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return part


def keyed(codec: int) -> bytes:
    return Batch(records=[Record(b"value", key=b"key")], codec=codec).encode()


@pytest.mark.parametrize(
    ("configs", "codec"),
    [
        ({"compression.type": "zstd"}, GZIP),
        ({"compression.type": "gzip"}, ZSTD),
        ({"cleanup.policy": "compact"}, ZSTD),
    ],
    ids=["to recompress", "to decompress", "to look into"],
)
def test_is_refused_and_told_once(
    broker: BrokerProcess, topic: str, configs: dict[str, str], codec: int
) -> None:
    wire.create_topic(broker.port, topic, 1, configs)
    with WireConnection(broker.port) as connection:
        for _ in range(3):
            refused = produce(connection, topic, keyed(codec))
            assert refused["error_code"] == UNSUPPORTED_COMPRESSION_TYPE
            assert "not available on this machine" in refused["error_message"]
    wait_for("the log names the library", lambda: LINE in broker.log_text(), 60)
    assert broker.log_text().count(LINE) == 1


def test_what_needs_no_look_into_is_stored_as_it_came(broker: BrokerProcess, topic: str) -> None:
    wire.create_topic(broker.port, topic)
    with WireConnection(broker.port) as connection:
        assert produce(connection, topic, batch(b"kept", codec=ZSTD))["error_code"] == 0
        answer = connection.call(FETCH, 11, fetch_body(topic, 0))
    assert values_of(answer["responses"][0]["partitions"][0]["records"]) == [(0, b"kept")]
    assert LINE not in broker.log_text()
