"""kill -9 while topics are created or deleted: the next start completes it, without a warning."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.cli import root
from kbroker.cli.scrape import scrape
from kbroker.metadata.deleted_topics import DELETED_TOPICS
from kbroker.metadata.loader import load_image
from kbroker.runfile import running
from kbroker.storage.checkpoints import read_topic_id, write_topic_id
from kbroker.storage.folders import PARTITION_FOLDER, SET_ASIDE
from tests.faults.scenes import injected
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

TOPICS, PARTITIONS = 100, 4
FOLDERS = TOPICS * PARTITIONS
SLOW_S = 120
LONG = pytest.mark.long
METADATA_FOLDER = "__cluster_metadata-0"


@pytest.fixture
def broker(start_kbroker: Callable[..., BrokerProcess], tmp_path: Path) -> Iterator[KbrokerProcess]:
    """A broker with two log directories."""
    made = start_kbroker(more_dirs=(tmp_path / "second",))
    assert isinstance(made, KbrokerProcess)
    yield made


def names_of(number: int) -> list[str]:
    return [f"r{number}-{index}" for index in range(TOPICS)]


def folders(broker: KbrokerProcess) -> list[Path]:
    """Folders of partitions, those set aside too."""
    return [
        path
        for place in (broker.data_dir, *broker.more_dirs)
        for path in place.iterdir()
        if path.name != METADATA_FOLDER and path.is_dir()
    ]


def named(broker: KbrokerProcess) -> set[str]:
    """Folders that have a partition's name."""
    return {path.name for path in folders(broker) if PARTITION_FOLDER.match(path.name)}


def aside(broker: KbrokerProcess, kind: str) -> list[str]:
    found = (SET_ASIDE.match(path.name) for path in folders(broker))
    return [one["folder"] for one in found if one is not None and one["suffix"] == f"-{kind}"]


def send_creation(connection: wire.WireConnection, names: list[str]) -> int:
    asked = [{"name": name, "num_partitions": PARTITIONS, "replication_factor": 1}
             for name in names]  # fmt: skip
    return connection.send(wire.CREATE_TOPICS, 7, {"topics": asked, "timeout": 60_000})


def send_deletion(connection: wire.WireConnection, names: list[str]) -> int:
    asked = {"topics": [{"name": name} for name in names], "timeout": 60_000}
    return connection.send(wire.DELETE_TOPICS, 6, asked)


def create(broker: KbrokerProcess, names: list[str]) -> None:
    with wire.WireConnection(broker.port, timeout_s=SLOW_S) as connection:
        connection.receive(wire.CREATE_TOPICS, 7, send_creation(connection, names))
        for name in names:
            wire.wait_for_topic(broker.port, name, PARTITIONS, SLOW_S)


def metadata_bytes(broker: KbrokerProcess) -> int:
    return sum(path.stat().st_size for path in broker.data_dir.glob(f"{METADATA_FOLDER}/*.log"))


def wait_for_growth(broker: KbrokerProcess, size: int) -> None:
    """Wait until the metadata log has more bytes."""
    wait_for("a record", lambda: metadata_bytes(broker) > size, SLOW_S, 0)


def wait_for_folders(broker: KbrokerProcess, least: int, most: int) -> None:
    """Wait until so many folders have the name of a partition."""
    wait_for("folders", lambda: least <= len(named(broker)) <= most, SLOW_S, 0)


def live_folders(broker: KbrokerProcess) -> dict[str, bytes]:
    """Folders that a stopped broker's metadata has, with their topic ids."""
    topics = load_image(broker.data_dir).topics.values()
    return {f"{topic.name}-{index}": topic.id for topic in topics for index in topic.partitions}


def start_calmly(broker: KbrokerProcess) -> None:
    """Start a broker that was killed, and check that it complains of nothing."""
    size = len(broker.log_text())
    broker.start()
    complaints = [line for line in broker.log_text()[size:].splitlines()
                  if '"kbroker.storage"' in line and '"level": "info"' not in line]  # fmt: skip
    assert not complaints, complaints[:5]


def check_folders(broker: KbrokerProcess, live: dict[str, bytes]) -> None:
    """The partitions of the metadata have their folders, and nothing else has."""
    assert aside(broker, "stray") == []
    assert named(broker) == live.keys()
    ids = {path.name: read_topic_id(path) for path in folders(broker) if path.name in live}
    assert ids == live


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("seed", "rounds"), [(1, 2), pytest.param(2, 20, marks=LONG)])
def test_killed_deletions_leave_no_folder(
    broker: KbrokerProcess, seed: int, rounds: int
) -> None:
    moments = random.Random(seed)
    cut = 0
    for number in range(rounds):
        names = names_of(number)
        create(broker, names)
        size = metadata_bytes(broker)
        with wire.WireConnection(broker.port) as connection:
            send_deletion(connection, names)
            wait_for_growth(broker, size)
            if number % 2:  # else before the first folder is renamed
                wait_for_folders(broker, 0, moments.randint(1, FOLDERS))
            broker.kill()
        live = live_folders(broker)
        cut += bool(named(broker).difference(live))
        start_calmly(broker)
        check_folders(broker, live)
    assert cut, "no kill came before the last folder was renamed"
    wait_for("the deleted folders are removed", lambda: not aside(broker, "delete"), SLOW_S)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("seed", "rounds"), [(1, 2), pytest.param(2, 20, marks=LONG)])
