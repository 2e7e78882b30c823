"""Plain values to Kafka messages and back, through kio."""

from __future__ import annotations

import contextlib
import datetime
import io
import random
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kbroker.client.errors import CorruptDataError, SerializationError
from kbroker.client.messages import VERSIONS, decode_response, encode_body, encode_request
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import fields_of


def read_request(api: ApiKey, version: int, data: bytes) -> tuple[Any, Any]:
    schema: Any = load_request_schema(api, version)
    header, used = entity_reader(schema.__header_schema__)(data, 0)
    body, more = entity_reader(schema)(data, used)
    assert used + more == len(data)
    return header, body


@pytest.mark.parametrize("api", list(VERSIONS))
def test_every_version_encodes_with_no_value_given(api: ApiKey) -> None:
    for version in range(VERSIONS[api][0], VERSIONS[api][1] + 1):
        header, _ = read_request(api, version, encode_request(api, version, 7, {}, "me"))
        assert int(header.request_api_key) == api
        assert int(header.request_api_version) == version
        assert (int(header.correlation_id), header.client_id) == (7, "me")


def test_nested_values_arrive() -> None:
    values = {
        "topics": [{"name": "t", "num_partitions": 3, "configs": [{"name": "a", "value": None}]}],
        "timeout": 1500,
        "validate_only": True,
    }
    data = encode_request(ApiKey.CREATE_TOPICS, 7, 1, values, "me")
    _, body = read_request(ApiKey.CREATE_TOPICS, 7, data)
    (topic,) = body.topics
    assert (topic.name, int(topic.num_partitions), topic.configs[0].value) == ("t", 3, None)
    assert body.timeout.total_seconds() == 1.5
    assert body.validate_only


