from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

_Data: TypeAlias = bytes | bytearray | memoryview
_Headers: TypeAlias = Sequence[tuple[str | bytes, bytes | None]]
_New: TypeAlias = (
    tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, _Headers]
)

NAMES: tuple[str, ...]
DECOMPRESSED_BYTES_MAX: int

class BatchError(ValueError):
    code: int
    error_code: int
    record: int
    def __init__(self, code: int, record: int = -1) -> None: ...

class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

class Batch(NamedTuple):
    position: int
    length: int
    base_offset: int
    last_offset_delta: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, as the field is named so
    compression: int
    transactional: bool
    control: bool
    log_append_time: bool

def batches(data: _Data, check_crc: bool = True) -> list[Batch]: ...
def records(data: _Data, position: int = 0, limit: int = ...) -> list[Record]: ...
def read(data: _Data, start_offset: int = 0, limit: int = ...) -> list[Record]: ...
def validate(data: _Data, **rules: int) -> Batch: ...
def validate_records(data: _Data, limit: int = ..., **rules: int) -> Batch: ...
def bad_records(data: _Data, **rules: int) -> list[tuple[int, int]]: ...
def assign(data: bytearray, base_offset: int, leader_epoch: int) -> None: ...
def set_timestamps(data: bytearray, log_append_time: bool, max_timestamp: int) -> None: ...
def build(
    records: Iterable[_New],
    *,
    codec: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes: ...
def recompress(data: _Data, codec: str, level: int | None = None, limit: int = ...) -> bytes: ...
def python_decompress(codec: int, data: bytes, limit: int) -> bytes: ...
def python_wrap(header: bytes, codec: int, plain: bytes, level: int | None) -> bytes: ...
