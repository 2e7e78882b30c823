"""`make test` after a run with failures: the few tests that failed run once more, alone.

    python -m tests.again CACHE_DIR STATUS

CACHE_DIR is the first run's cache of pytest, STATUS what it exited with. Thousands of tests start
real brokers and foreign clients on two processors and wait for them with deadlines; what fails
beside others and passes alone is told by name at the end, to be mended, and does not fail the run.
What fails twice does, as does everything where more than a few failed, which is no chance, or where
a broker crashed: compiled code did that, and passing again excuses nothing. Apache Kafka's own
build has this rule (`maxTestRetries`, `maxTestRetryFailures`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILURES_MAX = 3
CRASHES = "crashes"  # in the cache; `make test` names it to the brokers' processes
TESTS_FAILED = 1  # pytest's exit status; all others are an interruption or a wrong call


def failed(cache: Path) -> list[str]:
    """Names of the tests that the run with this cache left as failed."""
    try:
        return sorted(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except FileNotFoundError:
        return []


def crashed(cache: Path) -> str:
    """What the run with this cache tells of brokers that a fault of their own ended."""
    try:
        return (cache / CRASHES).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def main(cache: Path, status: int) -> int:
    names = failed(cache)
    if status != TESTS_FAILED or not 0 < len(names) <= FAILURES_MAX:
        return status
    if told := crashed(cache):
        print(f"\nnot once more: brokers crashed\n{told}", end="")
        return status
    print(f"\nonce more, alone: {len(names)} that failed", flush=True)
    again = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", "--last-failed"]
    status = subprocess.run(again, check=False).returncode
    still = set(failed(cache))
    for name in names:
        print(f"{'FAILED TWICE' if name in still else 'UNSTEADY (passed alone)'}: {name}")
    return status


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2])))
