"""Who a data directory is: its meta.properties. One that is new is formatted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kbroker.clock import Clock
from kbroker.errors import DiskError, OperatorError
from kbroker.files import is_there, list_names
from kbroker.storage.checkpoints import PARTITION_METADATA, write_topic_id
from kbroker.storage.folders import METADATA_FOLDER, holds
from kbroker.uuids import ONE_UUID, random_uuid, uuid_text

from . import features
from .meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from .quorum import only_voter
from .records import cluster, raft
from .snapshot import BOOTSTRAP, SnapshotId, write_snapshot

NODE_ID_DEFAULT: Final = 1
_log = logging.getLogger("kbroker.metadata")


def identify(
    directory: Path, clock: Clock, node_id: int | None, cluster_id: str | None
) -> MetaProperties:
    """Read it, or format an empty directory; `node_id` and `cluster_id` are to be its, unless None.
    Raises OperatorError where they are not, or what is there is not to be formatted over."""
    meta = read_meta_properties(directory)
    if meta is None:
        meta = _format(directory, clock, node_id, cluster_id)
    if node_id is not None and meta.node_id != node_id:
        raise OperatorError(
            f"node.id is {node_id}, but {directory} belongs to node "
            f"{meta.node_id}: set node.id={meta.node_id}, or use another data directory"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise OperatorError(
            f"the cluster id is to be {cluster_id}, but {directory} belongs to "
            f"cluster {meta.cluster_id}: use another data directory"
        )
    if meta.directory_id is None:
        meta = meta._replace(directory_id=random_uuid())
        write_meta_properties(directory, meta)
    if not is_there(directory / METADATA_FOLDER):
        _make_folder(directory / METADATA_FOLDER)
    return meta


def _format(
    directory: Path, clock: Clock, node_id: int | None, cluster_id: str | None
) -> MetaProperties:
    """What `kafka-storage format --standalone` writes; meta.properties makes it count."""
    folder = directory / METADATA_FOLDER
    _refuse_foreign_files(directory, folder)
    meta = MetaProperties(
        cluster_id or uuid_text(random_uuid()),
        NODE_ID_DEFAULT if node_id is None else node_id,
        random_uuid(),
    )
    assert meta.directory_id is not None
    _make_folder(folder)
    now = clock.wall_ms()
    levels = [cluster.FeatureLevelRecord(*item) for item in features.NEW_CLUSTER.items()]
    write_snapshot(directory / BOOTSTRAP, ((level, 0) for level in levels), now_ms=now)
    voters = only_voter(meta.node_id, meta.directory_id)
    write_snapshot(
        folder / SnapshotId(0, 0).file_name, [], timestamp=now, now_ms=now,
        control=[raft.KRaftVersionRecord(0, 1), voters],
    )  # fmt: skip
    write_meta_properties(directory, meta)
    _log.info("formatted %s: cluster %s, node %d", directory, *meta[:2])
    return meta


def _refuse_foreign_files(directory: Path, folder: Path) -> None:
    """A directory without meta.properties that holds data is not to be formatted over."""
    found = [folder] if any(_sizes(folder)) else []
    if is_there(directory):
        paths = (directory / name for name in list_names(directory))
        found += (path for path in paths if path != folder and holds(path, PARTITION_METADATA))
    if found:
        raise OperatorError(
            f"{directory} has no {META_PROPERTIES}, but holds {found[0].name}: bring "
            f"{META_PROPERTIES} back, or use an empty data directory"
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(folder, error) from error
    write_topic_id(folder, ONE_UUID)


def _sizes(folder: Path) -> Iterator[int]:
    """Sizes of the segments in a folder."""
    if is_there(folder):
        for name in list_names(folder):
            if name.endswith(".log"):
                yield (folder / name).stat().st_size
