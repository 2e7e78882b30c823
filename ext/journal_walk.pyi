from typing import NamedTuple, Self

class Entry(NamedTuple):
    topic_id: bytes
    partition: int
    base_offset: int
    end_offset: int
    batch: bytes

def files(directory: str) -> list[str]: ...
def remove(directory: str) -> None: ...
def entries(directory: str) -> list[Entry]: ...
class JournalReader:
    def __new__(cls, directory: str) -> Self: ...
