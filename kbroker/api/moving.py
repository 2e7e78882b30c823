"""Moves between log directories, as the control thread sees them (kbroker.storage.moves)."""

from __future__ import annotations

import errno
import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.api.publish import spec_of
from kbroker.config.topic import log_config
from kbroker.errors import ClientError, DiskError, ErrorCode, KbrokerError
from kbroker.metadata import builders
from kbroker.operations import Steps
from kbroker.storage.folders import DELETE_SUFFIX, aside_name, put_aside
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key
from kbroker.storage.moves import CleanerPort, Move, Moves

if TYPE_CHECKING:
    from kbroker.api.context import Services

_LOG: Final = logging.getLogger("kbroker.api")
_THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
PLACE_MS: Final = 10_000
"""A move whose new directory hangs for longer at its last step is given up, and begins anew."""


def made(services: Services, cleaner: CleanerPort) -> Moves:
    """What moves partitions; no thread of it runs before the first one is to be."""
    return Moves(
        services.logs,
        cleaner,
        services.clock,
        lambda move: services.post(partial(finish, services, move)),
        partial(pace, services),
    )


def begin(services: Services, key: Key, target: LogDirectory) -> None:
    """Have a partition that is served moved to another directory."""
    assert services.moves is not None
    services.moves.begin(spec_of(services, services.image.topics[key[0]], key[1]), target)


def resume(services: Services) -> None:
    """After the start: what the last stop cut off begins anew."""
    for key, target in services.logs.unfinished.items():
        home = services.logs.homes.get(key)
        if services.logs.get(*key) is None or home is None or target is home or not target.online:
            continue
        begin(services, key, target)


def finish(services: Services, move: Move) -> None:
    """Run the last step: the metadata has where the partition lives, then its log continues
    there."""

    def cleared(_: None, error: BaseException | None) -> None:
        if error is None:
            change = services.changes.run(_finish(services, move))
            change.on_done(lambda done: _finished(services, move, done.error))
        else:
            _finished(services, move, error)

    def cancelled() -> None:
        _finished(services, move, ClientError(ErrorCode.REPLICA_NOT_AVAILABLE, "a stop"))

    services.operations.start(
        _make_place(services, move), cleared, on_cancel=cancelled,
        deadline_ms=services.clock.monotonic_ms() + PLACE_MS,
    )  # fmt: skip


def _finished(services: Services, move: Move, error: BaseException | None) -> None:
    if error is not None:
        move.failed = str(error) or type(error).__name__
        expected = isinstance(error, KbrokerError | OSError)
        _LOG.error("moving %s to %s: %s", move.name, move.target, move.failed,
                   exc_info=None if expected else error)  # fmt: skip
        if move.recorded:
            _give_up(services, move, error)
    move.done.set()


def _give_up(services: Services, move: Move, error: BaseException) -> None:
    """Nobody knows which copy the next start takes: nothing more is acknowledged in either. This
    is before the log is free again, and takes its directory offline (DiskWatch)."""
    move.log.take_offline(getattr(error, "errno", None) or errno.EIO)
    services.data_plane.wake(move.log)


def _make_place(services: Services, move: Move) -> Steps[None]:
    """One name cannot be of two copies once the metadata has it. A disk that hangs before that
    holds up no change of others, and for some seconds only the producers of this partition."""
    _check(services, move)
    yield move.target.worker.run(partial(_clear, move))


def _finish(services: Services, move: Move) -> Steps[None]:
    logs, (topic, index) = services.logs, move.key
    _check(services, move)
    overrides = services.image.configs(("topic", topic))
    due_ms = services.clock.monotonic_ms() + log_config(services.config, overrides)[
        "file_delete_delay_ms"
    ]
    left = move.source.path / aside_name(move.name, DELETE_SUFFIX)
    place = move.target.path / move.name
    assert move.target.id is not None and move.future is not None
    found = services.image.topics[topic]
    records = builders.move_partition(found, index, services.config.node_id, move.target.id)
    move.recorded = True
    try:
        yield services.store.append(records)
    except ClientError:
        move.recorded = False
        raise
    except DiskError:  # a full disk has none of it
        move.recorded = services.store.failure is not None
        raise
    blame = move.target if not move.log.offline_errno else move.source
    exchange = partial(
        services.data_plane.move,
        move.log, move.future, str(left), str(place), move.target.place,
    )  # fmt: skip
    try:
        kept = yield move.target.worker.run(exchange)
    except OSError as error:  # the next start finds the copy
        blame.note(DiskError(move.folder if blame is move.target else move.source.path, error))
        raise
    finally:
        if blame is move.target:
            logs.moved(move.key, move.target, left, due_ms)
    if kept:  # nothing needs it: the next start removes it
        kept_there = DiskError(move.source.path / move.name, OSError(kept, os.strerror(kept)))
        _LOG.error("the folder that the partition has left is not removed: %s", kept_there)
        move.source.note(kept_there)
    _LOG.info("moved %s from %s to %s", move.name, move.source, move.target)


def _check(services: Services, move: Move) -> None:
    """Raise ClientError where the partition is not to be moved any more."""
    logs, (topic, index) = services.logs, move.key
    found = services.image.topics.get(topic)
    if (
        found is None or found.id != move.spec.topic_id or move.cancelled or move.future is None
        or move.target.id is None or logs.get(topic, index) is not move.log
        or logs.homes.get(move.key) is not move.source or not move.target.online
        or move.log.offline_errno
    ):  # fmt: skip
        raise ClientError(ErrorCode.REPLICA_NOT_AVAILABLE, "the move was given up")


def _clear(move: Move) -> None:
    """Put aside what has the partition's name, on the worker's thread."""
    if put_aside(move.target.path / move.name):
        move.target.sync_names()


def pace(services: Services, size: int, stopping: threading.Event) -> None:
    """Wait as long as the throttle of moves wants for so many bytes."""
    image, node = services.image, ("broker", str(services.config.node_id))
    rate = image.configs(node).get(_THROTTLE) or image.configs(("broker", "")).get(_THROTTLE)
    if rate is not None and int(rate) > 0:
        stopping.wait(size / int(rate))