def test_killed_creations_are_completed(broker: KbrokerProcess, seed: int, rounds: int) -> None:
    """Each round has the names of the one before, which is deleted in between or was cut off."""
    moments = random.Random(seed)
    names = names_of(0)
    missing = 0
    for _ in range(rounds):
        with wire.WireConnection(broker.port) as connection:
            send_creation(connection, names)
            wait_for_folders(broker, moments.randrange(FOLDERS), FOLDERS)
            broker.kill()
        live = live_folders(broker)
        missing += len(live) - len(named(broker))
        start_calmly(broker)
        check_folders(broker, live)
        for name in names if live else ():
            wire.wait_for_topic(broker.port, name, PARTITIONS, SLOW_S)
        with wire.WireConnection(broker.port, timeout_s=SLOW_S) as connection:
            connection.receive(wire.DELETE_TOPICS, 6, send_deletion(connection, names))
        wait_for("all are renamed", lambda: not named(broker), SLOW_S)
    assert missing, "no kill came before the last folder was made"


@pytest.mark.timeout(600)
def test_a_snapshot_forgets_no_deletion(
    start_kbroker: Callable[..., BrokerProcess],
) -> None:
    """The disk is slow with the names of folders; the metadata log's snapshot comes before."""
    broker = start_kbroker({"metadata.log.max.snapshot.interval.ms": "1"})
    assert isinstance(broker, KbrokerProcess)
    names = names_of(0)
    create(broker, names)
    file = broker.data_dir / DELETED_TOPICS
    with wire.WireConnection(broker.port) as connection, \
            injected(broker, "rename", "delay_enter=1500ms"):  # fmt: skip
        send_deletion(connection, names)
        wait_for("a snapshot was taken", file.exists, SLOW_S)
        log = broker.data_dir / METADATA_FOLDER
        first = min(path.name for path in log.glob("*.log"))
        wait_for("the log before it is gone",
                 lambda: min(path.name for path in log.glob("*.log")) > first, SLOW_S)  # fmt: skip
        broker.kill()
    assert not load_image(broker.data_dir).deleted_topics, "the log still has the deletion"
    assert named(broker), "all folders were renamed before the kill"
    start_calmly(broker)
    check_folders(broker, {})


@pytest.mark.timeout(600)
def test_a_directory_that_was_away_keeps_no_deleted_folder(
    start_kbroker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """Its topics were deleted meanwhile, and a snapshot was taken."""
    second, away = tmp_path / "second", tmp_path / "away"
    settings = {"metadata.log.max.snapshot.interval.ms": "1"}
    broker = start_kbroker(settings, more_dirs=(second,))
    assert isinstance(broker, KbrokerProcess)
    wire.create_topic(broker.port, "t", PARTITIONS)
    wire.create_topic(broker.port, "kept", PARTITIONS)
    broker.stop()
    second.rename(away)
    broker.start()
    with wire.WireConnection(broker.port) as connection:
        connection.receive(wire.DELETE_TOPICS, 6, send_deletion(connection, ["t"]))
    wait_for("a snapshot was taken", (broker.data_dir / DELETED_TOPICS).exists, SLOW_S)
    broker.restart()
    broker.stop()
    assert not load_image(broker.data_dir).deleted_topics
    if second.exists():
        second.rmdir()
    away.rename(second)
    start_calmly(broker)
    check_folders(broker, live_folders(broker))
    assert {name.rpartition("-")[0] for name in named(broker)} == {"kept"}
    wait_for("its folders are removed", lambda: not aside(broker, "delete"), SLOW_S)


@pytest.mark.timeout(600)
def test_stray_folders_are_named_counted_and_deleted(
    start_kbroker: Callable[..., BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_kbroker()
    assert isinstance(broker, KbrokerProcess)

    def strays() -> float:
        info = running(broker.data_dir)
        assert info is not None
        found = scrape(info.http[0].removeprefix("http://"))
        return found.total("kbroker_log_directory_stray_folders")

    assert strays() == 0
    broker.stop()
    for index in range(6):
        (broker.data_dir / f"lost-{index}").mkdir()
        write_topic_id(broker.data_dir / f"lost-{index}", b"l" * 16)
    broker.start()
    assert strays() == 6 and len(aside(broker, "stray")) == 6
    assert f"6 folders in {broker.data_dir} belong to no partition" in broker.log_text()
    place = ["-D", str(broker.data_dir)]
    assert root.run(["check", *place, "-o", "json"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out)
              if row["check"] == "stray folders"]  # fmt: skip
    assert row["verdict"] == "warning" and row["text"].startswith("6 belong to no partition")
    assert root.run(["log", "stray-delete", "--all", "--yes", *place]) == 0
    assert not folders(broker)
