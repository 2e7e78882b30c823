"""Messages of the control plane against kio's own reader and writer, at every version."""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
import uuid

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kbroker.protocol import (
    ApiKey,
    MalformedRequestError,
    decode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from kbroker.protocol.decode import Cursor, decode_answer, struct_reader
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import fields_of, request_schema, response_schema

VERSIONS = [(key, version) for key in ApiKey for version in schema_name_map[api_key_map[key]]]
REQUESTS = [
    (key, version)
    for key, version in VERSIONS
    if EntityType.request in schema_name_map[api_key_map[key]][version]
]

NUMBERS = {
    "int8": 7,
    "int16": 15,
    "int32": 31,
    "int64": 63,
    "timedelta_i32": 31,
    "timedelta_i64": 40,
    "datetime_i64": 40,
}


def _value(field, chance: random.Random):
    if field.kind in NUMBERS:
        return chance.randrange(1 << NUMBERS[field.kind])
    if field.kind == "uint16":
        return chance.randrange(1 << 16)
    if field.kind == "error_code":
        return chance.randrange(-1, 120)
    if field.kind == "bool":
        return chance.random() < 0.5
    if field.kind == "float64":
        return chance.random()
    if field.kind == "uuid":
        return uuid.UUID(int=chance.randrange(1, 1 << 128))
    if field.kind == "struct":
        return _struct(field.schema, chance)
    data = bytes(chance.randrange(32, 127) for _ in range(chance.randrange(200)))
    return data.decode() if field.kind == "string" else data


def _struct(schema, chance: random.Random):
    value = {}
    for field in fields_of(schema):
        if chance.random() < 0.1:
            continue
        if field.is_array:
            value[field.name] = [_value(field, chance) for _ in range(chance.randrange(3))]
        elif field.is_nullable and chance.random() < 0.2:
            value[field.name] = None
        else:
            value[field.name] = _value(field, chance)
    return value


def _kio_bytes(schema, entity) -> bytes:
    out = io.BytesIO()
    entity_writer(schema)(out, entity)
    return out.getvalue()


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_response_is_written_as_kio_writes_it(key, version):
    schema = response_schema(key, version)
    for seed in range(5):
        ours = encode_response(key, version, _struct(schema, random.Random(seed)))
        entity, used = entity_reader(schema)(ours, 0)
        assert used == len(ours)
        assert _kio_bytes(schema, entity) == ours


@pytest.mark.parametrize("version", [1, 5])
def test_a_message_that_quotes_long_names_ends_where_a_string_does(version):
    """FindCoordinator, not flexible and flexible."""
    schema = response_schema(10, version)
    message = "n" + "ö" * 20_000
    body = encode_response(10, version, {"error_message": message, "coordinators": [
        {"key": "k" * 9, "error_message": message}]})  # fmt: skip
    found, _ = decode_answer(schema, body)
    told = found.coordinators[0].error_message if version > 3 else found.error_message
    assert told == message[: 1 + 32_766 // 2]


@pytest.mark.parametrize(("key", "version"), REQUESTS)
def test_the_tolerant_reader_agrees_with_kios(key, version):
    schema = request_schema(key, version)
    for seed in range(5):
        out = bytearray()
        struct_writer(schema)(out, _struct(schema, random.Random(seed)))
        body = bytes(out)
        cursor = Cursor(body)
        read = struct_reader(schema)(cursor)
        assert read == entity_reader(schema)(body, 0)[0] == decode_request(key, version, body)
        assert cursor.position == len(body)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_header_versions_are_those_of_the_schemas(key, version):
    request = request_schema(key, version)
    assert request.__header_schema__.__version__ == request_header_version(key, version)
    response = response_schema(key, version)
    assert response.__header_schema__.__version__ == response_header_version(key, version)


COUNTS_WITHOUT_ELEMENTS = r"""
import resource
from kbroker.group.embedded import EmbeddedError, read_assignment, read_subscription
from kbroker.protocol import decode_request, MalformedRequestError
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import request_schema
from tests.support.needs import is_sanitized
from tests.unit.test_protocol import REQUESTS

if not is_sanitized():
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for key, version in REQUESTS:
    out = bytearray()
    struct_writer(request_schema(key, version))(out, {})
    for at in range(len(out) + 1):
        for count in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f"):
            try:
                decode_request(key, version, bytes(out[:at]) + count + bytes(out[at:]))
            except MalformedRequestError:
                pass
for version in range(4):
    for read in read_subscription, read_assignment:
        try:
            read(bytes((0, version)) + b"\x7f\xff\xff\xff")
        except EmbeddedError:
            pass
"""


def test_a_count_without_elements_takes_no_memory():
    """kio takes memory for what an array says it has; where there is none, the process aborts.

    AddressSanitizer maps terabytes for itself, so there it is told to end the process for this.
    """
    asan = os.environ.get("ASAN_OPTIONS", "") + ":max_allocation_size_mb=2048"
    done = subprocess.run(
        [sys.executable, "-c", COUNTS_WITHOUT_ELEMENTS], capture_output=True, check=False,
        env=os.environ | {"ASAN_OPTIONS": asan},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_a_tag_of_a_later_version_is_skipped():
    body = bytes.fromhex("01 01 00 02 07 03 616263 09 00".replace(" ", ""))
    request = decode_request(ApiKey.METADATA, 13, body)
    assert request.topics == () and request.allow_auto_topic_creation


def test_bytes_behind_the_end_are_passed_over():
    assert decode_request(ApiKey.METADATA, 4, bytes(4) + b"\x01rest").topics == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x00\x00\x01\xff\xff\x01",
        b"\x00\x00\x00\x01\x00\x02\xff\xff\x01",
    ],
)
def test_bytes_that_do_not_follow_the_schema_are_the_clients_fault(body):
    with pytest.raises(MalformedRequestError):
        decode_request(ApiKey.METADATA, 4, body)


def test_a_body_with_too_many_elements_is_refused_before_they_are_read():
    count = 1_000_001
    body = count.to_bytes(4, "big") + bytes(2 * count) + b"\x01"
    with pytest.raises(MalformedRequestError, match="array of 1000001 elements"):
        decode_request(ApiKey.METADATA, 4, body)


def test_the_elements_of_all_arrays_of_a_request_count_together():
    topic = b"\x00\x01t" + (400_000).to_bytes(4, "big") + bytes(4 * 400_000)
    for topics, is_read in ((2, True), (3, False)):
        body = b"\x00\x01g" + topics.to_bytes(4, "big") + topic * topics
        if is_read:
            read = decode_request(ApiKey.OFFSET_FETCH, 1, body)
            assert [len(topic.partition_indexes) for topic in read.topics] == [400_000] * topics
        else:
            with pytest.raises(MalformedRequestError, match="array of 400000 elements"):
                decode_request(ApiKey.OFFSET_FETCH, 1, body)


def test_cut_and_flipped_requests_are_refused_or_read_but_never_break_the_reader():
    """Invariant tested: any bytes give an entity or MalformedRequestError, by both readers."""
    chance = random.Random(7)
    for key, version in REQUESTS:
        schema = request_schema(key, version)
        out = bytearray()
        struct_writer(schema)(out, _struct(schema, chance))
        for _ in range(30):
            body = bytearray(out[: chance.randrange(len(out) + 1)])
            if body:
                body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
            with contextlib.suppress(MalformedRequestError):
                decode_request(key, version, bytes(body))
            with contextlib.suppress(ValueError, OverflowError):
                struct_reader(schema)(Cursor(bytes(body)))


def test_kio_comes_without_asyncio_and_hypothesis():
    program = (
        "import sys; from kbroker.protocol import ApiKey, decode_request\n"
        "decode_request(ApiKey.METADATA, 4, bytes(4) + b'\\1')\n"
        "sys.exit(' '.join({'asyncio', 'hypothesis', 'ssl'} & sys.modules.keys()) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
