"""Ids of deleted topics, which a start needs until the topics' folders are renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.errors import DiskError
from kbroker.metadata.builders import Replica, create_topic, delete_topic
from kbroker.metadata.deleted_topics import (
    DELETED_TOPICS,
    read_deleted_topics,
    write_deleted_topics,
)
from kbroker.metadata.image import Image
from kbroker.metadata.store import MetadataStore
from tests.unit.test_metadata_store import every_crash, make_topic, opened

ONE, TWO = b"\1" * 16, b"\2" * 16
REPLICA = Replica(1, ONE)


def delete(store: MetadataStore, name: str) -> None:
    store.append(delete_topic(store.image.topics[name]))


def named(store: MetadataStore) -> list[str]:
    return sorted(store.image.deleted_topics.values())


def test_the_log_and_later_the_file_name_deleted_topics(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for name in ("a", "b", "c"):
        make_topic(store, name)
    deleted = store.image.topics["a"].id
    delete(store, "a")
    assert store.image.deleted_topics == {deleted: "a"}
    store.close()
    store = opened(tmp_path)
    assert store.image.deleted_topics == {deleted: "a"}
    store.snapshot()
    delete(store, "b")
    store.close()
    store = opened(tmp_path)
    assert named(store) == ["a", "b"]
    store.image.deleted_topics.clear()  # their folders are renamed
    store.snapshot()
    store.close()
    assert not (tmp_path / DELETED_TOPICS).exists()
    store = opened(tmp_path)
    assert not named(store)
    store.close()


def test_a_topic_that_the_log_has_is_not_deleted(tmp_path: Path) -> None:
    """An older copy of the metadata log was brought back beside a later file."""
    store = opened(tmp_path)
    make_topic(store, "a")
    write_deleted_topics(tmp_path, {store.image.topics["a"].id: "a", TWO: "b"})
    store.close()
    store = opened(tmp_path)
    assert named(store) == ["b"]
    store.snapshot()
    store.close()
    store = opened(tmp_path)
    assert named(store) == ["b"] and set(store.image.topics) == {"a"}
    store.close()


def test_a_topic_of_the_same_name_is_another_one() -> None:
    image = Image()
    image.replay_all(create_topic("t", ONE, 1, REPLICA))
    image.replay_all(delete_topic(image.topics["t"]))
    image.replay_all(create_topic("t", TWO, 1, REPLICA))
    assert image.deleted_topics == {ONE: "t"}


def test_a_damaged_file_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_deleted_topics(tmp_path) == {}
    write_deleted_topics(tmp_path, {ONE: "a", TWO: "b.c_d-e"})
    path = tmp_path / DELETED_TOPICS
    assert read_deleted_topics(tmp_path) == {ONE: "a", TWO: "b.c_d-e"}
    for text in ("x", "0\n1\n", "0\n1\nnonsense a\n", "7\n0\n"):
        caplog.clear()
        path.write_text(text)
        assert read_deleted_topics(tmp_path) == {} and "is ignored" in caplog.text
    write_deleted_topics(tmp_path, {})
    assert not path.exists()


def test_a_file_that_cannot_be_removed_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / DELETED_TOPICS).mkdir()
    with pytest.raises(DiskError):
        write_deleted_topics(tmp_path, {})


def test_a_crash_at_every_step_of_a_snapshot_forgets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "d"
    store = opened(start)
    for name in ("a", "b"):
        make_topic(store, name)
    delete(store, "a")
    store.snapshot()
    delete(store, "b")
    store.close()

    def work(where: Path) -> None:
        store = opened(where)
        store.snapshot()
        store.close()

    left = every_crash(start, work, monkeypatch)
    assert len(left) > 20
    for directory in left:
        store = opened(directory)
        assert named(store) == ["a", "b"]
        store.close()
