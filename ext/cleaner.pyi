from collections.abc import Callable
from typing import NamedTuple, final

from kbroker.ext.log import Log

IO_BYTES_MIN: int

class CleaningInterruptedError(Exception): ...
class UncleanableError(Exception): ...

class Cleanable(NamedTuple):
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    min_ratio: float
    deletes: bool
    reset: str

class Cleaned(NamedTuple):
    end_offset: int
    mapped_bytes: int
    mapped_records: int
    read_bytes: int
    read_records: int
    written_bytes: int
    written_records: int
    keyless_records: int
    segments_before: int
    segments_after: int

def survey(log: Log, checkpoint: int | None, now_ms: int) -> Cleanable | None: ...
def compacted(log: Log) -> bool: ...
def key_hash(key: bytes, secret: bytes) -> bytes: ...
@final
class Throttle:
    def __new__(cls, bytes_per_second: float) -> Throttle: ...
    def set_rate(self, bytes_per_second: float) -> None: ...
@final
class Cleaner:
    def __new__(
        cls,
        throttle: Throttle,
        *,
        map_bytes: int,
        load_factor: float,
        io_bytes: int,
        room: Callable[[int], object] | None = None,
    ) -> Cleaner: ...
    def stop(self) -> None: ...
    def clean(self, log: Log, cleanable: Cleanable, now_ms: int) -> Cleaned: ...
