"""The code blocks of pages, so that tests can run what people will copy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ADDRESSES = ("localhost:9092", "127.0.0.1:9092")
TIMEOUT_S = 120
_END = "\x1e"

_RUNNER = f"""
import runpy, sys
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
    print(end={_END!r}, flush=True)
"""


class Block(NamedTuple):
    """A fenced block, under its two nearest headings (`##`, `###`) and at its first line."""

    section: str
    part: str
    line: int
    code: str


def blocks(page: Path, language: str = "python") -> list[Block]:
    """The blocks of a language, in order."""
    found: list[Block] = []
    section = part = ""
    fence, start, code = None, 0, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if fence is not None:
            if line == "```":
                if fence == language:
                    found.append(Block(section, part, start, "\n".join(code) + "\n"))
                fence = None
            else:
                code.append(line)
        elif line.startswith("```"):
            fence, start, code = line.removeprefix("```"), number + 1, []
        elif line.startswith("## "):
            section, part = line.removeprefix("## "), ""
        elif line.startswith("### "):
            part = line.removeprefix("### ")
    return found


def run(page: Path, told: Sequence[Block], bootstrap: str, folder: Path) -> list[str]:
    """Runs blocks one after another in one new process, each as a program of its own; gives what
    each printed. A traceback has the page's line numbers."""
    paths = []
    for block in told:
        code = block.code
        for address in ADDRESSES:
            code = code.replace(address, bootstrap)
        path = folder / f"{page.stem}-{block.line}.py"
        path.write_text("\n" * (block.line - 1) + code)
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _RUNNER, *paths],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, f"{page.name}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout.split(_END)[:-1]
