"""The control plane without a socket: requests in plain dicts, handlers, answers in plain dicts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import schema_name_map

from kbroker.api import publish, registry
from kbroker.api.context import Endpoint, Services
from kbroker.api.dispatch import Dispatcher
from kbroker.clock import FakeClock
from kbroker.config import BrokerConfig
from kbroker.metadata.store import MetadataStore
from kbroker.protocol import ApiKey
from kbroker.storage.manager import LogManager
from tests.support.messages import decode, encode
from tests.support.ports import FakeDataPlane, FakeLog


class ControlPlane:
    """Handlers on a real metadata store, with logs and data plane that only note calls."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.config = BrokerConfig({"listeners": "PLAINTEXT://localhost:9092", **(settings or {})})
        self.clock = FakeClock()
        self.store = MetadataStore(directory, self.clock, node_id=self.config.node_id)
        self.store.open()
        self.data_plane = FakeDataPlane()
        self.logs = LogManager(directory, FakeLog)
        self.services = Services(
            self.config, self.store, self.logs, self.data_plane, self.clock,
            {"PLAINTEXT": Endpoint("localhost", 9092)},
        )  # fmt: skip
        publish.reload_broker_settings(self.services)
        self.dispatcher = Dispatcher(self.services, registry.table())

    def call(self, key: ApiKey, version: int, /, **fields: Any) -> dict[str, Any]:
        """The answer to a request; every field that a handler gives must exist in some version."""
        body = encode(load_request_schema(key, version), fields)
        entry = registry.table()[key]
        assert entry.handler is not None
        checked = entry._replace(
            handler=lambda request, context: _checked(key, entry.handler(request, context))
        )
        self.dispatcher._table[key] = checked
        answer = self.dispatcher.answer(key, version, body, listener="PLAINTEXT")
        assert answer is not None, "the connection would be closed"
        return decode(load_response_schema(key, version), answer)

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
        """Let go of the files."""
        self.store.close()


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
