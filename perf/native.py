"""The two C programs, compiled on the fly into build/perf, and one run of the load generator."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "perf"
BUILD = ROOT / "build" / "perf"

#: The CRC instructions, which the oldest processor of the architecture need not have.
MACHINE_FLAGS = {"x86_64": ["-msse4.2"], "aarch64": ["-march=armv8-a+crc"]}
DRAIN_TIMEOUT_S = 30.0

Figures = dict[str, float]


def program(name: str) -> Path:
    """The compiled program of perf/NAME.c; compiles it where it is older than its sources."""
    target = BUILD / name
    newest = max(path.stat().st_mtime for path in SOURCES.glob("*.[ch]"))
    if target.exists() and target.stat().st_mtime >= newest:
        return target
    BUILD.mkdir(parents=True, exist_ok=True)
    flags = MACHINE_FLAGS.get(platform.machine())
    if flags is None:
        raise SystemExit(f"perf measures on x86-64 and aarch64, not on {platform.machine()}")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-O2", *flags, "-o", str(target), str(SOURCES / f"{name}.c")]
    subprocess.run(command, check=True)
    return target


def load(mode: str, port: int, pid: int, seconds: float, *arguments: object) -> Figures:
    """One run of load.c. Its exit status only repeats what `errors` and `lost` say."""
    command = [program("load"), mode, port, pid, f"{seconds:g}", *arguments]
    done = subprocess.run(
        [str(word) for word in command], check=False, capture_output=True, text=True,
        timeout=seconds + DRAIN_TIMEOUT_S,
    )  # fmt: skip
    if not done.stdout:
        raise RuntimeError(f"load {mode}: {done.stderr.strip()}")
    figures: Figures = json.loads(done.stdout)
    return figures


def is_sound(figures: Figures) -> bool:
    """A figure with an error or a lost answer is no figure."""
    return figures["errors"] == 0 and figures["lost"] == 0
