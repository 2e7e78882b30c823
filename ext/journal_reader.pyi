from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from kbroker.errors import OperatorError

class Entry(NamedTuple):
    topic_id: bytes
    partition: int
    base_offset: int
    end_offset: int
    batch: bytes

class WalError(OperatorError):
    reasons: list[tuple[str, str]]
    following: dict[tuple[bytes, int], int]
    def __init__(
        self,
        directory: str,
        reasons: Iterable[tuple[str, str]],
        following: Mapping[tuple[bytes, int], int] | None = None,
    ) -> None: ...

def files(directory: str) -> list[str]: ...
def skips_damage(directory: str) -> bool: ...
def skip_damage(directory: str) -> None: ...
def remove(directory: str, damaged: Iterable[str] = ()) -> None: ...
def keys(directory: str, *, skip_damage: bool = False) -> set[tuple[bytes, int]]: ...
def entries(directory: str, *, skip_damage: bool = False) -> list[Entry]: ...
class JournalReader:
    def __new__(cls, directory: str, *, skip_damage: bool = False) -> Self: ...
