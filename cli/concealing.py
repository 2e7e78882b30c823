"""Takes secrets out of what `ps` and /proc tell of this process: its words and its environment as
it began with them, which stay in its memory as long as it lives."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["conceal"]

# Fields of /proc/PID/stat behind the name, from 0 (proc_pid_stat(5) counts from 3).
_ARG_START, _ARG_END, _ENV_START, _ENV_END = 45, 46, 47, 48


def conceal(words: Mapping[str, str], variable: str) -> None:
    """Writes `*` over the secret with which a word ends, also where the word is --OPTION=WORD, and
    over the value of a variable. Where the kernel does not let it, they stay."""
    secrets = {os.fsencode(word): len(os.fsencode(told)) for word, told in words.items()}
    begins = f"{variable}=".encode()
    with contextlib.suppress(OSError), Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        for at, word in _strings(_ARG_START, _ARG_END):
            told = word.partition(b"=")[2] if word.startswith(b"--") else word
            if size := secrets.get(word) or secrets.get(told):
                memory.seek(at + len(word) - size)
                memory.write(b"*" * size)
        for at, word in _strings(_ENV_START, _ENV_END):
            if word.startswith(begins):
                memory.seek(at + len(begins))
                memory.write(b"*" * (len(word) - len(begins)))


def _strings(start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """What stands between two places that the kernel names, with its addresses."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    at, size = int(fields[start]), int(fields[end]) - int(fields[start])
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        memory.seek(at)
        words = memory.read(size).split(b"\0")
    for word in words:
        yield at, word
        at += len(word) + 1
