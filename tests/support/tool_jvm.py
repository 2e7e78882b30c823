"""One JVM in which Kafka's tools and the Java programs of the tests run one after another.

The start of a JVM with Kafka's classes takes one to two seconds of a processor, a tool in one that
runs a tenth of that. The server in the JVM is tests/clients/java/Scripts.java.
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import hashlib
import select
import subprocess
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.java import java_command, kafka_libs
from tests.support.needs import need_command
from tests.support.tree import ROOT

PROGRAMS = ("tests/clients/java", "tests/client", "tests/differential", "perf")
CLASSES = ROOT / "build" / "java-classes"


@cache
def program_classes() -> Path:
    """Return the folder of the compiled Java programs; compile them where they have changed."""
    sources = [path for folder in PROGRAMS for path in sorted((ROOT / folder).glob("*.java"))]
    digest = hashlib.sha256(str(kafka_libs()).encode())
    for path in sources:
        digest.update(path.read_bytes())
    folder = CLASSES / digest.hexdigest()[:16]
    CLASSES.mkdir(parents=True, exist_ok=True)
    with (CLASSES / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _compile(sources, folder)
    return folder


def _compile(sources: Sequence[Path], target: Path) -> None:
    compiler = need_command("javac", "openjdk-17-jdk-headless")
    unfinished = target.with_suffix(".new")
    command = [compiler, "-nowarn", "-d", str(unfinished), "-cp", f"{kafka_libs()}/*"]
    subprocess.run([*command, *map(str, sources)], check=True, timeout=240)
    unfinished.rename(target)


class Ended(NamedTuple):
    """How a main method ended: exit status, standard output and standard error."""

    status: int
    out: str
    err: str


class ToolJvm:
    """A JVM that starts with the first main method it is given."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def run(
        self, main_class: str, words: Sequence[str], stdin: str = "", timeout_s: float = 120
    ) -> Ended:
        """Run a main method to its end. Raise TimeoutError, and end the JVM, where it takes longer.
        """
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            parts = [base64.b64encode(w.encode()).decode() for w in (main_class, stdin, *words)]
            process.stdin.write(" ".join(parts) + "\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], timeout_s)
            if not ready:
                self.close()
                raise TimeoutError(f"not within {timeout_s:g} s: {main_class} {' '.join(words)}")
            answer = process.stdout.readline()
            assert answer, f"the JVM ended with {process.wait(60)}: {main_class} {' '.join(words)}"
            status, out, err = answer.removesuffix("\n").split(" ")
            return Ended(int(status), *(base64.b64decode(part).decode() for part in (out, err)))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                java_command("Scripts", classes=program_classes()),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End the JVM."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


@cache
def tool_jvm() -> ToolJvm:
    """Return the JVM of this process; it ends with the process."""
    made = ToolJvm()
    atexit.register(made.close)
    return made


def program_output(main_class: str, *words: str, stdin: str = "", timeout_s: float = 240) -> str:
    """Return what a Java program of the tests prints; fail where its exit status is not zero."""
    done = tool_jvm().run(main_class, words, stdin, timeout_s)
    assert done.status == 0, f"{main_class} {words}: {done.out[-2000:]}\n{done.err[-2000:]}"
    return done.out
