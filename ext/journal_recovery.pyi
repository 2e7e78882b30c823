from collections.abc import Mapping
from typing import NamedTuple

from kbroker.ext.log import Log

class Replayed(NamedTuple):
    files: int
    groups: int
    batches: int
    applied: int
    applied_bytes: int
    gaps: int

def replay(
    directory: str,
    logs: Mapping[tuple[bytes, int], Log],
    cleaned: Mapping[tuple[bytes, int], int] | None = None,
) -> Replayed: ...
