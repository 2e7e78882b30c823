"""Serializers whose schemas a schema registry keeps: Avro and JSON Schema (the extra `registry`).

    byte 0 (magic), schema id int32, then the value in Avro's binary form or as JSON

The registry is asked by HTTP once for each schema; what it told is kept. The subject is the
topic's name with `-key` or `-value` behind it, unless one is named: `-key` by is_key=True, or where
a producer has the serializer for its keys.
"""

from __future__ import annotations

import base64
import copy
import http.client
import importlib
import io
import json
import struct
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from kbroker.client.errors import SchemaRegistryError
from kbroker.urls import shown_url, split_credentials

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "SchemaRegistry",
    "SchemaRegistryError",
]

_HEAD = struct.Struct(">bI")
_HEADERS = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_ANSWER_BYTES_MAX = 16 * 1024 * 1024


class SchemaRegistry:
    """A registry at this URL. auth: user and password, which may also be in the URL. Errors show
    the URL without them. Thread-safe."""

    def __init__(
        self, url: str, *, auth: tuple[str, str] | None = None, timeout_s: float = 10.0
    ) -> None:
        if not url.lower().startswith(("http://", "https://")):
            raise ValueError(f"{shown_url(url)!r} is no URL of a registry; write http://HOST:PORT")
        address, credentials = split_credentials(url)  # raises ValueError
        if auth is not None:
            credentials = ":".join(auth)
        self._address = address.rstrip("/")
        self._url = shown_url(url).rstrip("/")
        self._timeout_s = timeout_s
        self._authorization = ""
        if credentials:
            told = base64.b64encode(credentials.encode()).decode()
            self._authorization = f"Basic {told}"
        self._lock = threading.Lock()
        self._ids: dict[tuple[str, str, str], int] = {}
        self._schemas: dict[int, str] = {}

    def id_of(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema under a subject, registered where it is new. kind: AVRO or JSON."""
        key = subject, schema, kind
        with self._lock:
            known = self._ids.get(key)
        if known is None:
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
            body = {"schema": schema} | ({} if kind == "AVRO" else {"schemaType": kind})
            known = self._number(self._ask(path, body), "id")
            with self._lock:
                self._ids[key] = known
        return known

    def schema_of(self, schema_id: int) -> str:
        """The schema with this id."""
        with self._lock:
            known = self._schemas.get(schema_id)
        if known is None:
            told = self._ask(f"/schemas/ids/{schema_id}").get("schema")
            if not isinstance(told, str):
                raise SchemaRegistryError(f"{self._url} has no text for schema {schema_id}")
            known = told
            with self._lock:
                self._schemas[schema_id] = known
        return known

    def _number(self, told: Mapping[str, Any], name: str) -> int:
        if not isinstance(told.get(name), int):
            raise SchemaRegistryError(f"{self._url} answered without {name!r}")
        return int(told[name])

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, _HEADERS)
        if self._authorization:
            # A server that redirects does not choose who learns the password.
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                told = json.loads(answer.read(_ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            why = error.read(1000).decode("utf-8", "replace")
            raise SchemaRegistryError(f"{self._url}{path}: {error.code} {why}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise SchemaRegistryError(f"{self._url}{path}: {error}") from error
        if not isinstance(told, dict):
            raise SchemaRegistryError(f"{self._url}{path}: the answer is no object")
        return told


class _Serializer:
    kind = ""

    def __init__(
        self, registry: SchemaRegistry, schema: str | Mapping[str, Any], *,
        subject: str | None = None, is_key: bool | None = None,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._schema = schema if isinstance(schema, str) else json.dumps(schema)
        self._parsed = json.loads(self._schema)
        self._subject = subject
        self._is_key = is_key

    def of_key(self) -> _Serializer:
        """This one for keys, unless is_key was given; what a producer's key_serializer becomes."""
        made = copy.copy(self)
        made._is_key = self._is_key is None or self._is_key
        return made

    def __call__(self, topic: str, given: Any) -> bytes:
        data = self.encode(given)
        subject = self._subject or f"{topic}-{'key' if self._is_key else 'value'}"
        return _HEAD.pack(0, self._registry.id_of(subject, self._schema, self.kind)) + data

    def encode(self, given: Any) -> bytes:
        """The value without its head."""
        raise NotImplementedError


class _Deserializer:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._parsed: dict[int, Any] = {}

    def __call__(self, topic: str, data: bytes) -> Any:
        if len(data) < _HEAD.size or data[0] != 0:
            raise SchemaRegistryError(f"a value of {topic} does not begin with a schema's id")
        schema_id = _HEAD.unpack_from(data)[1]
        if schema_id not in self._parsed:
            self._parsed[schema_id] = self.parse(self._registry.schema_of(schema_id))
        return self.decode(data[_HEAD.size :], self._parsed[schema_id])

    def parse(self, schema: str) -> Any:
        """A schema as `decode` takes it."""
        raise NotImplementedError

    def decode(self, data: bytes, schema: Any) -> Any:
        """The value behind its head."""
        raise NotImplementedError


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ImportError(f"{name} is missing: pip install 'kbroker[registry]'") from None


class AvroSerializer(_Serializer):
    """(topic, object) -> bytes by an Avro schema, given as JSON text or as what it says. A record
    has the schema's fields, no others, and may leave out those that have a default."""

    kind = "AVRO"

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._avro = _library("fastavro")
        self._parsed = self._avro.parse_schema(self._parsed)

    def encode(self, given: Any) -> bytes:
        out = io.BytesIO()
        self._avro.schemaless_writer(out, self._parsed, given, strict_allow_default=True)
        return out.getvalue()


class AvroDeserializer(_Deserializer):
    """(topic, bytes) -> object by the Avro schema that the bytes name."""

    def __init__(self, registry: SchemaRegistry) -> None:
        super().__init__(registry)
        self._avro = _library("fastavro")

    def parse(self, schema: str) -> Any:
        return self._avro.parse_schema(json.loads(schema))

    def decode(self, data: bytes, schema: Any) -> Any:
        return self._avro.schemaless_reader(io.BytesIO(data), schema, None)


class JsonSchemaSerializer(_Serializer):
    """(topic, object) -> bytes as JSON, checked by a JSON Schema."""

    kind = "JSON"

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        checks = _library("jsonschema")
        self._check = checks.validators.validator_for(self._parsed)(self._parsed)

    def encode(self, given: Any) -> bytes:
        self._check.validate(given)
        return json.dumps(given, separators=(",", ":"), ensure_ascii=False).encode()


class JsonSchemaDeserializer(_Deserializer):
    """(topic, bytes) -> object, checked by the JSON Schema that the bytes name."""

    def __init__(self, registry: SchemaRegistry) -> None:
        super().__init__(registry)
        self._checks = _library("jsonschema")

    def parse(self, schema: str) -> Any:
        parsed = json.loads(schema)
        return self._checks.validators.validator_for(parsed)(parsed)

    def decode(self, data: bytes, schema: Any) -> Any:
        given = json.loads(data)
        schema.validate(given)
        return given
