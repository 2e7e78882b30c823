"""Backups of a directory that a broker serves, records and commits going on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.care.backup import create
from kbroker.care.backup_live import LiveDirectories
from kbroker.care.restore import restore, verify
from kbroker.cli import root
from kbroker.client import Admin, NewTopic, Producer
from kbroker.errors import OperatorError
from kbroker.metadata.image import Image
from tests.care.traffic import BROKER, KEPT, Traffic, judge, make_topics
from tests.support.fixtures import BrokerFactory
from tests.support.kbroker import KbrokerProcess


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    status = root.run(words)
    said = capsys.readouterr()
    return status, said.out + said.err


def test_all_that_was_acknowledged_before_is_in_it(
    start_kbroker: BrokerFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_kbroker(BROKER)
    make_topics(broker.bootstrap)
    first, second, back = tmp_path / "first", tmp_path / "second", tmp_path / "back"
    source = ["--data-dir", str(broker.data_dir)]
    with Traffic(broker.bootstrap) as traffic:
        traffic.wait_for_more(600, commits=50)
        status, said = run(capsys, "backup", "create", str(first), *source)
        assert status == 0, said
        assert "while a broker served it" in said
        traffic.wait_for_more(300, commits=20)
        told = traffic.told()
        words = ("backup", "create", str(second), *source, "--since", str(first), "-o", "json")
        status, said = run(capsys, *words)
        assert status == 0, said
        traffic.wait_for_more(100)
    ways = json.loads(said)["bytes_by_way"]
    assert ways["reused"] > 0 and ways["copied"] > 0
    broker.kill()
    for folder in (first, broker.data_dir):  # the later one stands by itself
        shutil.rmtree(folder)
    assert run(capsys, "backup", "verify", str(second))[0] == 0
    assert run(capsys, "backup", "restore", str(second), str(back))[0] == 0
    restored = KbrokerProcess(tmp_path / "again", BROKER, data_dir=back)
    restored.start()
    try:
        judge(restored.bootstrap, told)
        with Producer(bootstrap_servers=restored.bootstrap) as producer:
            assert producer.send(KEPT, b"goes on", partition=0).result(60).offset > 0
        assert restored.stop() == 0
        assert "torn" not in restored.log_text()
    finally:
        restored.kill()
    for place in (second / "data", back):
        status, said = run(capsys, "log", "verify", "-q", "-D", str(place))
        assert status == 0, said


def test_a_topic_that_is_deleted_and_made_again_meanwhile(
    start_kbroker: BrokerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look finds that out by the topic's id, and another one counts. A topic that is gone
    by the end is left out, one that came is there, empty."""
    broker = start_kbroker({})
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("again"), NewTopic("gone")])
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for topic in ("again", "gone"):
                producer.send(topic, b"old").result(60)
        looks = []
        metadata: Callable[[LiveDirectories], Image] = LiveDirectories._metadata

        def disturbed(live: LiveDirectories) -> Image:
            looks.append(1)
            if len(looks) == 1:
                admin.delete_topics(["again", "gone"])
                admin.create_topics([NewTopic("again"), NewTopic("new")])
            return metadata(live)

        monkeypatch.setattr(LiveDirectories, "_metadata", disturbed)
        made = create(broker.data_dir, tmp_path / "backup")
    assert len(looks) == 2
    extents = {one.topic: one for one in made.manifest.partitions}
    assert extents["again"].end == 0
    assert "gone" not in extents
    assert "new" in extents
    assert list(verify(tmp_path / "backup")) == []
    assert not list((tmp_path / "backup" / "data").glob("gone*"))
    broker.kill()
    restore(tmp_path / "backup", tmp_path / "back")
    restored = KbrokerProcess(tmp_path / "home", data_dir=tmp_path / "back")
    restored.start()
    try:
        with Admin(bootstrap_servers=restored.bootstrap) as admin:
            assert {topic.name for topic in admin.list_topics()} == {"again", "new"}
    finally:
        restored.kill()


@pytest.mark.parametrize("live", [True, False], ids=["live", "stopped"])
def test_a_partition_that_was_never_written_is_in_it(
    start_kbroker: BrokerFactory, tmp_path: Path, live: bool
) -> None:
    """Its folder has no files but partition.metadata."""
    broker = start_kbroker()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("t", partitions=2)
    if not live:
        broker.stop()
    backup = tmp_path / "backup"
    create(broker.data_dir, backup)
    assert not list(verify(backup))
    restore(backup, tmp_path / "back")
    names = {path.name for path in (tmp_path / "back").glob("t-*/*")}
    assert names == {"partition.metadata"}
    restored = KbrokerProcess(tmp_path / "again", data_dir=tmp_path / "back")
    restored.start()
    try:
        with Producer(bootstrap_servers=restored.bootstrap) as producer:
            assert producer.send("t", b"first", partition=1).result(30).offset == 0
    finally:
        restored.kill()


def test_a_directory_that_somebody_else_holds_is_refused(
    start_kbroker: BrokerFactory, tmp_path: Path
) -> None:
    broker = start_kbroker({})
    (broker.data_dir / ".kbroker-run.json").unlink()
    with pytest.raises(OperatorError, match=f"process {broker.pid}, which is no kbroker"):
        create(broker.data_dir, tmp_path / "backup")
    assert not list(tmp_path.glob("backup*"))
