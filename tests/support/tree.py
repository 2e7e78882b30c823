"""The files of the repository, as the tests about its style and shape read them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Folders of the tree by the package that they are imported as.
PACKAGES = {
    "kbroker": "kbroker", "ext": "kbroker.ext", "cli": "kbroker.cli",
    "perf/locust": "kbroker.locust",
}  # fmt: skip
CYTHON = (".pyx", ".pxd")


@cache
def tree_files() -> tuple[Path, ...]:
    """Every file that is, or would be, in the repository, relative to its top."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    paths = {Path(name.decode()) for name in names.split(b"\0") if name}
    return tuple(sorted(path for path in paths if (ROOT / path).is_file()))


def files_with(*suffixes: str) -> list[Path]:
    """Files of the tree that end so."""
    return [path for path in tree_files() if path.suffix in suffixes]


@cache
def text_of(path: Path) -> str:
    """A file's text; `path` is relative to the top."""
    return (ROOT / path).read_text(encoding="utf-8")


def module_name(path: Path) -> str:
    """The import name of a source file."""
    parts = list(path.with_suffix("").parts)
    for length in (2, 1):
        folder = "/".join(parts[:length])
        if folder in PACKAGES:
            parts[:length] = PACKAGES[folder].split(".")
            break
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)