def test_a_string_is_as_long_as_the_protocol_lets_it() -> None:
    """The field and its length are told before anything is sent, at whatever depth."""
    values = {"topics": [{"name": "é" * 16_383 + "x"}]}
    _, body = read_request(
        ApiKey.CREATE_TOPICS, 7, encode_request(ApiKey.CREATE_TOPICS, 7, 1, values, "x" * 32_767)
    )
    assert len(body.topics[0].name.encode()) == 32_767
    with pytest.raises(SerializationError, match=r"^client_id 'x{20}'\.\.\. has 32,768 bytes"):
        encode_request(ApiKey.CREATE_TOPICS, 7, 1, values, "x" * 32_768)
    for name, told in (("é" * 16_384, "has 32,768 bytes;"), ("caf\udce9", "is not UTF-8")):
        values["topics"][0]["name"] = name
        with pytest.raises(SerializationError, match=f"^name .* {told}"):
            encode_request(ApiKey.CREATE_TOPICS, 7, 1, values, "me")
        with pytest.raises(SerializationError, match=f"^name .* {told}"):
            encode_body(ApiKey.CREATE_TOPICS, 7, values)
        with pytest.raises(SerializationError, match=f"^groups .* {told}"):
            encode_body(ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g", name]})


def test_a_number_fits_its_field() -> None:
    values = {"topics": [{"name": "t", "num_partitions": 2**31, "replication_factor": 1}]}
    with pytest.raises(SerializationError, match=r"^num_partitions 2147483648 is no int32$"):
        encode_request(ApiKey.CREATE_TOPICS, 7, 1, values, "me")
    with pytest.raises(SerializationError, match=r"^num_partitions 2147483648 is no int32$"):
        encode_body(ApiKey.CREATE_TOPICS, 7, values)


def test_null_array_and_uuid() -> None:
    topic_id = uuid.uuid4()
    for topics in (None, [{"topic_id": topic_id, "name": None}]):
        data = encode_request(ApiKey.METADATA, 12, 1, {"topics": topics}, "me")
        _, body = read_request(ApiKey.METADATA, 12, data)
        if topics is None:
            assert body.topics is None
        else:
            assert body.topics[0].topic_id == topic_id


def test_a_field_of_a_newer_version_is_left_out_and_a_wrong_one_is_refused() -> None:
    encode_request(ApiKey.LIST_OFFSETS, 9, 1, {"replica_id": -1, "timeout": 5}, "me")
    with pytest.raises(KeyError, match="no field topcis"):
        encode_request(ApiKey.METADATA, 9, 1, {"topcis": []}, "me")


def response(api: ApiKey, version: int, **fields: Any) -> bytes:
    schema: Any = load_response_schema(api, version)
    out = io.BytesIO()
    header = schema.__header_schema__
    entity_writer(header)(out, header(correlation_id=7))
    entity_writer(schema)(out, schema(**fields))
    return out.getvalue()


def test_response_with_bytes_too_many_or_too_few_is_refused() -> None:
    good = response(ApiKey.API_VERSIONS, 0, error_code=ErrorCode.none, api_keys=())
    assert decode_response(ApiKey.API_VERSIONS, 0, good)[0] == 7
    with pytest.raises(CorruptDataError, match="1 bytes too many"):
        decode_response(ApiKey.API_VERSIONS, 0, good + b"x")
    with pytest.raises(CorruptDataError, match="cannot be read"):
        decode_response(ApiKey.API_VERSIONS, 0, good[:-1])


@pytest.mark.parametrize("api", VERSIONS, ids=lambda api: api.name)
def test_every_answer_that_the_client_may_get_can_be_read(api: ApiKey) -> None:
    for version in range(VERSIONS[api][0], VERSIONS[api][1] + 1):
        schema: Any = load_response_schema(api, version)
        header = io.BytesIO()
        entity_writer(schema.__header_schema__)(header, schema.__header_schema__(correlation_id=7))
        out = bytearray(header.getvalue())
        struct_writer(schema)(out, {})
        assert decode_response(api, version, bytes(out))[0] == 7


def test_an_array_that_claims_more_than_there_is_costs_no_memory() -> None:
    lies = b"\0\0\0\7" + b"\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptDataError, match="cannot be read: array of 4294967294 elements"):
        decode_response(ApiKey.METADATA, 12, lies)
    with pytest.raises(CorruptDataError, match="cannot be read: array of 2147483647 elements"):
        decode_response(ApiKey.API_VERSIONS, 0, b"\0\0\0\7\0\0\x7f\xff\xff\xff")


def test_a_tagged_field_that_is_not_known_is_skipped() -> None:
    good = response(ApiKey.API_VERSIONS, 3, error_code=ErrorCode.none, api_keys=(),
                    throttle_time=datetime.timedelta())  # fmt: skip
    _, body = decode_response(ApiKey.API_VERSIONS, 3, good[:-1] + b"\x01\x63\x02hi")
    assert body.api_keys == ()


@pytest.mark.parametrize("api", VERSIONS, ids=lambda api: api.name)
def test_answers_of_a_broker_gone_mad_are_read_or_refused(api: ApiKey) -> None:
    """Invariant tested: any bytes give an answer or CorruptDataError, and nothing else."""
    version = VERSIONS[api][1]
    schema: Any = load_response_schema(api, version)
    values = {name: [{}, {}] for name, nested in nested_of(schema) if nested}
    out = bytearray(b"\0\0\0\7" + b"\0" * schema.__header_schema__.__flexible__)
    struct_writer(schema)(out, values)
    decode_response(api, version, bytes(out))
    chance = random.Random(int(api))
    for _ in range(200):
        broken = bytearray(out)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(4, len(broken) + 1)
            broken[at : at + chance.randint(0, 2)] = chance.choice(
                (b"", b"\xff", b"\0", b"\x80", b"\x7f", chance.randbytes(4))
            )
        with contextlib.suppress(CorruptDataError):
            decode_response(api, version, bytes(broken))


def nested_of(schema: Any) -> list[tuple[str, bool]]:
    return [(f.name, f.is_array and f.kind == "struct") for f in fields_of(schema)]
