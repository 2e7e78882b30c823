"""A data directory at rest, on its way into a backup: as it is. The caller holds its lock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kbroker.care.folders import end_of, partitions_of, refuse_other_kinds
from kbroker.care.manifest import Extent
from kbroker.care.segments import base_offset_of, segment_files
from kbroker.care.stage import Stage
from kbroker.errors import CorruptFileError, OperatorError
from kbroker.ext import journal_reader
from kbroker.files import is_there, list_names
from kbroker.metadata.deleted_topics import DELETED_TOPICS
from kbroker.metadata.loader import load_image
from kbroker.metadata.meta_properties import META_PROPERTIES
from kbroker.metadata.snapshot import BOOTSTRAP
from kbroker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from kbroker.storage.manager import METADATA_FOLDER

__all__ = ["DirectoryAtRest"]

_TOP: Final = (
    META_PROPERTIES,
    BOOTSTRAP,
    DELETED_TOPICS,
    CLEAN_SHUTDOWN,
    RECOVERY_POINTS,
    LOG_START_OFFSETS,
    HIGH_WATERMARKS,
    CLEANER_OFFSETS,
)
_LEFT_OUT: Final = (".deleted", ".tmp", ".part")


class DirectoryAtRest:
    """Takes it into a stage."""

    def __init__(self, source: Path, stage: Stage) -> None:
        self.source = source
        self.stage = stage
        # What a crash left is cut by the next start, in the file itself: no name may share it.
        self._clean = is_there(source / CLEAN_SHUTDOWN)

    def take(self) -> list[Extent]:
        """Everything; the offsets of each partition. Raises OperatorError for a metadata log that
        cannot be read."""
        wal = {os.path.basename(path) for path in journal_reader.files(str(self.source))}
        for name in list_names(self.source):
            if name in _TOP or name in wal:
                self.stage.take(self.source / name, name, sealed=False)
        self._folder(METADATA_FOLDER, active="")
        extents = []
        for folder, key in partitions_of(self.source).items():
            logs = segment_files(self.source / folder)
            self._folder(folder, logs[-1].name if logs else "")
            start, end = (base_offset_of(logs[0]), end_of(logs[-1])[1]) if logs else (0, 0)
            extents.append(Extent(*key, start, end))
        try:
            load_image(self.stage.data)
        except CorruptFileError as error:
            raise OperatorError(f"the metadata log cannot be read: {error}") from error
        return extents

    def _folder(self, folder: str, active: str) -> None:
        for entry in sorted(os.scandir(self.source / folder), key=lambda entry: entry.name):
            refuse_other_kinds(entry)
            if not entry.name.endswith(_LEFT_OUT):
                name = entry.name
                sealed = bool(self._clean and active and name.endswith(".log") and name != active)
                self.stage.take(self.source / folder / name, f"{folder}/{name}", sealed=sealed)
