"""Backups of brokers with several log directories: all of them, or the reason why not."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.care import backup_live, folders
from kbroker.care.backup import create
from kbroker.care.backup_live import LiveDirectories
from kbroker.care.manifest import Extent, read_manifest
from kbroker.care.restore import restore, verify
from kbroker.cli import root
from kbroker.client import Admin, NewTopic, Producer
from kbroker.errors import CorruptFileError, KbrokerError, OperatorError
from kbroker.metadata.directories import further
from kbroker.metadata.image import Image
from tests.care.traffic import BROKER, KEPT, Traffic, judge, make_topics, stored
from tests.support import wire
from tests.support.fixtures import BrokerFactory
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.wire.test_moves import move

Run = Callable[..., tuple[int, str]]
TOPIC, PARTITIONS = "t", 3
FSYNC = {"kbroker.durability": "fsync"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        status = root.run(list(map(str, words)))
        return status, "".join(capsys.readouterr())

    return call


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return tmp_path / "second"


@pytest.fixture
def broker(start_kbroker: BrokerFactory, second: Path) -> BrokerProcess:
    """A broker on two directories with a topic that has partitions in both."""
    made = start_kbroker(FSYNC, more_dirs=(second,))
    wire.create_topic(made.port, TOPIC, PARTITIONS)
    assert names(made.data_dir) | names(second) == {f"{TOPIC}-{n}" for n in range(PARTITIONS)}
    assert names(second)
    return made


def names(directory: Path, topic: str = TOPIC) -> set[str]:
    """The folders of a topic's partitions."""
    return {path.name for path in directory.glob(f"{topic}-[0-9]*") if path.name[-1].isdigit()}


def fill(broker: BrokerProcess, count: int = 30) -> list[bytes]:
    """Acknowledged records in every partition."""
    values = [b"%d" % number for number in range(count)]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        sent = [
            producer.send(TOPIC, value, partition=number % PARTITIONS)
            for number, value in enumerate(values)
        ]
        for one in sent:
            one.result(60)
    return sorted(values)


def values(broker: BrokerProcess) -> list[bytes]:
    return sorted(value for _, value in stored(broker.bootstrap, TOPIC).values())


