"""The metadata store: formatting, appending, snapshots, and a crash at every step of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.clock import FakeClock
from kbroker.errors import BugError, CorruptFileError, DiskError, OperatorError
from kbroker.metadata import features
from kbroker.metadata.batches import build_batch, read_batches
from kbroker.metadata.builders import alter_configs, create_topic, delete_topic
from kbroker.metadata.loader import FOLDER, load_image
from kbroker.metadata.meta_properties import MetaProperties, write_meta_properties
from kbroker.metadata.records import cluster, frame, raft, topics
from kbroker.metadata.records.schema import Record
from kbroker.metadata.snapshot import list_snapshots, read_snapshot, write_snapshot
from kbroker.metadata.store import MetadataStore
from kbroker.storage.checkpoints import read_leader_epochs, read_topic_id
from kbroker.uuids import ONE_UUID, parse_uuid, random_uuid

LOG = f"{FOLDER}/{0:020}.log"


def opened(directory: Path, **options: Any) -> MetadataStore:
    store = MetadataStore(directory, FakeClock(), **options)
    store.open()
    return store


def make_topic(store: MetadataStore, name: str, partitions: int = 1) -> None:
    store.append(create_topic(name, random_uuid(), partitions, store.replica)).result()


def control_records(path: Path) -> list[Record | None]:
    return [
        frame.decode_control(key or b"", value or b"")
        for batch in read_batches(path.read_bytes())
        if batch.control
        for key, value in batch.records
    ]


def metadata_records(path: Path) -> list[Record]:
    return [
        frame.decode_metadata(value or b"")[0]
        for batch in read_batches(path.read_bytes())
        if not batch.control
        for _, value in batch.records
    ]


def state_of(directory: Path) -> list[str]:
    return [repr(record) for record in load_image(directory).records()]


# ---- a new directory


def test_an_empty_directory_is_formatted_as_kafkas_tool_does(tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    meta = store.meta
    assert len(parse_uuid(meta.cluster_id)) == 16 and meta.node_id == 1
    assert store.image.features == features.NEW_CLUSTER
    assert store.image.configs(("broker", "")) == {"min.insync.replicas": "1"}
    assert sorted(os.listdir(tmp_path / "data")) == [
        FOLDER, "bootstrap.checkpoint", "meta.properties",
    ]  # fmt: skip
    assert sorted(os.listdir(tmp_path / "data" / FOLDER)) == [
        f"{0:020}-{0:010}.checkpoint", f"{0:020}.log", "leader-epoch-checkpoint",
        "partition.metadata", "quorum-state",
    ]  # fmt: skip
    assert read_topic_id(store.folder) == ONE_UUID
    assert read_leader_epochs(store.folder) == [(1, 0)]
    assert json.loads((store.folder / "quorum-state").read_bytes()) == {
        "leaderId": 1, "leaderEpoch": 1, "votedId": -1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA", "data_version": 1,
    }  # fmt: skip
    snapshot = read_snapshot(store.folder / f"{0:020}-{0:010}.checkpoint")
    version, voters = snapshot.control
    assert version == raft.KRaftVersionRecord(0, 1) and snapshot.records == []
    assert isinstance(voters, raft.VotersRecord)
    assert [(v.voter_id, v.voter_directory_id) for v in voters.voters] == [(1, store.directory_id)]
    change, *repeated = control_records(tmp_path / "data" / LOG)
    assert isinstance(change, raft.LeaderChangeMessage) and change.leader_id == 1
    assert repeated == [version, voters]
    store.close()


def test_the_bootstrap_checkpoint_has_the_bytes_of_kafkas(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    data = (tmp_path / "bootstrap.checkpoint").read_bytes()
    assert len(data) == 411  # what kafka-storage format of 4.3 writes
    assert metadata_records(tmp_path / "bootstrap.checkpoint") == [
        cluster.FeatureLevelRecord(*item) for item in features.NEW_CLUSTER.items()
    ]


def test_ids_that_are_told_are_taken(tmp_path: Path) -> None:
    opened(tmp_path, node_id=7, cluster_id="mine").close()
    store = opened(tmp_path)
    assert (store.meta.node_id, store.meta.cluster_id) == (7, "mine")
    store.close()
    with pytest.raises(OperatorError, match=r"set node\.id=7"):
        opened(tmp_path, node_id=8)
    with pytest.raises(OperatorError, match="cluster mine"):
        opened(tmp_path, cluster_id="yours")


def test_data_without_meta_properties_is_not_formatted_over(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "meta.properties").unlink()
    with pytest.raises(OperatorError, match=FOLDER):
        opened(tmp_path)
    shutil.rmtree(tmp_path / FOLDER)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "partition.metadata").touch()
    with pytest.raises(OperatorError, match="t-0"):
        opened(tmp_path)


def test_a_directory_formatted_by_an_older_kafka_gets_a_directory_id(tmp_path: Path) -> None:
    write_meta_properties(tmp_path, MetaProperties("c", 1, None))
    store = opened(tmp_path)
    assert len(store.directory_id) == 16
    assert store.image.features == features.NEW_CLUSTER
    assert json.loads((store.folder / "quorum-state").read_bytes())["data_version"] == 0
    directory_id = store.directory_id
    store.close()
    store = opened(tmp_path)
    assert store.directory_id == directory_id
    store.close()


def test_records_that_the_format_tool_was_told_are_taken(tmp_path: Path) -> None:
    opened(tmp_path).close()
    shutil.rmtree(tmp_path / FOLDER)
    level = cluster.FeatureLevelRecord("metadata.version", 24)
    setting = topics.ConfigRecord(4, "", "log.retention.ms", "5")
    write_snapshot(tmp_path / "bootstrap.checkpoint", [(level, 0), (setting, 0)], now_ms=1)
    store = opened(tmp_path)
    assert store.image.features == {"metadata.version": 24}
    assert store.image.configs(("broker", "")) == {"log.retention.ms": "5"}
    store.close()


# ---- append


def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.next_offset == 12
    make_topic(store, "t", 3)
    assert store.next_offset == 16
    store.append(alter_configs(("topic", "t"), {"retention.ms": "1"}))
    before = list(map(repr, store.image.records()))
    store.close()
    assert state_of(tmp_path) == before
    again = opened(tmp_path)
    assert list(map(repr, again.image.records())) == before
    assert again.epoch == 2
    assert read_leader_epochs(again.folder) == [(1, 0), (2, 17)]
    again.close()


def test_every_open_begins_an_epoch_of_its_own(tmp_path: Path) -> None:
    for epoch in range(1, 5):
        store = opened(tmp_path)
        assert store.epoch == epoch
        store.close()
    leaders = [r for r in control_records(tmp_path / LOG)
               if isinstance(r, raft.LeaderChangeMessage)]  # fmt: skip
    assert len(leaders) == 4


def test_an_append_that_would_not_fold_writes_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    make_topic(store, "t")
    size = store.size_bytes
    with pytest.raises(BugError, match="there already"):
        make_topic(store, "t")
    assert store.size_bytes == size
    with pytest.raises(BugError, match="no records"):
        store.append([]).result()
    store.close()


def test_a_large_change_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    store = opened(tmp_path, snapshot_bytes=1 << 40)
    make_topic(store, "small")
    size = store.size_bytes
    values = {f"key.{n}": "v" * 30_000 for n in range(400)}
    store.append(alter_configs(("topic", "small"), values))
    assert len(store.image.configs(("topic", "small"))) == 400
    store.close()
    data = (tmp_path / LOG).read_bytes()
    sizes = [batch.size for batch in read_batches(data)]
    assert max(sizes) < 8 << 20 and len(sizes) > 4
    assert len(load_image(tmp_path).configs(("topic", "small"))) == 400
    for cut in (size, size + sizes[-3], len(data) - sizes[-1], len(data) - 1):
        (tmp_path / LOG).write_bytes(data[:cut])
        store = opened(tmp_path, snapshot_bytes=1 << 40)
        assert not store.image.configs(("topic", "small"))
        make_topic(store, "later")
        store.close()
        assert set(load_image(tmp_path).topics) == {"small", "later"}


def test_a_transaction_of_kafka_that_a_crash_left_open_is_aborted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    offset, epoch = store.next_offset, store.epoch
    store.close()
    begun = [cluster.BeginTransactionRecord("x"), *create_topic("t", b"t" * 16, 1, store.replica)]
    pairs = [(None, frame.encode_metadata(r, features.record_version(type(r), 30))) for r in begun]
    with open(tmp_path / LOG, "ab") as log:
        log.write(build_batch(offset, epoch, 1, pairs))
    store = opened(tmp_path)
    assert not store.image.topics
    store.close()
    assert isinstance(metadata_records(tmp_path / LOG)[-1], cluster.AbortTransactionRecord)


def test_a_failed_append_leaves_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)

    def fail(*_: object) -> int:
        raise OSError(28, "no room")

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(DiskError, match="no room"):
        make_topic(store, "t")
    assert not store.image.topics
    monkeypatch.undo()
    make_topic(store, "t")
    store.close()
    assert set(load_image(tmp_path).topics) == {"t"}


# ---- snapshots


def test_append_that_the_worker_refuses_does_not_block_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(store.worker, "run_steps", _failing)
        refused = store.append(create_topic("a", random_uuid(), 1, store.replica))
    assert isinstance(refused.error, OSError)
    make_topic(store, "b")
    assert [topic.name for topic in store.image.topics.values()] == ["b"]
    store.close()


def test_a_snapshot_stands_for_the_log_before_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(5):
        make_topic(store, f"t{number}", 2)
    store.append(delete_topic(store.image.topics["t3"]))
    identity = store.snapshot().result()
    assert identity == (store.next_offset, 1) and store.start_offset == store.next_offset
    assert sorted(os.listdir(store.folder)) == [
        identity.file_name, f"{identity.offset:020}.log", "leader-epoch-checkpoint",
        "partition.metadata", "quorum-state",
    ]  # fmt: skip
    make_topic(store, "after")
    before = list(map(repr, store.image.records()))
    store.close()
    assert state_of(tmp_path) == before
    store = opened(tmp_path)
    assert list(map(repr, store.image.records())) == before
    assert read_leader_epochs(store.folder) == [(1, identity.offset), (2, identity.offset + 2)]
    snapshot = read_snapshot(store.folder / identity.file_name)
    assert [type(record) for record in snapshot.control] == [
        raft.KRaftVersionRecord, raft.VotersRecord,
    ]  # fmt: skip
    store.close()


def test_snapshots_come_with_the_growth_of_the_log(tmp_path: Path) -> None:
    store = opened(tmp_path, snapshot_bytes=5000)
    offsets = set()
    for number in range(300):
        make_topic(store, f"t{number}")
        offsets.add(list_snapshots(store.folder)[-1].offset)
        assert len(list_snapshots(store.folder)) == 1
    assert 3 < len(offsets) < 30  # each twice as far as the image is large
    store.close()
    assert len(load_image(tmp_path).topics) == 300


def test_a_change_waits_for_its_snapshot_no_longer_than_told(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MetadataStore(tmp_path, clock, snapshot_interval_ms=1000)
    store.open()
    clock.advance(5000)
    assert not store.snapshot_when_due()  # nothing was changed
    make_topic(store, "t")
    clock.advance(999)
    assert not store.snapshot_when_due()
    clock.advance(1)
    assert store.snapshot_when_due() and not store.snapshot_when_due()
    assert list_snapshots(store.folder)[-1].offset == store.next_offset
    clock.advance(5000)
    assert not store.snapshot_when_due()
    store.close()


def test_a_disk_that_takes_no_snapshot_takes_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path, snapshot_bytes=100)
    monkeypatch.setattr(os, "rename", _failing)
    for number in range(5):
        make_topic(store, f"t{number}")
    assert [one.offset for one in list_snapshots(store.folder)] == [0]
    monkeypatch.undo()
    for number in range(5):
        make_topic(store, f"u{number}")
    assert [one.offset for one in list_snapshots(store.folder)] != [0]
    store.close()


def _failing(*_: object, **__: object) -> None:
    raise OSError(28, "no room")


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    make_topic(store, "t")
    path = store.folder / store.snapshot().result().file_name
    store.close()
    data = path.read_bytes()
    for spoilt in (data[:-70], data[:100], b"", data[:-1] + b"?"):
        path.write_bytes(spoilt)
        with pytest.raises(CorruptFileError):
            opened(tmp_path)
        with pytest.raises(CorruptFileError):
            load_image(tmp_path)


def test_leftovers_of_a_snapshot_are_removed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    for name in ("-0000000003-123.checkpoint.part", "-0000000003.checkpoint.deleted"):
        (store.folder / f"{5:020}{name}").touch()
    opened(tmp_path).close()
    assert not [name for name in os.listdir(store.folder) if name.startswith(f"{5:020}")]


# ---- quorums that are not this node alone


def test_a_quorum_of_several_voters_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    others = raft.VotersRecord(0, [raft.VotersVoter(n, random_uuid()) for n in (1, 2, 3)])
    data = build_batch(
        store.next_offset, store.epoch, 1, [frame.encode_control(others)], control=True
    )
    store.close()
    with open(tmp_path / LOG, "ab") as log:
        log.write(data)
    with pytest.raises(OperatorError, match="kbroker runs alone"):
        opened(tmp_path)


def test_a_quorum_of_several_static_voters_is_refused(tmp_path: Path) -> None:
    write_meta_properties(tmp_path, MetaProperties("c", 1, random_uuid()))
    opened(tmp_path).close()
    path = tmp_path / FOLDER / "quorum-state"
    state = json.loads(path.read_bytes())
    assert state["currentVoters"] == [{"voterId": 1}]
    state["currentVoters"].append({"voterId": 2})
    path.write_text(json.dumps(state))
    with pytest.raises(OperatorError, match="voters 1, 2"):
        opened(tmp_path)


def test_a_copied_directory_of_another_id_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    write_meta_properties(tmp_path, store.meta._replace(directory_id=random_uuid()))
    with pytest.raises(OperatorError, match="kbroker runs alone"):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"data_version":2}', '{"data_version":1}'])
def test_a_damaged_election_state_is_refused(tmp_path: Path, text: str) -> None:
    store = opened(tmp_path)
    store.close()
    (store.folder / "quorum-state").write_text(text)
    with pytest.raises(CorruptFileError):
        opened(tmp_path)


# ---- a crash at every step


class Crashed(BaseException):
    """The process ends here."""


def crash_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """End the process before the n-th call that changes the disk; how many there were."""
    count = 0

    def patched(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step:
                raise Crashed
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("write", "pwrite", "fsync", "fdatasync", "rename", "unlink", "mkdir",
                 "ftruncate", "open"):  # fmt: skip
        patched(name)
    return lambda: count


def every_crash(
    start: Path, work: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> list[Path]:
    """The directories that `work` leaves when it ends at each of its steps."""
    left = []
    step = 0
    while True:
        step += 1
        directory = start.with_name(f"{start.name}-{step}")
        if start.exists():
            shutil.copytree(start, directory)
        with monkeypatch.context() as patch:
            steps = crash_at(step, patch)
            try:
                work(directory)
            except Crashed:
                left.append(directory)
                continue
            assert steps() < step
            return left


def test_a_crash_while_formatting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = every_crash(tmp_path / "d", lambda where: opened(where).close(), monkeypatch)
    assert len(left) > 20
    for directory in left:
        store = opened(directory)
        assert store.image.features == features.NEW_CLUSTER
        make_topic(store, "t")
        store.close()
        assert set(load_image(directory).topics) == {"t"}


def test_a_crash_while_a_topic_is_made_and_a_snapshot_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "d"
    store = opened(start)
    for number in range(3):
        make_topic(store, f"old{number}", 2)
    store.snapshot()
    make_topic(store, "old3", 2)
    store.close()
    old = {f"old{number}" for number in range(4)}

    def work(where: Path) -> None:
        store = opened(where)
        store.append(create_topic("new", b"n" * 16, 2, store.replica))
        store.snapshot()
        store.append(create_topic("newer", b"m" * 16, 2, store.replica))
        store.close()

    left = every_crash(start, work, monkeypatch)
    assert len(left) > 20
    reached = 0
    for directory in left:
        store = opened(directory)
        found = set(store.image.topics)
        assert found in (old, old | {"new"}, old | {"new", "newer"})
        assert len(found) >= reached  # what an earlier crash left, a later one has not lost
        reached = len(found)
        assert all(len(topic) == 2 for topic in store.image.topics.values())
        make_topic(store, "after")
        before = list(map(repr, store.image.records()))
        store.close()
        assert state_of(directory) == before
    assert reached == 6
