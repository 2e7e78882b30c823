from collections.abc import Mapping
from typing import NamedTuple

from kbroker.ext.log import Log

class Replayed(NamedTuple):
    files: int
    groups: int
    batches: int
    applied: int
    applied_bytes: int
    gaps: dict[tuple[bytes, int], int]
    skipped: list[str]
    damaged: list[str]

def replay(
    directory: str,
    logs: Mapping[tuple[bytes, int], Log],
    cleaned: Mapping[tuple[bytes, int], int] | None = None,
    *,
    skip_damage: bool = False,
) -> Replayed: ...
