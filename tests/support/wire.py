"""A connection that speaks in frames: what it sends and gets is what is on the wire."""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from types import TracebackType
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema

from tests.support import messages
from tests.support.waits import wait_for

#: API keys by name, as far as the tests need them.
PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 18, 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS = 23, 32, 33, 35
CREATE_PARTITIONS, ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS = 37, 43, 44
ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS = 45, 46
DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 60, 75


class ConnectionClosedError(Exception):
    """The broker closed the connection, or reset it."""


class WireConnection:
    """One TCP connection to a broker. Not thread-safe. Times out loudly, never hangs."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", timeout_s: float = 60,
        tls: ssl.SSLContext | None = None, source: str = "",
    ) -> None:  # fmt: skip
        """`source`: an address of this machine to come from, 127.0.0.2 for another client's."""
        self.socket = socket.create_connection(
            (host, port), timeout=timeout_s, source_address=(source, 0) if source else None
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = tls
        self._ahead = b""
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, api: int, version: int, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Sends one request and returns its decoded answer."""
        return self.receive(api, version, self.send(api, version, body))

    def send(self, api: int, version: int, body: dict[str, Any] | None = None) -> int:
        """Sends one request without waiting; returns its correlation id."""
        correlation_id = next(self._correlation_ids)
        schema = load_request_schema(api, version)
        data = messages.encode(schema, body or {})
        self.send_bytes(messages.request_frame(api, version, data, correlation_id))
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosedError(str(error)) from error

    def receive(self, api: int, version: int, correlation_id: int) -> dict[str, Any]:
        """Reads the next answer, which must be that of `correlation_id`."""
        got, body = messages.response_body(api, version, self.receive_frame())
        assert got == correlation_id, f"answer {got} came where {correlation_id} was due"
        return messages.decode(load_response_schema(api, version), body)

    def receive_frame(self) -> bytes:
        """The next frame without its length prefix."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        parts = bytearray(self._ahead)
        self._ahead = b""
        while len(parts) < size:
            try:
                part = self.socket.recv(min(1 << 20, size - len(parts)))
            except ConnectionResetError as error:
                raise ConnectionClosedError(str(error)) from error
            if not part:
                raise ConnectionClosedError(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

    def wait_closed(self, timeout_s: float = 15) -> None:
        """Returns when the broker has closed the connection; what it still sends is an error."""
        self.socket.settimeout(timeout_s)
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return
        assert data == b"", f"the broker sent {data[:64]!r} instead of closing"

    def is_silent(self, seconds: float) -> bool:
        """True where the broker sends nothing and keeps the connection for so long."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self._peek()
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        return False


    def _peek(self) -> None:
        """Returns when there is something to read; TLS has no other way than to read it."""
        if self.tls is None:
            self.socket.recv(1, socket.MSG_PEEK)
        elif not self._ahead:
            self._ahead = self.socket.recv(1)


def call_once(
    port: int, api: int, version: int, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One request over a connection of its own."""
    with WireConnection(port) as connection:
        return connection.call(api, version, body)


def create_topic(
    port: int, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    """Creates a topic and waits until the broker leads all of its partitions."""
    topic = {
        "name": name, "num_partitions": partitions, "replication_factor": 1,
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }  # fmt: skip
    answer = call_once(port, CREATE_TOPICS, 7, {"topics": [topic], "timeout": 30000})
    assert answer["topics"][0]["error_code"] == 0, answer
    wait_for_topic(port, name, partitions)


def wait_for_topic(port: int, name: str, partitions: int = 1, timeout_s: float = 15) -> None:
    """Waits until metadata shows a leader for each partition, and that leader serves them."""
    with WireConnection(port) as connection:
        wait_for(
            f"topic {name} has leaders",
            lambda: _is_served(connection, name, partitions),
            timeout_s,
            0.01,
        )


def _is_served(connection: WireConnection, name: str, partitions: int) -> bool:
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    (topic,) = connection.call(METADATA, 9, request)["topics"]
    if topic["error_code"] != 0 or len(topic["partitions"]) < partitions:
        return False
    offsets = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    asked = {"replica_id": -1, "topics": [{"name": name, "partitions": offsets}]}
    (served,) = connection.call(LIST_OFFSETS, 6, asked)["topics"]
    return all(partition["error_code"] == 0 for partition in served["partitions"])


def topic_id(port: int, name: str) -> Any:
    """The UUID of a topic."""
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    (topic,) = call_once(port, METADATA, 12, request)["topics"]
    assert topic["error_code"] == 0, topic
    return topic["topic_id"]
