"""A log directory at rest, on its way into a backup: as it is. The caller holds its lock."""

from __future__ import annotations

import os
from typing import Final

from kbroker.care.folders import Key, end_of, partitions_of, refuse_other_kinds
from kbroker.care.manifest import Extent
from kbroker.care.segments import base_offset_of, segment_files
from kbroker.care.stage import StagedDirectory
from kbroker.ext import journal_reader
from kbroker.files import is_there, list_names
from kbroker.metadata.deleted_topics import DELETED_TOPICS
from kbroker.metadata.meta_properties import META_PROPERTIES
from kbroker.metadata.snapshot import BOOTSTRAP
from kbroker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from kbroker.storage.folders import FUTURE_SUFFIX, METADATA_FOLDER, SET_ASIDE

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
    """Takes one log directory into a stage."""

    def __init__(self, staged: StagedDirectory) -> None:
        self.source = staged.source
        self.staged = staged
        # What a crash left is cut by the next start, in the file itself: no name may share it.
        self._clean = is_there(self.source / CLEAN_SHUTDOWN)

    def take(self) -> dict[Key, Extent]:
        """Everything but folders that are set aside; the offsets of each partition. A copy that was
        on its way here is taken too: the metadata may name it (kbroker.storage.moves)."""
        wal = {os.path.basename(path) for path in journal_reader.files(str(self.source))}
        for name in list_names(self.source):
            aside = SET_ASIDE.match(name)
            if name in _TOP or name in wal:
                self.staged.take(self.source / name, name, sealed=False)
            elif name == METADATA_FOLDER or (aside and aside["suffix"] == FUTURE_SUFFIX):
                self._folder(name, active="")
        extents = {}
        for folder, key in partitions_of(self.source).items():
            logs = segment_files(self.source / folder)
            self._folder(folder, logs[-1].name if logs else "")
            start, end = (base_offset_of(logs[0]), end_of(logs[-1])[1]) if logs else (0, 0)
            extents[key] = Extent(*key, start, end)
        return extents

    def _folder(self, folder: str, active: str) -> None:
        for entry in sorted(os.scandir(self.source / folder), key=lambda entry: entry.name):
            refuse_other_kinds(entry)
            if not entry.name.endswith(_LEFT_OUT):
                name = entry.name
                sealed = bool(self._clean and active and name.endswith(".log") and name != active)
                self.staged.take(self.source / folder / name, f"{folder}/{name}", sealed=sealed)
