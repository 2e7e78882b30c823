"""Small libraries in C that stand in front of the C library of a process, by LD_PRELOAD."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

SOURCES = Path(__file__).parent


def shared_library(name: str, folder: Path) -> Path:
    """Compiles tests/support/NAME.c into `folder`."""
    library = folder / f"{name}.so"
    if not library.exists():
        command = ["gcc", "-shared", "-fPIC", "-O1", "-pthread", "-o", str(library),
                   str(SOURCES / f"{name}.c"), "-ldl"]  # fmt: skip
        subprocess.run(command, check=True)
    return library


def preloaded(library: Path) -> str:
    """Return LD_PRELOAD for a process with the library in front. A sanitizer's runtime that this
    process has stays before it: it ends a process that loads it later."""
    return " ".join([*os.environ.get("LD_PRELOAD", "").split(), str(library)])


class Words:
    """Whole numbers of 64 bits in a file that a process under test has mapped as well."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        path.write_bytes(bytes(8 * count))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8 * count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._memory.close()

    def __getitem__(self, index: int) -> int:
        return int(struct.unpack_from("=q", self._memory, 8 * index)[0])

    def __setitem__(self, index: int, value: int) -> None:
        struct.pack_into("=q", self._memory, 8 * index, value)
