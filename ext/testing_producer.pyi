_Answer = tuple[
    int, int, int, int, list[tuple[int, bytes | None]], bytes | None, int, int
]

def read_produce_answer(
    version: int, topics: dict[str, tuple[bytes, int]], data: bytes | memoryview
) -> list[_Answer] | None: ...
def sequence_precedes(sequence: int, other: int) -> bool: ...
