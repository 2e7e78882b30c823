"""The last step of a move between directories: what is acknowledged, and where, if it fails."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from kbroker.api import moving, publish
from kbroker.config import BrokerConfig
from kbroker.errors import DiskError
from kbroker.metadata import builders
from kbroker.metadata.builders import Replica
from kbroker.operations import Completion
from kbroker.storage import moves
from kbroker.storage.checkpoints import read_topic_id
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager, PartitionSpec
from kbroker.storage.moves import Move
from tests.support.control import ControlPlane
from tests.support.ports import FakeLog

TOPIC = b"t" * 16


@pytest.fixture
def plane(tmp_path):
    made = ControlPlane(tmp_path / "a")
    ids = [made.store.meta.directory_id, b"B" * 16]
    both = [LogDirectory(tmp_path / name, place, ids[place]) for place, name in enumerate("ab")]
    both[1].path.mkdir()
    made.services.logs = LogManager(both, FakeLog)
    made.services.logs.start([PartitionSpec("t", TOPIC, 0, {}, 0, ids[0])])
    made.store.append(
        builders.create_topic("t", TOPIC, 1, Replica(made.config.node_id, ids[0] or b""))
    )
    yield made
    made.store.close()


def moved(plane, append=None):
    """A move at its last step, with what an append to the metadata does."""
    logs = plane.services.logs
    spec = PartitionSpec("t", TOPIC, 0, {}, 0, None)
    move = Move(spec, logs.get("t", 0), logs.directories[0], logs.directories[1])
    move.future = SimpleNamespace()
    if append is not None:
        plane.store.append = append
    moving.finish(plane.services, move)
    plane.run_operations()
    assert move.done.is_set()
    return move


def refused(plane, number, failure=True):
    def append(records):
        error = DiskError("the metadata log", OSError(number, "no"))
        if failure:
            plane.store.fail(error)
        failed = Completion()
        failed.fail(error)
        return failed

    return append


def test_it_goes_on_in_the_other_directory(plane):
    move = moved(plane)
    assert move.failed is None and not move.log.offline_errno
    assert plane.services.logs.homes[move.key] is move.target


def test_a_record_that_may_be_there_ends_the_log(plane):
    move = moved(plane, refused(plane, errno.EIO))
    assert move.failed and move.recorded and move.log.offline_errno == errno.EIO


def test_a_refusal_for_want_of_room_leaves_it_where_it_is(plane):
    move = moved(plane, refused(plane, errno.ENOSPC, failure=False))
    assert move.failed and not move.recorded and not move.log.offline_errno
    assert plane.services.logs.homes[move.key] is move.source


def test_so_does_what_nobody_foresaw_before_the_record(plane):
    plane.services.logs.get = None
    spec = PartitionSpec("t", TOPIC, 0, {}, 0, None)
    log = FakeLog(SimpleNamespace(spec=spec, log_start_offset=0, recovery_point=0))
    move = Move(spec, log, *plane.services.logs.directories)
    move.future = SimpleNamespace()
    moving.finish(plane.services, move)
    assert move.done.is_set() and move.failed and not move.log.offline_errno


def test_what_is_in_the_place_is_put_aside_before(plane):
    target = plane.services.logs.directories[1].path
    (target / "t-0").mkdir()
    move = moved(plane)
    assert move.failed is None and not (target / "t-0").exists()
    assert len(list(target.glob("t-0.*-stray"))) == 1


def test_a_disk_that_hangs_before_the_record_holds_up_no_other_change(plane, monkeypatch):
    logs = plane.services.logs
    hangs: Completion[None] = Completion()
    monkeypatch.setattr(logs.directories[1].worker, "run", lambda work: hangs)
    spec = PartitionSpec("t", TOPIC, 0, {}, 0, None)
    move = Move(spec, logs.get("t", 0), *logs.directories)
    move.future = SimpleNamespace()
    moving.finish(plane.services, move)
    plane.create("u")
    assert "u" in plane.services.image.topics and not move.done.is_set()
    plane.clock.advance(moving.PLACE_MS)
    plane.services.operations.run_due()
    plane.run_operations()
    assert move.done.is_set() and move.failed and not move.recorded


def test_it_begins_without_a_look_at_the_disk(plane, monkeypatch):
    """However many they are; the thread makes the folders, one sync for all that wait."""
    services, logs = plane.services, plane.services.logs
    cleaner = SimpleNamespace(pause=lambda *_: None, resume=lambda _: None)
    services.moves = moving.made(services, cleaner)
    monkeypatch.setattr(moves, "Log", FakeLog)
    monkeypatch.setattr(services.moves._thread, "start", lambda: None)
    moving.begin(services, ("t", 0), logs.directories[1])
    (move,) = services.moves.all()
    assert not move.folder.exists() and move.spec.topic_id == TOPIC
    services.moves._take()
    assert read_topic_id(move.folder) == TOPIC and list(services.moves._waiting) == [move]
    services.moves.cancel(("t", 0))  # a start must not find it
    services.moves._take()
    assert not move.folder.exists() and not services.moves._waiting


def test_the_disk_that_failed_is_the_one_to_blame(plane, monkeypatch):
    """It fails while the metadata is written: its partitions go with it, those of the other one,
    to which this one did not come, do not."""
    log = plane.services.logs.get("t", 0)

    def refuse(*_):
        raise OSError(errno.EIO, "no")

    def append(records):
        log.offline_errno = errno.EIO
        return Completion.of(None)

    monkeypatch.setattr(plane.data_plane, "move", refuse)
    move = moved(plane, append)
    assert move.source.met is not None and move.target.met is None
    assert plane.services.logs.homes[move.key] is move.source


def test_what_is_offline_by_now_is_not_moved(plane):
    plane.services.logs.get("t", 0).offline_errno = errno.EIO
    move = moved(plane)
    assert move.failed and not move.recorded
    assert plane.services.logs.homes[move.key] is move.source


@pytest.mark.parametrize("known", [True, False])
def test_cordoned_is_what_the_metadata_can_tell(plane, monkeypatch, known):
    monkeypatch.setattr(publish, "has_cordoned", lambda _: known)
    plane.config.set_dynamic({"cordoned.log.dirs": "*"}, {})
    monkeypatch.setattr(BrokerConfig, "log_dirs", [str(plane.services.logs.directory)])
    publish.cordon(plane.services)
    assert [one.cordoned for one in plane.services.logs.directories] == [known, False]
