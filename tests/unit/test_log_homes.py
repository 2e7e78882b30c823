"""Where partitions live: what the metadata says, whatever lies in which directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.clock import FakeClock
from kbroker.config import BrokerConfig, ConfigError
from kbroker.errors import DiskError, OperatorError
from kbroker.metadata.builders import Replica, create_topic, delete_topic
from kbroker.metadata.directories import check_first, further, identify
from kbroker.metadata.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from kbroker.metadata.store import MetadataStore
from kbroker.storage.checkpoints import RECOVERY_POINTS, write_topic_id
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support.mounted import mounted_disk
from tests.support.ports import FakeLog

A, B = b"A" * 16, b"B" * 16
TOPIC, OTHER = b"t" * 16, b"o" * 16
UNASSIGNED = (1).to_bytes(16, "big")
FUTURE = f"t-0.{'0' * 32}-future"


def spec(home, partition=0, topic_id=TOPIC):
    return PartitionSpec("t", topic_id, partition, {}, 0, home)


@pytest.fixture
def two(tmp_path):
    made = [LogDirectory(tmp_path / name, place, an_id)
            for place, (name, an_id) in enumerate((("a", A), ("b", B)))]  # fmt: skip
    for one in made:
        one.path.mkdir()
    return made


def put(directory, name="t-0", topic_id=TOPIC):
    folder = directory.path / name
    folder.mkdir()
    if topic_id is not None:
        write_topic_id(folder, topic_id)
    (folder / "here").touch()
    return folder


def names(directory):
    """Folders, those set aside by their suffix."""
    found = [path.name for path in directory.path.iterdir() if path.is_dir()]
    return sorted(f"{one.partition('.')[0]}.{one.rpartition('-')[2]}" if "." in one else one
                  for one in found)  # fmt: skip


def start(directories, *specs):
    manager = LogManager(directories, FakeLog)
    manager.start(specs)
    return manager


def test_a_partition_is_opened_where_the_metadata_says(two):
    for one in two:
        put(one, f"t-{one.place}")
    manager = start(two, spec(A), spec(B, 1))
    assert [manager.homes["t", index] for index in (0, 1)] == two and not manager.offline
    assert names(two[0]) == ["t-0"] and names(two[1]) == ["t-1"]


def test_no_copy_is_taken_for_one_whose_directory_is_away(two):
    put(two[0])
    two[1].failure = "gone"
    manager = start(two, spec(B))
    assert "b is not here" in manager.offline["t", 0] and not len(manager)
    assert names(two[0]) == ["t-0"] and names(two[1]) == []  # neither taken nor touched
    again = start(two[:1], spec(B))
    assert "is not here" in again.offline["t", 0] and ("t", 0) in again.lost()


def test_the_only_one_with_another_id_is_taken_by_its_folders(two):
    """A copy of a disk, say, that was formatted anew: what fits by its topic id is served."""
    put(two[0])
    put(two[0], "t-1", OTHER)
    two[0].alone = True
    manager = start(two[:1], spec(B), spec(B, 1))
    assert set(manager.homes) == {("t", 0)} and set(manager.offline) == {("t", 1)}


def test_nothing_is_made_where_the_folder_may_be_in_one_that_is_away(two):
    two[1].failure = "gone"
    manager = start(two, spec(A), spec(UNASSIGNED, 1))
    assert set(manager.offline) == {("t", 0), ("t", 1)} and names(two[0]) == []


@pytest.mark.parametrize("said", [None, UNASSIGNED, bytes(16)])
def test_where_the_metadata_says_nothing_the_folder_is_found_by_its_topic(two, said):
    put(two[0], topic_id=OTHER)
    put(two[1])
    manager = start(two, spec(said))
    assert manager.homes["t", 0] is two[1] and manager.home_ids()["t", 0] == B
    assert names(two[0]) == ["t-0.stray"]


def test_new_ones_go_where_there_are_fewest_and_not_to_what_is_cordoned(two):
    manager = start(two, spec(A), spec(A, 1))
    assert [one.place for one in manager.place(4)] == [1, 1, 0, 1]
    planned = {}
    assert [manager.place(1, planned)[0].place for _ in range(4)] == [1, 1, 0, 1]
    two[1].cordoned = True
    assert [one.place for one in manager.place(2)] == [0, 0]
    two[1].cordoned, two[1].failure = False, "gone"
    assert [one.place for one in manager.place(2)] == [0, 0]


def test_a_folder_that_was_moved_by_hand_is_followed(two):
    put(two[1])
    manager = start(two, spec(A))
    assert manager.homes["t", 0] is two[1] and names(two[0]) == []


def test_a_cut_off_move_is_decided_by_the_metadata(two):
    """Before the record: the copy goes. After it: the copy is the partition."""
    put(two[0])
    put(two[1], FUTURE)
    manager = start(two, spec(A))
    assert names(two[0]) == ["t-0"] and names(two[1]) == ["t-0.delete"]
    assert manager.unfinished == {("t", 0): two[1]}
    manager.dead.remove(0)
    assert names(two[1]) == []
    put(two[1], FUTURE)
    manager = start(two, spec(B))
    assert manager.homes["t", 0] is two[1] and not manager.unfinished
    manager.dead.remove(0)
    assert names(two[0]) == [] and names(two[1]) == ["t-0"]


@pytest.mark.parametrize("topic_id", [OTHER, None])
def test_a_copy_of_another_topic_is_never_taken(two, topic_id):
    put(two[1], FUTURE, topic_id)
    manager = start(two, spec(B))
    assert names(two[1]) == ["t-0", "t-0.stray"] and not (two[1].path / "t-0" / "here").exists()
    assert manager.get("t", 0) is not None


def test_a_copy_of_an_earlier_topic_is_no_move_of_a_later_one(two):
    """It came back with its disk, say. That of a topic that was deleted is removed."""
    put(two[0])
    put(two[1], FUTURE, OTHER)
    manager = start(two, spec(A))
    assert not manager.unfinished and names(two[1]) == ["t-0.stray"]
    put(two[0], "t-1")
    put(two[1], FUTURE.replace("t-0", "t-1"), OTHER)
    manager = LogManager(two, FakeLog)
    manager.start([spec(A), spec(A, 1)], {OTHER: "t"})
    manager.dead.remove(0)
    assert not manager.unfinished and names(two[1]) == ["t-0.stray"]


def goes_to(folder, size):
    (folder / f"{0:020d}.log").write_bytes(bytes(size))


@pytest.mark.parametrize(("there", "copied"), [(10, 20), (20, 10), (20, 20)])
def test_of_two_copies_in_the_home_the_one_that_goes_farther_is_taken(two, there, copied):
    goes_to(put(two[1]), there)
    goes_to(put(two[1], FUTURE), copied)
    start(two, spec(B))
    assert names(two[1]) == ["t-0", "t-0.stray"]
    (kept,) = two[1].path.glob("t-0.*-stray")
    sizes = [next(folder.glob("*.log")).stat().st_size for folder in (two[1].path / "t-0", kept)]
    assert sizes == [max(there, copied), min(there, copied)]


def test_a_log_directory_inside_is_no_partition(two):
    (put(two[0], "disk-2", None) / "meta.properties").touch()
    start(two[:1])
    assert names(two[0]) == ["disk-2"]


def test_of_two_that_were_on_their_way_the_same(two):
    goes_to(put(two[1], FUTURE), 10)
    goes_to(put(two[1], FUTURE.replace("0" * 32, "1" * 32)), 20)
    start(two, spec(B))
    assert names(two[1]) == ["t-0", "t-0.stray"]
    assert next((two[1].path / "t-0").glob("*.log")).stat().st_size == 20


@pytest.mark.parametrize(("left", "home"), [(20, 10), (20, None)])
def test_what_goes_farther_than_the_home_is_kept(two, left, home, caplog):
    """An older first directory came back, say, whose metadata know nothing of the move."""
    goes_to(put(two[1]), left)
    if home is not None:
        goes_to(put(two[0]), home)
    else:
        put(two[0], topic_id=None)
    start(two, spec(A))
    assert names(two[0]) == ["t-0"] and names(two[1]) == ["t-0.stray"]
    assert "does not go as far" in caplog.text


def test_a_copy_stays_while_what_it_is_of_is_away(two):
    put(two[1], FUTURE)
    third = LogDirectory(two[0].path.parent / "c", 2, b"C" * 16)
    third.failure = "gone"
    start([*two, third], spec(b"C" * 16))
    assert names(two[1]) == ["t-0.future"]


def test_what_a_new_topic_finds_in_its_place_is_put_aside(two):
    manager = start(two)
    put(two[1], topic_id=OTHER)  # its directory came back, say, without a start
    manager.create([spec(B)])
    assert names(two[1]) == ["t-0", "t-0.stray"]


def test_a_directory_that_fails_takes_its_own(two):
    manager = start(two, spec(A), spec(B, 1))
    assert [log.opening.spec.partition for log in manager.fail(two[1], "EIO")] == [1]
    assert set(manager.offline) == {("t", 1)} == manager.lost() and manager.failure is None
    assert manager.ids().online == [A]
    manager.checkpoint_high_watermarks()
    assert not manager.stop(1) and two[0].stopped_clean and not two[1].stopped_clean
    assert manager.fail(two[0], "EIO") == [] and manager.failure == "EIO"


@pytest.fixture
def disk():
    with mounted_disk() as place:
        yield place


def test_what_may_not_be_looked_into_is_passed_over(disk):
    directory = LogDirectory(disk, 0, A)
    put(directory)
    manager = start([directory], spec(A))
    assert manager.homes["t", 0] is directory and not manager.offline


def test_nor_does_it_keep_from_a_format(disk):
    store = MetadataStore(disk, FakeClock())
    store.open()
    store.close()


class TestIdentities:
    @pytest.fixture
    def store(self, two):
        made = MetadataStore(two[0].path, FakeClock())
        made.open()
        two[0].id = two[1].id = None
        yield made
        made.close()
        for one in two:
            one.lock.release()

    def identify(self, two, store):
        identify(two, store.meta, store.image)

    def test_an_empty_one_is_formatted_and_found_again(self, two, store):
        two[1].path.rmdir()
        self.identify(two, store)
        meta = read_meta_properties(two[1].path)
        assert two[1].fresh and meta == store.meta._replace(directory_id=two[1].id)
        assert further(two[0].path) == [two[1].path]
        again = [LogDirectory(one.path, one.place) for one in two]
        two[1].lock.release()
        self.identify(again, store)
        assert [one.id for one in again] == [one.id for one in two] and not again[1].fresh
        again[1].lock.release()

    def test_none_is_formatted_while_an_id_is_missing(self, two, store):
        replica = Replica(store.meta.node_id, B)
        store.append(create_topic("t", TOPIC, 1, replica))
        self.identify(two, store)
        assert "is its disk mounted" in (two[1].failure or "")
        assert read_meta_properties(two[1].path) is None and not any(two[1].path.iterdir())

    def test_nor_while_the_last_start_knew_one_there(self, two, store):
        self.identify(two, store)
        two[1].lock.release()
        for path in two[1].path.iterdir():
            path.unlink()
        again = [LogDirectory(one.path, one.place) for one in two]
        self.identify(again, store)
        assert "is its disk mounted" in (again[1].failure or "")

    def test_one_that_was_taken_out_stands_in_no_other_s_way(self, two, store):
        """Unless partitions still live in it."""
        self.identify(two, store)
        third = LogDirectory(two[0].path.parent / "c", 1)
        identify([two[0], third], store.meta, store.image)
        assert third.fresh and further(two[0].path) == [third.path]
        third.lock.release()
        store.append(create_topic("t", TOPIC, 1, Replica(store.meta.node_id, two[1].id)))
        fourth = LogDirectory(two[0].path.parent / "d", 1)
        identify([two[0], fourth], store.meta, store.image)
        assert "is its disk mounted" in (fourth.failure or "")

    def test_back_to_one_the_list_goes_with_the_last_partition(self, two, store):
        self.identify(two, store)
        two[1].lock.release()
        topic = create_topic("t", TOPIC, 1, Replica(store.meta.node_id, two[1].id))
        told = []
        for step in range(3):
            if step == 0:
                store.append(topic)
            elif step == 1:
                store.append(delete_topic(store.image.topics["t"]))
            only = LogDirectory(two[0].path)
            identify([only], store.meta, store.image)
            told.append((further(two[0].path), only.alone))
        assert told == [([two[1].path], False), ([], False), ([], True)]

    def test_one_that_cannot_be_read_is_offline(self, two, store):
        (two[1].path / "meta.properties").write_text("version=7\n")
        self.identify(two, store)
        assert "version 7" in (two[1].failure or "")

    def test_those_of_others_are_refused(self, two, store):
        for meta in (
            MetaProperties("other", store.meta.node_id, B),
            store.meta._replace(node_id=9, directory_id=B),
            store.meta,  # a copy of the first
        ):
            write_meta_properties(two[1].path, meta)
            with pytest.raises(OperatorError, match="take it out of"):
                self.identify(two, store)
            two[1].lock.release()

    def test_one_with_partitions_and_without_an_identity_is_offline(self, two, store):
        put(two[1])
        self.identify(two, store)
        assert "but holds t-0" in (two[1].failure or "")


def test_a_further_directory_is_no_first_one(two):
    meta = MetaProperties("cluster", 1, B)
    write_meta_properties(two[1].path, meta)
    with pytest.raises(OperatorError, match="is the disk of"):
        check_first(two)
    with pytest.raises(OperatorError, match="has no __cluster_metadata-0"):
        check_first([two[1], two[0]])
    check_first([two[1]])  # a first start that got no farther
    (two[1].path / RECOVERY_POINTS).touch()
    with pytest.raises(OperatorError, match="has no __cluster_metadata-0"):
        check_first([two[1]])
    (two[1].path / RECOVERY_POINTS).unlink()
    (two[1].path / "bootstrap.checkpoint").touch()  # as kafka-storage format leaves it
    check_first([two[1]])
    put(two[1])
    with pytest.raises(OperatorError, match="has no __cluster_metadata-0"):
        check_first([two[1]])


def test_what_one_denies_at_the_start_is_its_own(two, monkeypatch):
    def denied(directory):
        def refuse(*_):
            raise DiskError(directory.path, "I/O error")

        monkeypatch.setattr(directory, "take_mark", refuse)

    denied(two[1])
    put(two[0])
    manager = start(two, spec(A), spec(B, 1))
    assert set(manager.offline) == {("t", 1)} and len(manager) == 1
    denied(two[0])
    with pytest.raises(DiskError):
        start(two, spec(A))


def test_a_partition_that_arrives_during_a_checkpoint_is_in_it(two, monkeypatch):
    manager = start(two, spec(A))
    manager.incoming["t", 0] = (two[1], {RECOVERY_POINTS: 7})
    real = manager.of

    def arrives(directory):
        found = real(directory)
        if ("t", 0) in manager.incoming:
            manager.moved(("t", 0), two[1], two[0].path / "left", 0)
        return found

    monkeypatch.setattr(manager, "of", arrives)
    manager.checkpoint_recovery_points(two[1])
    assert two[1].offsets(RECOVERY_POINTS) == {("t", 0): 7}


def test_the_directory_of_the_metadata_log(tmp_path: Path) -> None:
    """One of log.dirs, by whatever name; where there is one, any other is passed over."""
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    told = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b", "metadata.log.dir": f"{tmp_path}/link/"}
    config = BrokerConfig(told)
    assert config.log_dirs == [f"{tmp_path}/b", f"{tmp_path}/a"] and not config.ignored
    config = BrokerConfig({"log.dirs": "/a", "metadata.log.dir": "/c"})
    assert config.log_dirs == ["/a"] and config.ignored == ["metadata.log.dir"]


def test_a_stored_cordoned_directory_refuses_no_other_change() -> None:
    """It may be older than log.dirs; a new one has to be one of them."""
    config = BrokerConfig({"log.dirs": "/a,/b"})
    config.set_dynamic({"cordoned.log.dirs": "/old"}, {})
    config.preview({"cordoned.log.dirs": "/old", "log.cleaner.threads": "2"}, {}).check_values()
    with pytest.raises(ConfigError, match="must be entries of"):
        config.preview({"cordoned.log.dirs": "/new"}, {}).check_values()
    config.set_dynamic({}, {})
    with pytest.raises(ConfigError, match="must be entries of"):
        config.preview({"cordoned.log.dirs": "/old"}, {}).check_values()
