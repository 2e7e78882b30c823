"""A file system of one's own, as a user who is not root has it: with a lost+found."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def mounted_disk() -> Iterator[Path]:
    """An empty directory of this process's user, who is not root in here, and may not look into
    what its file system has there."""
    before = os.geteuid()
    user = before or _NOBODY
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "lost+found"
        found.mkdir(mode=0)
        os.chown(place, user, -1)
        os.seteuid(user)
        try:
            yield Path(place)
        finally:
            os.seteuid(before)
            found.chmod(0o700)
