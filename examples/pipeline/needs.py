"""What the pipeline needs that pip cannot bring. `make pipeline` asks before it installs anything:

    python3 -m examples.pipeline.needs FORMAT

With the standard library alone; exit status 1, and a line for each thing that is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from examples.pipeline import connector

#: The oldest Java that PySpark 4 runs on.
JAVA = 17
FORMATS = ("kbroker", "kafka")


def missing(name: str) -> list[str]:
    """What is not there for a run with format(name), each with what to do."""
    if name not in FORMATS:
        return [f"FORMAT={name}: there are {' and '.join(FORMATS)}"]
    found = [_java()]
    if name == "kafka" and not connector.folder().exists() and shutil.which("mvn") is None:
        found.append(
            'format("kafka") needs jars of Maven Central, and mvn is not there: install maven, or'
            " take FORMAT=kbroker, which needs none"
        )
    return [text for text in found if text]


def _java() -> str:
    """Empty where Java is as it has to be. Spark takes that of JAVA_HOME before that of PATH."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    told = f"install openjdk-{JAVA}-jre-headless or newer, or set JAVA_HOME"
    if program is None:
        return f"Spark needs Java {JAVA} or newer, and there is none: {told}"
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"Spark needs Java {JAVA} or newer, and {program} does not run ({error}): {told}"
    version = re.search(r'version "(\d+)', done.stderr)
    if version is not None and int(version[1]) < JAVA:
        return f"Spark needs Java {JAVA} or newer, and {program} is version {version[1]}: {told}"
    return ""


def main() -> int:
    """Exit status."""
    found = missing(*sys.argv[1:])
    for text in found:
        sys.stderr.write(f"make pipeline: {text}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
