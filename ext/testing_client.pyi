from typing import Self

from kbroker.ext.client_columns import Columns
from kbroker.ext.client_record import Record

class Answer:
    def __new__(
        cls,
        data: bytes | bytearray | memoryview,
        position: int = 0,
        *,
        aborted: tuple[tuple[int, int], ...] = (),
        read_committed: bool = False,
        check_crcs: bool = True,
        limit: int = ...,
    ) -> Self: ...
    @property
    def position(self) -> int: ...
    def records(self, most: int = ...) -> list[Record]: ...
    def columns(self, most: int = ...) -> Columns: ...

def fetch_answer(
    data: bytes | bytearray | memoryview, version: int
) -> list[tuple[int, int, int, int, int, int]] | None: ...
def scanned(data: bytes | bytearray | memoryview, version: int, ends: list[int]) -> int: ...
