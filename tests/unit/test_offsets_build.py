"""Records of committed offsets written by hand, against the codec that reads the schemas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.ext.offsets_build import commit_key, commit_value
from kbroker.metadata.records.classic_group import OffsetCommitKey, OffsetCommitValue
from kbroker.metadata.records.frame import encode_key, encode_value

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=200)
topic_ids = st.sampled_from([bytes(16), bytes(range(16))])
NOTHING = (0, -1, "", 0, -1, bytes(16))


@given(texts, texts, int32)
def test_keys(group, topic, partition):
    expected = encode_key(OffsetCommitKey(group, topic, partition))
    assert commit_key(group, topic, partition) == expected


@given(st.tuples(int64, int32, texts, int64, int64, topic_ids), st.integers(0, 4))
def test_values(fields, version):
    offset, epoch, metadata, commit_ms, expire_ms, topic_id = fields
    if version != 1:
        expire_ms = -1
    if version < 3:
        epoch = -1
    if version < 4:
        topic_id = bytes(16)
    value = OffsetCommitValue(offset, epoch, metadata, commit_ms, expire_ms, topic_id)
    expected = encode_value(value, version)
    fields = (offset, epoch, metadata, commit_ms, expire_ms, topic_id)
    assert commit_value(*fields, version) == expected


def test_the_longest_strings():
    longest = "m" * 32767
    assert commit_key(longest, longest, 1) == encode_key(OffsetCommitKey(longest, longest, 1))
    for version in range(5):
        expected = encode_value(OffsetCommitValue(metadata=longest), version)
        assert commit_value(0, -1, longest, 0, -1, bytes(16), version) == expected


@pytest.mark.parametrize("text", ["m" * 32768, "é" * 16384])
def test_longer_strings_are_refused(text):
    for fields in ((text, "t", 1), ("g", text, 1)):
        with pytest.raises(ValueError, match="bytes"):
            commit_key(*fields)
    with pytest.raises(ValueError, match="bytes"):
        commit_value(0, -1, text, 0, -1, bytes(16), 4)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(TypeError):
        commit_key(None, "t", 0)
    with pytest.raises(OverflowError):
        commit_key("g", "t", 1 << 31)
    for version in (-1, 5):
        with pytest.raises(ValueError, match="version"):
            commit_value(*NOTHING, version)
    for topic_id in (b"", bytes(15), None):
        with pytest.raises(ValueError, match="topic id"):
            commit_value(0, -1, "", 0, -1, topic_id, 4)