@pytest.fixture
def restart(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers on directories that were restored."""
    made: list[BrokerProcess] = []

    def start(*directories: Path) -> BrokerProcess:
        first, *more = directories
        home = tmp_path / f"again-{len(made)}"
        made.append(KbrokerProcess(home, BROKER, data_dir=first, more_dirs=tuple(more)))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.kill()


def test_live_backup_has_every_directory(
    start_kbroker: BrokerFactory, restart: Callable[..., BrokerProcess], tmp_path: Path,
    second: Path, run: Run,
) -> None:  # fmt: skip
    broker = start_kbroker(BROKER, more_dirs=(second,))
    make_topics(broker.bootstrap)
    for topic in (KEPT, "__consumer_offsets"):
        assert topic != KEPT or (names(broker.data_dir, topic) and names(second, topic))
    one, two = tmp_path / "one", tmp_path / "two"
    back = [tmp_path / "back-1", tmp_path / "back-2"]
    with Traffic(broker.bootstrap) as traffic:
        traffic.wait_for_more(600, commits=50)
        status, output = run("backup", "create", one, "-D", broker.data_dir)
        assert status == 0 and f"{broker.data_dir}, {second}, while" in output, output
        traffic.wait_for_more(300, commits=20)
        told = traffic.told()
        status, output = run("backup", "create", two, "-D", second, "-D", broker.data_dir,
                             "--since", one, "-o", "json")  # fmt: skip
        assert status == 0, output
        traffic.wait_for_more(100)
    made = json.loads(output)
    assert (made["live"], made["further_dirs"], made["incomplete"]) == (True, [str(second)], [])
    reused = {
        file.path.partition("/")[0] for file in read_manifest(two).files
        if (one / file.path).exists() and (one / file.path).samefile(two / file.path)
    }  # fmt: skip
    assert reused == {"data", "data.2"}
    broker.kill()
    for folder in (one, broker.data_dir, second):
        shutil.rmtree(folder)
    status, output = run("backup", "verify", two)
    assert status == 0 and "all good" in output, output
    assert run("backup", "restore", two, *back)[0] == 0
    assert further(back[0]) == [back[1]]
    again = restart(*back)
    judge(again.bootstrap, told)
    assert "moved by hand" not in again.log_text() and "lost their folder" not in again.log_text()
    again.stop()
    status, output = run("log", "verify", "-q", "-D", back[0])
    assert status == 0, output


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_backup_at_rest_has_every_directory(
    broker: BrokerProcess, restart: Callable[..., BrokerProcess], tmp_path: Path, second: Path,
    clean: bool,
) -> None:  # fmt: skip
    written = fill(broker)
    if clean:
        assert broker.stop() == 0
    else:
        broker.kill()
        for log in (*broker.data_dir.glob("t-*/*.log"), *second.glob("t-*/*.log")):
            log.write_bytes(b"")  # a power cut: the write-ahead log has the records
    made = create(broker.data_dir, tmp_path / "b")
    assert not made.manifest.live and not made.manifest.incomplete
    assert [one.source for one in made.manifest.directories] == [str(broker.data_dir), str(second)]
    assert list(verify(tmp_path / "b")) == []
    back = [tmp_path / "deep" / "back-1", tmp_path / "back-2"]
    restore(tmp_path / "b", back)
    for place, source in zip(back, (broker.data_dir, second), strict=True):
        assert names(place) == names(source)
        assert (place / "meta.properties").read_text() == (source / "meta.properties").read_text()
        assert (place / ".kafka_cleanshutdown").exists() is clean
        assert bool(list(place.glob(".kbroker-journal.*"))) is not clean
    assert values(restart(*back)) == written


def test_restore_needs_a_directory_for_each(
    broker: BrokerProcess, tmp_path: Path, run: Run
) -> None:
    broker.stop()
    create(broker.data_dir, tmp_path / "b")
    one, two, three = (tmp_path / f"back-{number}" for number in range(3))
    for targets, reason in (
        ([one], f"has 2 log directories, and 1 are named: name one for each of {broker.data_dir}"),
        ([one, two, three], "has 2 log directories, and 3 are named"),
        ([one, one], "is named twice, or lies in another"),
        ([one, one / "inside"], "is named twice, or lies in another"),
        ([one, broker.data_dir], "is not empty"),
    ):
        status, output = run("backup", "restore", tmp_path / "b", *targets)
        assert status == 1 and reason in output, output
        assert not one.exists()
    damaged = next(path for path in (tmp_path / "b" / "data.2").glob("t-*/*") if path.is_file())
    damaged.write_bytes(b"?")
    two.mkdir()
    assert run("backup", "restore", tmp_path / "b", one, two)[0] == 1
    assert not one.exists() and list(two.iterdir()) == []
    status, output = run("backup", "verify", tmp_path / "b")
    assert status == 1 and f"{damaged}: " in output


def test_directory_that_is_away_is_named(
    broker: BrokerProcess, restart: Callable[..., BrokerProcess], tmp_path: Path, second: Path,
    run: Run,
) -> None:  # fmt: skip
    written = fill(broker)
    lost = sorted(names(second))
    broker.stop()
    second.rename(tmp_path / "away")
    status, output = run("backup", "create", tmp_path / "rest", "-D", broker.data_dir)
    assert status == 1, output
    reason = f"is not whole in the backup: its log directory {second} is left out"
    assert all(f"{name} {reason}" in output for name in lost), output
    broker.start()
    status, output = run("backup", "create", tmp_path / "live", "-D", broker.data_dir)
    assert status == 1 and all(f"{name} is not whole" in output for name in lost), output
    (tmp_path / "away").rename(second)  # the broker has not seen it: its WAL may hold records
    status, output = run("backup", "create", tmp_path / "late", "-D", broker.data_dir)
    assert status == 1 and "the broker does not serve it" in output, output
    broker.stop()
    for name in ("rest", "live", "late"):
        backup = tmp_path / name
        status, output = run("backup", "verify", backup)
        assert status == 1 and "all good" not in output, output
        assert [line.partition(" ")[0] for line in output.splitlines() if "whole" in line] == lost
        assert f"{len(lost)} faults" in output
        assert {one.partition for one in read_manifest(backup).partitions}.isdisjoint(
            int(name.rpartition("-")[2]) for name in lost
        )
    status, output = run("backup", "restore", tmp_path / "live", tmp_path / "back")
    assert status == 0 and f"{lost[0]} is not whole" in output
    again = restart(tmp_path / "back")
    with Admin(bootstrap_servers=again.bootstrap) as admin:
        (topic,) = [one for one in admin.list_topics() if one.name == TOPIC]
        assert topic is not None
    assert not names(tmp_path / "back") & set(lost)
    create(broker.data_dir, tmp_path / "whole")  # at rest, it is taken again
    restore(tmp_path / "whole", [tmp_path / "b1", tmp_path / "b2"])
    assert values(restart(tmp_path / "b1", tmp_path / "b2")) == written


def test_directory_that_nobody_names_is_missed(
    broker: BrokerProcess, tmp_path: Path, second: Path
) -> None:
    """Apache Kafka keeps no list of log directories: the metadata has the id of one alone."""
    broker.stop()
    (broker.data_dir / ".kbroker-log-dirs.json").unlink()
    create(broker.data_dir, tmp_path / "b")
    lines = list(verify(tmp_path / "b"))
    assert [line.partition(" ")[0] for line in lines] == sorted(names(second))
    assert all(line.endswith(" is not there") for line in lines)
    create(broker.data_dir, tmp_path / "c", further=[second])
    assert list(verify(tmp_path / "c")) == []
    (tmp_path / "c" / "data.3").mkdir()
    (tmp_path / "c" / "data.3" / "file").write_text("")
    assert [line.rpartition(": ")[2] for line in verify(tmp_path / "c")] == [
        "is not in the manifest"
    ]  # fmt: skip


def test_partition_without_folder_is_named(
    broker: BrokerProcess, tmp_path: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_live, "_CREATION_S", 0.1)
    fill(broker)
    name = min(names(second))
    (second / name).rename(tmp_path / name)
    expected = [f"{name} is not whole in the backup: it has no folder in {second}"]
    create(broker.data_dir, tmp_path / "live")
    assert list(verify(tmp_path / "live")) == expected
    broker.kill()
    create(broker.data_dir, tmp_path / "rest")
    assert list(verify(tmp_path / "rest")) == expected


def test_partition_created_meanwhile_is_empty(
    broker: BrokerProcess, restart: Callable[..., BrokerProcess], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    metadata: Callable[[LiveDirectories], Image] = LiveDirectories._metadata

    def disturbed(live: LiveDirectories) -> Image:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            if "new" not in {topic.name for topic in admin.list_topics()}:
                admin.create_topics([NewTopic("new", partitions=2)])
                with Producer(bootstrap_servers=broker.bootstrap) as producer:
                    producer.send("new", b"later", partition=1).result(60)
        return metadata(live)

    monkeypatch.setattr(LiveDirectories, "_metadata", disturbed)
    made = create(broker.data_dir, tmp_path / "b")
    assert [one for one in made.manifest.partitions if one.topic == "new"] == [
        Extent("new", 0, 0, 0), Extent("new", 1, 0, 0)
    ]  # fmt: skip
    assert list(verify(tmp_path / "b")) == []
    broker.kill()
    back = [tmp_path / "back-1", tmp_path / "back-2"]
    restore(tmp_path / "b", back)
    again = restart(*back)
    with Producer(bootstrap_servers=again.bootstrap) as producer:
        assert producer.send("new", b"first", partition=1).result(60).offset == 0


@pytest.mark.parametrize("at", ["_partitions", "_metadata"])
def test_partition_moved_meanwhile_is_whole(  # noqa: PLR0917
    broker: BrokerProcess, restart: Callable[..., BrokerProcess], tmp_path: Path, second: Path,
    monkeypatch: pytest.MonkeyPatch, at: str,
) -> None:  # fmt: skip
    """It moves after the listing of folders, or after the partitions were taken."""
    written = fill(broker)
    index = int(min(names(second)).rpartition("-")[2])
    original = getattr(LiveDirectories, at)
    calls = []

    def disturbed(live: LiveDirectories, *arguments: object) -> object:
        calls.append(at)
        if len(calls) == 1:
            move(broker, TOPIC, index, broker.data_dir)
        return original(live, *arguments)

    monkeypatch.setattr(LiveDirectories, at, disturbed)
    made = create(broker.data_dir, tmp_path / "b")
    assert len(calls) == 2 and not made.manifest.incomplete
    assert f"{TOPIC}-{index}" in names(tmp_path / "b" / "data")
    assert f"{TOPIC}-{index}" not in names(tmp_path / "b" / "data.2")
    broker.kill()
    back = [tmp_path / "back-1", tmp_path / "back-2"]
    restore(tmp_path / "b", back)
    again = restart(*back)
    assert values(again) == written
    assert "moved by hand" not in again.log_text()


def test_partition_missed_by_a_listing_is_whole(
    broker: BrokerProcess, tmp_path: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves to a directory that has been listed from one that is yet to be."""
    written = fill(broker)
    index = int(min(names(second)).rpartition("-")[2])
    listed: list[Path] = []

    def partitions_of(source: Path) -> dict[str, tuple[str, int]]:
        listed.append(source)
        if len(listed) == 4:  # the second directory, in the first of two listings
            move(broker, TOPIC, index, broker.data_dir)
        return folders.partitions_of(source)

    monkeypatch.setattr(backup_live, "partitions_of", partitions_of)
    made = create(broker.data_dir, tmp_path / "b")
    assert listed == [broker.data_dir, second] * 3  # one look
    ends = {one.partition: one.end for one in made.manifest.partitions if one.topic == TOPIC}
    assert ends == dict.fromkeys(range(PARTITIONS), len(written) // PARTITIONS)


def test_partition_with_two_folders_is_the_one_of_the_metadata(
    broker: BrokerProcess, restart: Callable[..., BrokerProcess], tmp_path: Path, second: Path
) -> None:
    """As in the middle of a move, in which both folders have the partition's name."""
    stale = tmp_path / "stale"
    name = min(names(second))
    shutil.copytree(second / name, stale)
    written = fill(broker)
    stale.rename(broker.data_dir / name)
    created = create(broker.data_dir, tmp_path / "live")
    ends = {one.partition: one.end for one in created.manifest.partitions if one.topic == TOPIC}
    assert ends == dict.fromkeys(range(PARTITIONS), len(written) // PARTITIONS)
    assert name not in names(tmp_path / "live" / "data")
    broker.kill()
    created = create(broker.data_dir, tmp_path / "rest")
    assert {one.end for one in created.manifest.partitions if one.topic == TOPIC} == {
        len(written) // PARTITIONS
    }  # fmt: skip
    for backup in ("live", "rest"):
        back = [tmp_path / f"{backup}-1", tmp_path / f"{backup}-2"]
        restore(tmp_path / backup, back)
        assert values(restart(*back)) == written


def test_copy_of_a_move_cut_off_is_taken_at_rest(broker: BrokerProcess, tmp_path: Path) -> None:
    """The metadata may name it already."""
    broker.stop()
    copy = f"{TOPIC}-0.{'0' * 32}-future"
    shutil.copytree(broker.data_dir / f"{TOPIC}-0", broker.data_dir / copy)
    create(broker.data_dir, tmp_path / "b")
    restore(tmp_path / "b", [tmp_path / "back-1", tmp_path / "back-2"])
    there = {path.name for path in (broker.data_dir / copy).iterdir()}
    assert there and {path.name for path in (tmp_path / "back-1" / copy).iterdir()} == there


def test_unreadable_partition_is_named_and_others_are_taken(
    broker: BrokerProcess, tmp_path: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fill(broker)
    bad = min(names(second))
    end_of = backup_live.end_of

    def failing(log: Path) -> tuple[int, int]:
        if log.parent.name == bad:
            raise OSError(5, "Input/output error", str(log))
        return end_of(log)

    monkeypatch.setattr(backup_live, "end_of", failing)
    made = create(broker.data_dir, tmp_path / "b")
    (fault,) = verify(tmp_path / "b")
    assert fault.startswith(f"{bad} is not whole in the backup: it cannot be read: ")
    taken = sum(one.end for one in made.manifest.partitions if one.topic == TOPIC)
    assert taken == len(written) * (PARTITIONS - 1) // PARTITIONS
    assert bad not in names(tmp_path / "b" / "data.2")
    monkeypatch.setattr(backup_live, "_TRIES", 1)

    def corrupt(log: Path) -> tuple[int, int]:
        if log.parent.name == bad:
            raise CorruptFileError(log, "damage")
        return end_of(log)

    monkeypatch.setattr(backup_live, "end_of", corrupt)  # of a partition that the broker serves
    with pytest.raises(OperatorError, match=f"{bad} cannot be taken"):
        create(broker.data_dir, tmp_path / "c")
    assert not list(tmp_path.glob("c*"))


def test_directories_that_do_not_belong_are_refused(
    broker: BrokerProcess, start_kbroker: BrokerFactory, tmp_path: Path, second: Path, run: Run
) -> None:
    other = start_kbroker({})
    for one in (broker, other):
        one.stop()
    twin = Path(shutil.copytree(second, tmp_path / "twin"))
    for more, reason in ((other.data_dir, "of node 1 of cluster"), (twin, "same directory.id")):
        with pytest.raises(OperatorError, match=reason):
            create(broker.data_dir, tmp_path / "b", further=[more])
    assert not (tmp_path / "b").exists()
    with pytest.raises(OperatorError, match="lies in the data directory itself"):
        create(broker.data_dir, second / "b")
    status, output = run("backup", "create", tmp_path / "b", "-D", second)
    assert status == 1 and "it is a further log directory of cluster" in output
    other_kind = second / min(names(second)) / "link"
    other_kind.symlink_to(tmp_path)
    with pytest.raises(KbrokerError, match="is a symbolic link"):
        create(broker.data_dir, tmp_path / "b")


def test_backup_of_format_1_is_read(
    start_kbroker: BrokerFactory, restart: Callable[..., BrokerProcess], tmp_path: Path, run: Run
) -> None:
    """What kbroker wrote before backups had several directories."""
    broker = start_kbroker(FSYNC)
    wire.create_topic(broker.port, TOPIC, PARTITIONS)
    written = fill(broker)
    broker.stop()
    create(broker.data_dir, tmp_path / "b")
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    body = manifest["backup"]
    files = [[path.removeprefix("data/"), *rest] for path, *rest in body["files"]]
    old = {
        "kbroker": body["kbroker"], "began_ms": 1, "ended_ms": 2, "source": "/old", "live": False,
        "cluster_id": body["cluster_id"], "node_id": body["node_id"],
        "partitions": body["partitions"], "files": files,
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(old, separators=(",", ":")).encode()).hexdigest()
    whole = {"format": 1, "sha256": digest, "backup": old}
    (tmp_path / "b" / "manifest.json").write_text(json.dumps(whole))
    assert read_manifest(tmp_path / "b").source == "/old"
    status, output = run("backup", "verify", tmp_path / "b")
    assert status == 0 and "all good" in output, output
    later = create(broker.data_dir, tmp_path / "c", since=tmp_path / "b")
    assert set(later.bytes_by_way) == {"reused"}
    assert run("backup", "restore", tmp_path / "b", tmp_path / "back")[0] == 0
    assert values(restart(tmp_path / "back")) == written
