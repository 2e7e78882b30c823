"""The text files of a log directory: Apache Kafka's bytes, read and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import CorruptFileError
from kbroker.files import read_offset_checkpoint
from kbroker.metadata.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kbroker.storage.checkpoints import (
    RECOVERY_POINTS,
    read_leader_epochs,
    read_topic_id,
    take_clean_shutdown,
    write_clean_shutdown,
    write_leader_epochs,
    write_topic_id,
)
from kbroker.uuids import ONE_UUID, ZERO_UUID, parse_uuid, random_uuid, uuid_text


def test_an_empty_checkpoint_is_what_kafka_makes_first(tmp_path: Path) -> None:
    (tmp_path / RECOVERY_POINTS).touch()
    assert read_offset_checkpoint(tmp_path / RECOVERY_POINTS) == {}


def test_leader_epochs(tmp_path: Path) -> None:
    assert read_leader_epochs(tmp_path) == []
    write_leader_epochs(tmp_path, [(0, 0), (2, 17)])
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 17\n"
    assert read_leader_epochs(tmp_path) == [(0, 0), (2, 17)]


def test_a_damaged_leader_epoch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n")
    with pytest.raises(CorruptFileError, match="epoch start-offset"):
        read_leader_epochs(tmp_path)


def test_partition_metadata_has_kafkas_bytes(tmp_path: Path) -> None:
    assert read_topic_id(tmp_path) is None
    write_topic_id(tmp_path, ONE_UUID)
    text = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert (tmp_path / "partition.metadata").read_bytes() == text
    assert read_topic_id(tmp_path) == ONE_UUID


def test_an_empty_partition_metadata_has_no_id(tmp_path: Path) -> None:
    for data in (b"", bytes(43)):
        (tmp_path / "partition.metadata").write_bytes(data)
        assert read_topic_id(tmp_path) is None


@pytest.mark.parametrize("text", ["version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "version: 0",
                                  "version: 0\ntopic_id: nonsense"])  # fmt: skip
def test_a_damaged_partition_metadata_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "partition.metadata").write_text(text)
    with pytest.raises(CorruptFileError):
        read_topic_id(tmp_path)


def test_the_mark_of_a_clean_shutdown_is_taken_once(tmp_path: Path) -> None:
    assert take_clean_shutdown(tmp_path) is None
    write_clean_shutdown(tmp_path, 14)
    text = b'{"version":0,"brokerEpoch":14}'
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == text
    assert take_clean_shutdown(tmp_path) == 14
    assert take_clean_shutdown(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"brokerEpoch":null}'])
def test_a_mark_without_an_epoch_is_a_clean_shutdown(tmp_path: Path, text: str) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_text(text)
    assert take_clean_shutdown(tmp_path) == -1


def test_meta_properties_of_kafka(tmp_path: Path) -> None:
    assert read_meta_properties(tmp_path) is None
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21 15:44:40 UTC 2026\nnode.id=1\ndirectory.id=mq4S-tXeTTSdwM2bZrf59w\n"
        "version=1\ncluster.id=zwu-cDwkTXaMxIWscLQQVA\n"
    )
    meta = read_meta_properties(tmp_path)
    directory_id = parse_uuid("mq4S-tXeTTSdwM2bZrf59w")
    assert meta == MetaProperties("zwu-cDwkTXaMxIWscLQQVA", 1, directory_id)
    write_meta_properties(tmp_path, meta)
    assert read_meta_properties(tmp_path) == meta


def test_meta_properties_of_an_older_kafka(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=a\\=b\nnode.id=7\n")
    assert read_meta_properties(tmp_path) == MetaProperties("a=b", 7, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("broker.id=1\ncluster.id=c\n", "version 0"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=c\nnode.id=x\n", "invalid literal"),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=?\n", "no uuid"),
    ],
)
def test_damaged_meta_properties_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(CorruptFileError, match=why):
        read_meta_properties(tmp_path)


def test_uuids_as_text() -> None:
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    for _ in range(500):
        uuid = random_uuid()
        assert parse_uuid(uuid_text(uuid)) == uuid
        assert uuid[6] >> 4 == 4 and uuid[8] >> 6 == 2
        assert not uuid_text(uuid).startswith("-")


@pytest.mark.parametrize("text", ["", "AAAA", "mq4S-tXeTTSdwM2bZrf59", "mq4S+tXeTTSdwM2bZrf5!w"])
def test_a_text_that_is_no_uuid(text: str) -> None:
    with pytest.raises(ValueError, match="no uuid"):
        parse_uuid(text)
