from typing import Any, final

CREATE_TIME: int
LOG_APPEND_TIME: int

class FetchedBatchError(ValueError):
    code: int
    topic: str
    partition: int
    offset: int
    def __init__(self, code: int, topic: str, partition: int, offset: int) -> None: ...

@final
class Source: ...

@final
class Record:
    offset: int
    timestamp: int
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def key_size(self) -> int: ...
    @property
    def value_size(self) -> int: ...
    def replace(self, *, key: Any = ..., value: Any = ..., headers: Any = ...) -> None: ...
    def detach(self) -> Record: ...

def restored(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: Any,
    value: Any,
    headers: tuple[tuple[str, bytes | None], ...],
    leader_epoch: int = -1,
    log_append_time: bool = False,
) -> Record: ...
