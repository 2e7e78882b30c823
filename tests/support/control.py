"""The control plane without a socket: requests in plain dicts, handlers, answers in plain dicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import GeneratorType
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import schema_name_map

from kbroker.api import publish, registry
from kbroker.api.context import Endpoint, Services
from kbroker.api.dispatch import Dispatcher
from kbroker.clock import FakeClock
from kbroker.config import BrokerConfig
from kbroker.ext.offsets_rows import OffsetsFold
from kbroker.metadata.store import MetadataStore
from kbroker.operations import Completion, settle
from kbroker.protocol import ApiKey
from kbroker.storage.manager import LogManager
from tests.support.messages import decode, encode
from tests.support.ports import FakeDataPlane, FakeLog


@dataclasses.dataclass
class FakeRequest:
    """A request of the control lane; `durable` sends what waits for the disk."""

    api_key: int
    api_version: int
    body: bytes
    listener: str = "PLAINTEXT"
    client_id: str | None = "client"
    peer: tuple[str, int] = ("127.0.0.1", 1)
    principal: int = 0
    open: bool = True
    gone: bool = False
    state: bytes = b""
    software: tuple[str, str] = ("", "")
    session_ms: int | None = None
    refused_ms: int | None = None
    tokens: bool = False
    answer: bytes | None = None
    closed: bool = False
    throttled_ms: int = 0
    waits: tuple[Any, int, bytes, bytes] | None = None

    def asked(self, version: int) -> list[tuple[int, str]]:
        return []

    def respond(self, body: bytes) -> None:
        assert self.answer is None and self.waits is None, "answered twice"
        self.answer = body

    def remember(self, state: bytes, tokens: bool = False) -> None:
        self.state, self.tokens = state, tokens

    def identify(self, principal: int, session_ms: int = 0) -> None:
        self.principal, self.session_ms = principal, session_ms

    def refuse(self, body: bytes | None, delay_ms: int = 0) -> None:
        self.refused_ms = delay_ms
        if body is not None:
            self.respond(body)

    def respond_nothing(self) -> None:
        self.respond(b"")

    def respond_when(
        self, log: Any, offset: int, body: bytes, failed: bytes, timeout_ms: int
    ) -> None:
        assert self.answer is None and self.waits is None, "answered twice"
        self.waits = (log, offset, body, failed)

    def handled(self, used_ns: int = -1) -> None:
        pass

    def throttle(self, least_ms: int) -> int:
        self.throttled_ms = least_ms
        return least_ms

    def durable(self) -> None:
        """The watermark moves on, or not: the answer leaves."""
        assert self.waits is not None
        log, offset, body, failed = self.waits
        self.answer = body if log.high_watermark >= offset else failed

    def close(self) -> None:
        self.closed = True


class FakeLoad(OffsetsFold):
    """The load of a log in memory."""

    def __init__(self, log: FakeLog, *, strict: bool) -> None:
        self._log = log

    def step(self) -> list[tuple[int, bytes, bytes | None]]:
        return self.feed(self._log.read(0, 0))


def with_timeout(key: ApiKey, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with a timeout that does not end, where the request has one and none is given."""
    schema = load_request_schema(key, version)
    names = {field.name for field in dataclasses.fields(schema)}
    return {"timeout": 30_000} | fields if "timeout" in names else fields


