from typing import Self

class TestOwner:
    def __new__(cls, topic_id: bytes, partition: int) -> Self: ...
    @property
    def durable(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def syncs(self) -> int: ...
    @property
    def refs(self) -> int: ...
    def fail_syncs(self, error: int) -> None: ...

class TestJournal:
    def __new__(
        cls,
        directory: str,
        *,
        group_bytes: int = ...,
        file_bytes: int = ...,
        bytes_max: int = ...,
        interval_ms: int = 20,
        salt: int = 1,
    ) -> Self: ...
    def append(
        self,
        owner: TestOwner,
        batch: bytes,
        end_offset: int,
        *,
        wait: bool = True,
        demand: bool = True,
    ) -> bool: ...
    def reserve_and_cancel(self, owner: TestOwner, size: int) -> int: ...
    @property
    def groups_written(self) -> int: ...
    @property
    def files_count(self) -> int: ...
    def close(self, *, unlink_files: bool) -> None: ...
