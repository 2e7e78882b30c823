"""The file of deleted topics whose folders may still be in a log directory.

The folder of a deleted partition is renamed after the metadata log has the deletion. A crash in
between, or a log directory that was offline, leaves the folder under its own name. The next start
deletes such a folder, and no other that lacks a topic, so it needs the ids of deleted topics. The
records of the metadata log have them until a snapshot takes their place. This file carries the ids
over a snapshot: version, number of entries, then "topic-id name" in each line.

Apache Kafka ignores the file. Topic ids are never used twice, so an entry that is out of date does
no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kbroker.errors import CorruptFileError, DiskError
from kbroker.files import read_checkpoint, write_checkpoint
from kbroker.uuids import parse_uuid, uuid_text

DELETED_TOPICS: Final = ".kbroker-deleted-topics"
_VERSION: Final = 0
_LOG: Final = logging.getLogger("kbroker.metadata")


def read_deleted_topics(directory: Path) -> dict[bytes, str]:
    """Return the names of deleted topics by id; none where there is no file or it is damaged."""
    path = directory / DELETED_TOPICS
    topics: dict[bytes, str] = {}
    try:
        for line in read_checkpoint(path, _VERSION) or ():
            topic_id, _, name = line.partition(" ")
            topics[parse_uuid(topic_id)] = name
    except (CorruptFileError, ValueError) as error:
        _LOG.warning("%s is ignored: %s", path, error)
        return {}
    return topics


def write_deleted_topics(directory: Path, topics: Mapping[bytes, str]) -> None:
    """Replace the file durably; remove it where there are no topics. Raises DiskError."""
    path = directory / DELETED_TOPICS
    if topics:
        lines = (f"{uuid_text(topic_id)} {name}" for topic_id, name in topics.items())
        write_checkpoint(path, _VERSION, lines)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DiskError(path, error) from error
