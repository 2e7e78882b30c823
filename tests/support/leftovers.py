"""The temporary folder of a test session, and the check that nothing is left in it.

Tests, brokers and Java virtual machines get a folder of the session in place of /tmp. At the end it
must be empty, except for the libraries that JVMs unpack and that those which were killed leave.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.testing.home import close_home
from tests.support.tool_jvm import tool_jvm

#: What a JVM that does not know the folder leaves: libraries of codecs and of netty, figures.
_OF_JVMS = re.compile(r"(lib)?(snappy|zstd|lz4|netty)|hsperfdata|kbroker-tests-log4j")


def _files_of_jvms(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if _OF_JVMS.match(path.name)}


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the session a temporary folder; fail its last test where something is left."""
    tmp_path_factory.getbasetemp()  # pytest's own folders, which it removes, stay where they were
    system = Path(tempfile.gettempdir())
    before = _files_of_jvms(system)
    folder = Path(tempfile.mkdtemp(prefix="kbroker-tests-"))
    folder.chmod(0o755)  # some tests drop to another user
    of_jvms = folder / "java"
    of_jvms.mkdir()
    options = f"-Djava.io.tmpdir={of_jvms} -XX:-UsePerfData"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        # The java launcher prepends them to the command line of each JVM, and says so on stderr.
        patch.setenv("JDK_JAVA_OPTIONS", f"{options} {os.environ.get('JDK_JAVA_OPTIONS', '')}")
        yield folder
        close_home()
        tool_jvm().close()
    shutil.rmtree(of_jvms)
    left = [str(path) for path in folder.iterdir()]
    shutil.rmtree(folder, ignore_errors=True)
    left += [str(system / name) for name in _files_of_jvms(system) - before]
    assert not left, f"left in the temporary folder: {', '.join(sorted(left))}"
