"""Opening of logs: from a partition of the metadata to a log behind its directory's journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbroker.ext.data_plane import DataPlane
from kbroker.ext.log import Log
from kbroker.storage.folder_work import create_in_folders
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Opening


class LogOpening:
    """Opens and creates the logs of one broker; called on several threads at the start, and on the
    disk worker of a log directory for new partitions."""

    def __init__(self, directories: Sequence[LogDirectory], data_plane: DataPlane | None) -> None:
        self._places = {str(each.path): each.place for each in directories}
        self._data_plane = data_plane
        self.journal_open = False
        """Whether logs go behind the journal of their directory."""

    def open(self, opening: Opening) -> Log:
        """Open or create a log, with its leader epoch."""
        spec = opening.spec
        log = Log(
            opening.directory,
            spec.topic,
            spec.topic_id,
            spec.partition,
            spec.config,
            log_start_offset=opening.log_start_offset,
            recovery_point=opening.recovery_point,
            clean=opening.clean,
            durable=False,  # journal.recover syncs once for all logs
            fresh=opening.fresh,
        )
        log.leader_epoch = spec.leader_epoch
        self._adopt([log], opening)
        return log

    def create(self, openings: Sequence[Opening]) -> Sequence[Log | OSError]:
        """Create folders and logs of new partitions, all of one log directory."""
        made = create_in_folders(openings)
        self._adopt([log for log in made if isinstance(log, Log)], openings[0])
        return made

    def _adopt(self, logs: Iterable[Log], opening: Opening) -> None:
        if not self.journal_open or self._data_plane is None:
            return
        place = self._places[opening.directory.rpartition("/")[0]]
        for log in logs:
            self._data_plane.adopt(log, place)
