from typing import NamedTuple

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

def batches(data: bytes | bytearray | memoryview, check_crc: bool = True) -> list[Batch]: ...
def validate(data: bytes | bytearray | memoryview, **rules: int) -> Batch: ...
def bad_records(data: bytes | bytearray | memoryview, **rules: int) -> list[tuple[int, int]]: ...
def assign(data: bytearray, base_offset: int, leader_epoch: int) -> None: ...
def set_timestamps(data: bytearray, log_append_time: bool, max_timestamp: int) -> None: ...
