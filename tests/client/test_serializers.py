"""Serializers: by name, by callable, and with schemas that a registry keeps."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kbroker.client.errors import ConfigError, PurgedError, RecordTooLargeError
from kbroker.client.producer import Producer
from kbroker.client.schema_registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    SchemaRegistry,
    SchemaRegistryError,
)
from kbroker.client.serializers import serializer_of
from tests.client.reading import read_all
from tests.support import wire
from tests.support.kbroker import KbrokerProcess


def test_by_name_and_by_callable() -> None:
    def of(given: Any) -> Any:
        made = serializer_of(given, "value.serializer")
        assert made is not None
        return made

    assert of("str")("t", "é") == "é".encode()
    assert of("json")("t", {"a": [1, None]}) == b'{"a":[1,null]}'
    assert of("bytes")("t", bytearray(b"x")) == b"x"
    assert of(lambda value: b"%d" % value)("t", 5) == b"5"
    assert of(lambda topic, value: f"{topic} {value}".encode())("t", 5) == b"t 5"
    for wrong in ("xml", 5):
        with pytest.raises(ConfigError, match=r"value\.serializer"):
            serializer_of(wrong, "value.serializer")


class Interceptor:
    def __init__(self) -> None:
        self.told: list[tuple[Any, Any]] = []

    def on_send(self, topic: str, value: Any, key: Any, *rest: Any) -> Any:
        if value == "bad":
            raise RuntimeError("an interceptor's own fault")
        return (topic, f"{value}!", key, *rest)

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.told.append((metadata, error))

    def close(self) -> None:
        self.told.append((None, None))


def test_a_producer_with_both(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    seen = Interceptor()
    with Producer(
        bootstrap_servers=kbroker.bootstrap, key_serializer="json", value_serializer="str",
        interceptor_classes=[seen],
    ) as producer:  # fmt: skip
        producer.send(topic, "one", {"k": 1})
        producer.send(topic, "bad")
        with pytest.raises(TypeError, match="not JSON serializable") as raised:
            producer.send(topic, "x", key=b"bytes are no JSON")
        assert "the key of a record" in raised.value.__notes__[0]
    found = read_all(kbroker.bootstrap, topic, 2)
    assert [(r.key, r.value) for r in found] == [(b'{"k":1}', b"one!"), (None, b"bad")]
    assert seen.told.pop() == (None, None)
    assert {m.offset: error for m, error in seen.told} == {-1: raised.value, 0: None, 1: None}


def test_what_interceptors_are_told_of_failures(kbroker: KbrokerProcess, topic: str) -> None:
    """Of a send() that raises, and of a record that is not delivered; they may lack methods."""

    class Onlooker:
        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            told.append((metadata[:3], type(error)))

    class Sender:
        def on_send(self, *record: Any) -> None:
            assert len(record) == 6

    told: list[Any] = []
    wire.create_topic(kbroker.port, topic, 2)
    with Producer(
        bootstrap_servers=kbroker.bootstrap, interceptor_classes=[Sender(), Onlooker(), object()],
        max_request_size=1000, linger_ms=60_000,
    ) as producer:  # fmt: skip
        for value, more in ((b"." * 2000, {"partition": 1}), (b"." * 2000, {}), ("text", {})):
            with pytest.raises((RecordTooLargeError, TypeError)):
                producer.send(topic, value, **more)
        with pytest.raises(TypeError, match="on_delivery: int cannot be called"):
            producer.send(topic, b"", on_delivery=5)  # type: ignore[arg-type]
        producer.send(topic, b"", partition=1)
        producer.purge()
        producer.send(topic, b"", partition=1)
    assert told == [
        ((topic, 1, -1), RecordTooLargeError),
        ((topic, -1, -1), RecordTooLargeError),
        ((topic, -1, -1), TypeError),
        ((topic, -1, -1), TypeError),
        ((topic, 1, -1), PurgedError),
        ((topic, 1, 0), type(None)),
    ]


#: What the registry below was told of who asks.
AUTHORIZATIONS: list[str | None] = []


class _Registry(BaseHTTPRequestHandler):
    """As much of a registry as is asked here; refuses the subject `forbidden-value`."""

    schemas: list[str]

    def do_POST(self) -> None:
        AUTHORIZATIONS.append(self.headers["Authorization"])
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "forbidden" in self.path:
            self._answer(422, {"error_code": 42201, "message": "not like that"})
            return
        schemas = self.server.schemas  # type: ignore[attr-defined]
        if body["schema"] not in schemas:
            schemas.append(body["schema"])
        self._answer(200, {"id": schemas.index(body["schema"]) + 1})

    def do_GET(self) -> None:
        schemas = self.server.schemas  # type: ignore[attr-defined]
        self._answer(200, {"schema": schemas[int(self.path.rsplit("/", 1)[1]) - 1]})

    def _answer(self, status: int, told: Any) -> None:
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    server.schemas = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SchemaRegistry(f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    server.server_close()


AVRO: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
JSON = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def test_avro(registry: SchemaRegistry) -> None:
    pytest.importorskip("fastavro")
    serialize = AvroSerializer(registry, AVRO)
    data = serialize("topic", {"n": 5})
    assert data == b"\0\0\0\0\x01\x0a"
    assert AvroDeserializer(registry)("topic", data) == {"n": 5}
    for wrong in ({"m": 5}, {}, {"n": 5, "m": 5}):
        with pytest.raises(ValueError, match=r"'n'|'m'|record|\bn\b"):
            serialize("topic", wrong)
    more = {"name": "s", "type": "string", "default": "none"}
    serialize_more = AvroSerializer(registry, AVRO | {"fields": [*AVRO["fields"], more]})
    data = serialize_more("topic", {"n": 5})
    assert AvroDeserializer(registry)("topic", data) == {"n": 5, "s": "none"}
    with pytest.raises(SchemaRegistryError, match=r"422 .*not like that"):
        serialize("forbidden", {"n": 5})
    with pytest.raises(SchemaRegistryError, match="does not begin with a schema's id"):
        AvroDeserializer(registry)("topic", b"\x05abcd")


def test_the_subject_of_a_key(registry: SchemaRegistry) -> None:
    """That of keys where a producer has the serializer for them, unless it was said which."""
    pytest.importorskip("fastavro")
    both = AvroSerializer(registry, AVRO)
    cases = (
        (both, "key.serializer", "a-key"),
        (both, "value.serializer", "a-value"),
        (AvroSerializer(registry, AVRO, is_key=False), "key.serializer", "a-value"),
        (AvroSerializer(registry, AVRO, is_key=True), "value.serializer", "a-key"),
        (AvroSerializer(registry, AVRO, subject="mine"), "key.serializer", "mine"),
    )
    for given, field, subject in cases:
        registry._ids.clear()
        serialize = serializer_of(given, field)
        assert serialize is not None and serialize("a", {"n": 5}) is not None
        assert [name for name, _, _ in registry._ids] == [subject]


def test_registry_credentials_in_the_url(registry: SchemaRegistry) -> None:
    """They are sent, those of `auth` first, and no error has them."""
    url = registry._address.replace("//", "//ann%40corp:s3%3Acret@")
    basic = base64.b64encode(b"ann@corp:s3:cret").decode()
    other = base64.b64encode(b"bob:pass").decode()
    cases: tuple[tuple[SchemaRegistry, str], ...] = (
        (SchemaRegistry(url), basic), (SchemaRegistry(url, auth=("bob", "pass")), other),
    )  # fmt: skip
    for asking, expected in cases:
        assert asking.id_of("a-value", "{}", "AVRO") == 1
        assert AUTHORIZATIONS[-1] == f"Basic {expected}"
        with pytest.raises(SchemaRegistryError, match="not like that") as refused:
            asking.id_of("forbidden-value", "{}", "AVRO")
        assert "cret" not in str(refused.value) and "cret" not in repr(asking)
    for wrong in ("http://ann:s3cret@[::1", "ftp://ann:s3cret@h", "http://ann:s3/cret@h"):
        with pytest.raises(ValueError) as invalid:
            SchemaRegistry(wrong)
        assert "cret" not in str(invalid.value)
    with pytest.raises(SchemaRegistryError) as unreachable:
        SchemaRegistry("http://ann:s3cret@127.0.0.1:1").id_of("a", "{}", "AVRO")
    assert "cret" not in str(unreachable.value)


def test_json_schema(registry: SchemaRegistry) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    serialize = JsonSchemaSerializer(registry, JSON)
    data = serialize("topic", {"n": 5})
    assert data == b'\0\0\0\0\x01{"n":5}'
    assert JsonSchemaDeserializer(registry)("topic", data) == {"n": 5}
    with pytest.raises(jsonschema.ValidationError):
        serialize("topic", {"n": "five"})