class ControlPlane:
    """Handlers on a real metadata store, with logs and data plane that only note calls."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.config = BrokerConfig({"listeners": "PLAINTEXT://localhost:9092", **(settings or {})})
        self.clock = FakeClock()
        self.store = MetadataStore(directory, self.clock, node_id=self.config.node_id)
        self.store.open()
        self.data_plane = FakeDataPlane()
        self.posted: list[Callable[[], None]] = []
        self.logs = LogManager(directory, FakeLog)
        self.services = Services(
            self.config, self.store, self.logs, self.data_plane, self.clock,
            {"PLAINTEXT": Endpoint("localhost", 9092)}, self.posted.append,
        )  # fmt: skip
        self.services._group_host.load = FakeLoad
        publish.reload_broker_settings(self.services)
        self.dispatcher = Dispatcher(self.services, registry.table())
        self.peer = ("127.0.0.1", 1)  # who asks, to an authorizer

    def call(self, key: ApiKey, version: int, /, **fields: Any) -> dict[str, Any]:
        """The answer to a request; every field that a handler gives must exist in some version."""
        request = self.send(key, version, **fields)
        assert request.answer is not None, "no answer yet"
        return self.decoded(request)

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> FakeRequest:
        """A request, answered or not."""
        body = encode(load_request_schema(key, version), with_timeout(key, version, fields))
        entry = registry.table()[key]
        assert entry.handler is not None
        checked = entry._replace(
            handler=lambda request, context: _checked_outcome(key, entry.handler(request, context))
        )
        self.dispatcher._table[key] = checked
        return self.serve(FakeRequest(key, version, body, peer=self.peer))

    def serve(self, request: FakeRequest) -> FakeRequest:
        """Serve a request until its operation has ended or waits."""
        self.dispatcher.serve(request)
        self.run_operations()
        return request

    def run_operations(self) -> None:
        """Run operations until each has ended or waits."""
        while self.services.operations.ready:
            self.services.operations.run_slice()

    @staticmethod
    def decoded(request: FakeRequest) -> dict[str, Any]:
        """The answer of a request that was answered."""
        assert not request.closed, "the connection would be closed"
        assert request.answer is not None, "no answer yet"
        schema = load_response_schema(request.api_key, request.api_version)
        return decode(schema, request.answer)

    def run_posted(self) -> None:
        """What other threads have posted, and what that posts."""
        while self.posted:
            self.posted.pop(0)()
            self.run_operations()

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """A topic, created as a client would."""
        settings = [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1,
                 "configs": settings}  # fmt: skip
        answer = self.call(ApiKey.CREATE_TOPICS, 7, topics=[topic])
        assert answer["topics"][0]["error_code"] == 0, answer

    def log(self, name: str, partition: int = 0) -> FakeLog:
        """A partition's log."""
        log = self.logs.get(name, partition)
        assert isinstance(log, FakeLog)
        return log

    def close(self) -> None:
        """Let go of the files, and of the thread that loads groups."""
        self.services.groups.stop()
        self.store.close()


def _checked_outcome(key: ApiKey, outcome: Any) -> Any:
    """The same outcome of a handler, whose response is checked."""
    if isinstance(outcome, GeneratorType):
        return _checked_steps(key, outcome)
    if isinstance(outcome, Completion):
        checked: Completion[Any] = Completion()
        outcome.on_done(lambda done: settle(checked, lambda: _checked(key, done.result())))
        return checked
    return _checked(key, outcome)


def _checked_steps(key: ApiKey, steps: Any) -> Any:
    return _checked_outcome(key, (yield from steps))


def _checked(key: ApiKey, response: Any) -> Any:
    """Refuse names that no version of the response knows: they would be dropped in silence."""
    versions = schema_name_map[key.name.lower()]
    _check_names([load_response_schema(key, version) for version in versions], response)
    return response


def _check_names(schemas: list[Any], value: Any) -> None:
    fields: dict[str, list[Any]] = {}
    for schema in schemas:
        for field in dataclasses.fields(schema):
            fields.setdefault(field.name, []).append(field)
    unknown = value.keys() - fields.keys()
    assert not unknown, f"{schemas[0].__name__} has no {unknown}"
    for name, given in value.items():
        inner = [schema for field in fields[name] if (schema := _struct_of(field.type))]
        for one in given if isinstance(given, list | tuple) else [given]:
            if inner and one is not None:
                _check_names(inner, one)


def _struct_of(hint: Any) -> Any:
    """The dataclass in `X`, `X | None`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    arguments = getattr(hint, "__args__", ())
    if not arguments:
        return hint if dataclasses.is_dataclass(hint) else None
    return next((found for one in arguments if (found := _struct_of(one))), None)
