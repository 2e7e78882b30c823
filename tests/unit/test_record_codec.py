"""Records on disk: their codec against kio, against bytes that Apache Kafka wrote, and itself."""

from __future__ import annotations

import importlib.util
import pkgutil
import random
import uuid
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.leader_change_message import v0 as kio_leader_change_v0
from kio.schema.leader_change_message import v1 as kio_leader_change_v1
from kio.schema.voters_record.v0 import data as kio_voters
from kio.serial import entity_writer

from kbroker.metadata import records
from kbroker.metadata.generate import FAMILIES, generate
from kbroker.metadata.records import classic_group, cluster, consumer_group, frame, raft, topics
from kbroker.metadata.records.codec import RecordError, decode, encode
from kbroker.metadata.records.schema import EMPTY, NEVER, Field, Record
from kbroker.metadata.records.wire import FIXED
from tests.support.java import kafka_libs


def every_record() -> list[tuple[type[Record], int]]:
    """Each class that is a record of its own, with each of its versions."""
    found = []
    for module in pkgutil.iter_modules(records.__path__):
        if module.name not in FAMILIES:
            continue
        for value in vars(importlib.import_module(f"{records.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Record) and value is not Record:
                schema = value.SCHEMA
                found += [(value, v) for v in range(schema.oldest, schema.latest + 1)]
    return found


EVERY_RECORD = every_record()
_INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Any value that a field can hold in a version."""
    one: st.SearchStrategy[Any]
    if field.of is not None:
        one = instances(field.of, version)
    elif field.type == "string":
        one = st.text(max_size=200)
    elif field.type == "bytes":
        one = st.binary(max_size=200)
    elif field.type == "uuid":
        one = st.binary(min_size=16, max_size=16)
    elif field.type == "bool":
        one = st.booleans()
    elif field.type == "float64":
        one = st.floats(allow_nan=False)
    elif field.type.startswith("u"):
        one = st.integers(0, (1 << int(field.type[4:])) - 1)
    else:
        bits = _INT_BITS[field.type]
        one = st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    if field.array:
        one = st.lists(one, max_size=4)
    return st.none() | one if version >= field.nullable else one


def instances(cls: type[Record], version: int) -> st.SearchStrategy[Record]:
    """Records of a class with every field that the version carries."""
    carried = {
        field.name: values(field, version)
        for field in cls.SCHEMA.fields
        if field.since <= version <= field.until
    }
    return st.builds(cls, **carried)


def test_every_family_has_records() -> None:
    assert len(EVERY_RECORD) > 100
    assert sorted(frame.METADATA) == [k for k in range(29) if k not in (6, 13, 16)]


@pytest.mark.parametrize(
    ("cls", "version"), EVERY_RECORD, ids=lambda x: getattr(x, "__name__", str(x))
)
def test_what_is_written_is_read_again(cls: type[Record], version: int) -> None:
    @settings(max_examples=20, deadline=None)
    @given(instances(cls, version))
    def check(record: Record) -> None:
        data = encode(record, version)
        assert decode(cls, version, data) == record
        assert encode(decode(cls, version, data), version) == data

    check()


@pytest.mark.parametrize(
    ("cls", "version"), EVERY_RECORD, ids=lambda x: getattr(x, "__name__", str(x))
)
def test_defaults_survive(cls: type[Record], version: int) -> None:
    assert decode(cls, version, encode(cls(), version)) == cls()


def test_cut_and_changed_bytes_are_refused_and_never_crash() -> None:
    """Invariant tested: any bytes decode to a record or raise RecordError, nothing else."""
    rng = random.Random(631)
    for cls, version in EVERY_RECORD:
        data = encode(cls(), version)
        for size in range(len(data)):
            with pytest.raises(RecordError):
                decode(cls, version, data[:size])
        for _ in range(50):
            spoilt = bytearray(data or b"\0")
            spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
            spoilt += rng.randbytes(rng.randrange(8))
            try:
                decode(cls, version, bytes(spoilt))
            except RecordError:
                continue


def test_a_huge_array_is_refused_before_it_is_built() -> None:
    data = bytearray(4 + 16)
    data += b"\xff\xff\xff\xff\x0f" + bytes(20)
    with pytest.raises(RecordError, match="elements"):
        decode(topics.PartitionRecord, 0, bytes(data))


def test_unknown_tagged_fields_are_kept() -> None:
    plain = encode(topics.TopicRecord(name="t", topic_id=b"i" * 16), 0)
    tagged = plain[:-1] + b"\x02\x05\x03abc\x81\x01\x00"
    record = decode(topics.TopicRecord, 0, tagged)
    assert record.unknown_tags == ((5, b"abc"), (129, b""))
    assert encode(record, 0) == tagged
    assert record.replace(name="u").unknown_tags == record.unknown_tags


def test_a_version_that_cannot_carry_a_field_refuses_it() -> None:
    record = topics.PartitionRecord(directories=[b"d" * 16])
    with pytest.raises(RecordError, match="directories"):
        encode(record, 0)
    assert encode(record, 1)


def test_partition_records_in_a_row_are_encoded_as_one_by_one() -> None:
    """The encoder keeps bytes of the record before: whatever differs must be seen."""
    shared = [1]
    base = topics.PartitionRecord(3, b"t" * 16, shared, shared, leader=1, leader_epoch=0,
                                  partition_epoch=0, directories=[b"d" * 16])  # fmt: skip
    row = [base, base.replace(partition_id=4), base.replace(topic_id=b"u" * 16)]
    for name, value in (
        ("replicas", [2]), ("isr", []), ("removing_replicas", [1]), ("adding_replicas", [1, 2]),
        ("leader", -1), ("leader_recovery_state", 1), ("leader_epoch", 7), ("partition_epoch", 8),
        ("directories", [b"e" * 16]), ("eligible_leader_replicas", [1]), ("last_known_elr", []),
    ):  # fmt: skip
        row += [base, base.replace(**{name: value}), base.replace(**{name: value})]
    tagged = base.replace()
    tagged.unknown_tags = ((9, b"x"),)
    for record in [*row, base, tagged, base]:
        for version in (2, 2, 1) if record.eligible_leader_replicas is None else (2, 2):
            if version == 1 and record.last_known_elr is not None:
                continue
            data = frame.encode_metadata(record, version)
            assert data == bytes([1, 3, version]) + encode(record, version)
            assert frame.decode_metadata(data) == (record, version)
    shared.append(2)  # in place
    assert frame.decode_metadata(frame.encode_metadata(base, 2)) == (base, 2)


def test_a_partition_record_that_does_not_fit_is_refused() -> None:
    good = topics.PartitionRecord(3, b"t" * 16)
    for bad, reason in ((good.replace(topic_id=b"short"), "uuid"),
                        (good.replace(partition_id=1 << 40), "fit")):  # fmt: skip
        frame.encode_metadata(good, 2)
        with pytest.raises(RecordError, match=reason):
            frame.encode_metadata(bad, 2)


def test_an_ignorable_field_is_dropped() -> None:
    value = classic_group.OffsetCommitValue(offset=7, leader_epoch=3, metadata="m")
    assert decode(classic_group.OffsetCommitValue, 2, encode(value, 2)).leader_epoch == -1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (topics.TopicRecord(name="t", topic_id=b"short"), "uuid"),
        (topics.TopicRecord(name=None), "null"),  # type: ignore[arg-type]
        (topics.PartitionRecord(leader=1 << 40), "fit"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record: Record, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        encode(record, 0)


@pytest.mark.parametrize("version", [-1, 3])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(RecordError, match="versions 0 to 2"):
        decode(topics.PartitionRecord, version, b"")


# ---- against Apache Kafka's bytes

_FEATURE = bytes.fromhex("010c00116d657461646174612e76657273696f6e001e00")
_VOTERS = bytes.fromhex(
    "000002000000019aae12fad5de4d349dc0cd9b66b7f9f7020b434f4e54524f4c4c45520a3132372e302e302e31"
    "98b5000000000100 0000"
)


def test_a_feature_level_of_kafka() -> None:
    record, version = frame.decode_metadata(_FEATURE)
    assert record == cluster.FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert frame.encode_metadata(record, version) == _FEATURE


def test_voters_of_kafka() -> None:
    record = frame.decode_control(b"\0\0\0\6", _VOTERS)
    assert isinstance(record, raft.VotersRecord)
    assert record.voters[0].endpoints == [
        raft.Endpoint(name="CONTROLLER", host="127.0.0.1", port=39093)
    ]
    assert frame.encode_control(record) == (b"\0\0\0\6", _VOTERS)


def test_a_tagged_struct_that_is_null_is_written() -> None:
    """A group member of Kafka 4.3: its default is an empty struct, not null."""
    data = bytes.fromhex(
        "000008" "72646b61666b61" "0b" "2f3132372e302e302e31" "02" "0274" "01" "000493e0" "00"
        "01" "00" "01" "00"
    )  # fmt: skip
    value = decode(consumer_group.ConsumerGroupMemberMetadataValue, 0, data)
    assert value.classic_member_metadata is None and value.client_id == "rdkafka"
    assert encode(value, 0) == data
    value.classic_member_metadata = consumer_group.ClassicMemberMetadata(
        5, [consumer_group.ClassicProtocol("range", b"x")]
    )
    assert decode(type(value), 0, encode(value, 0)) == value


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\2\2\0", b"\1\x7f\0", b"\1\2\1", _FEATURE + b"\0", b"\xff" * 9]
)
def test_a_bad_frame_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        frame.decode_metadata(data)


def test_coordinator_keys_and_values() -> None:
    key = classic_group.OffsetCommitKey(group="g", topic="t", partition=3)
    data = frame.encode_key(key)
    assert data == b"\0\1\0\1g\0\1t\0\0\0\3"
    assert frame.decode_key(data, classic_group.KEYS) == key
    assert frame.decode_key(b"\0\x63", classic_group.KEYS) is None
    value = classic_group.OffsetCommitValue(offset=5, leader_epoch=2, commit_timestamp=9)
    data = frame.encode_value(value, 3)
    assert data == b"\0\3" + (5).to_bytes(8) + (2).to_bytes(4) + b"\0\0" + (9).to_bytes(8)
    assert frame.decode_value(data, classic_group.OffsetCommitValue) == value


# ---- against kio


def kio_bytes(message: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def test_leader_change_as_kio_writes_it() -> None:
    ours: Record
    for module, version in ((kio_leader_change_v0, 0), (kio_leader_change_v1, 1)):
        data = importlib.import_module(module.__name__ + ".data")
        uid = uuid.UUID(int=7)
        extra = {"voter_directory_id": uid} if version else {}
        voter = data.Voter(voter_id=1, **extra)
        theirs = data.LeaderChangeMessage(
            version=version, leader_id=1, voters=(voter,), granting_voters=(voter,)
        )
        mine = raft.LeaderChangeVoter(1, uid.bytes if version else bytes(16))
        ours = raft.LeaderChangeMessage(version, 1, [mine], [mine])
        assert encode(ours, version) == kio_bytes(theirs)


@given(st.integers(0, 65535), st.text(max_size=40), st.integers(0, 2**31 - 1), st.uuids())
def test_voters_as_kio_writes_them(port: int, host: str, voter: int, directory: uuid.UUID) -> None:
    theirs = kio_voters.VotersRecord(
        version=0,
        voters=(
            kio_voters.Voter(
                voter_id=voter,
                voter_directory_id=directory,
                endpoints=(kio_voters.Endpoint(name="C", host=host, port=port),),
                k_raft_version_feature=kio_voters.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            ),
        ),
    )
    ours = raft.VotersRecord(
        0,
        [
            raft.VotersVoter(
                voter,
                directory.bytes,
                [raft.Endpoint("C", host, port)],
                raft.KRaftVersionFeature(0, 1),
            )
        ],
    )
    assert encode(ours, 0) == kio_bytes(theirs)


# ---- the generator


def test_the_tables_are_those_of_the_jars() -> None:
    """The committed modules are what the generator makes of Kafka's schemas."""
    for module, text in generate(kafka_libs()).items():
        spec = importlib.util.find_spec(f"{records.__name__}.{module}")
        assert spec is not None and spec.origin is not None
        with open(spec.origin) as file:
            assert file.read() == text, f"{module}.py is not what generate.py writes"


def test_schema_fields_are_consistent() -> None:
    for cls, _ in EVERY_RECORD:
        for field in cls.SCHEMA.fields:
            assert field.of is not None or field.type in {*FIXED, "string", "bytes"}
            assert (field.tag < 0) == (field.tagged == NEVER)
            assert field.default is not EMPTY or field.array or field.of is not None
