"""Loading: the image folded from batches of the metadata log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kbroker.errors import BugError, CorruptFileError

from .batches import Batch
from .image import Image
from .log import MetadataLog
from .quorum import Quorum
from .records import cluster
from .records.frame import decode_control, decode_metadata
from .records.schema import Record
from .records.wire import RecordError
from .snapshot import list_snapshots, read_snapshot

FOLDER: Final = "__cluster_metadata-0"


class Loader:
    """Takes batches of the log in: raft's records at once, a transaction's at its end."""

    def __init__(self, image: Image, quorum: Quorum) -> None:
        self._image = image
        self._quorum = quorum
        self._open: list[Record] | None = None

    @property
    def in_transaction(self) -> bool:
        """True where the log ends within a transaction."""
        return self._open is not None

    def take(self, batch: Batch, folder: Path) -> None:
        """One batch, in the order of the log."""
        try:
            if batch.control:
                for key, value in batch.records:
                    self._quorum.take(decode_control(key or b"", value or b""))
                return
            for _, value in batch.records:
                self._take_record(decode_metadata(value or b"")[0])
        except (RecordError, BugError) as error:
            reason = f"the records at offset {batch.base_offset}: {error}"
            raise CorruptFileError(folder, reason) from error

    def _take_record(self, record: Record) -> None:
        if isinstance(record, cluster.BeginTransactionRecord):
            self._open = []
        elif isinstance(record, cluster.EndTransactionRecord):
            self._image.replay_all(self._open or ())
            self._open = None
        elif isinstance(record, cluster.AbortTransactionRecord):
            self._open = None
        elif self._open is not None:
            self._open.append(record)
        else:
            self._image.replay(record)


def load_image(directory: Path) -> Image:
    """The image of a directory at rest, without changing a byte: for tools."""
    image, quorum = Image(), Quorum()
    loader = Loader(image, quorum)
    folder = directory / FOLDER
    offset = 0
    if snapshots := list_snapshots(folder):
        offset = snapshots[-1].offset
        image.replay_all(read_snapshot(folder / snapshots[-1].file_name).records)
    for batch in MetadataLog(folder).read(offset):
        loader.take(batch, folder)
    return image
