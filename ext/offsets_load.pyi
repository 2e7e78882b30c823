from typing import Self

from kbroker.ext.log import Log
from kbroker.ext.offsets_rows import OffsetsFold, _Other

class OffsetsLoad(OffsetsFold):
    def __new__(
        cls,
        log: Log,
        *,
        end_offset: int | None = None,
        step_bytes: int = ...,
        commits: bool = True,
        strict: bool = False,
    ) -> Self: ...
    @property
    def position(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    def step(self) -> list[_Other]: ...
