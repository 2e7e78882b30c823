"""The order of log.dirs. Free of imports that cost: every start passes here twice."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["metadata_first"]


def metadata_first(named: Iterable[str], metadata: str | None) -> list[str]:
    """Directories as settings name them, that of metadata.log.dir first, if it is one of them, by
    whatever name."""
    if not metadata:
        return list(named)
    real = os.path.realpath(metadata)
    return sorted(named, key=lambda path: os.path.realpath(path) != real)
