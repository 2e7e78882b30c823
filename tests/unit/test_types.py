"""mypy --strict over what ships, and stubs that cannot lie."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.tree import ROOT, files_with, module_name, text_of

VIEW = ROOT / "build" / "view"

# What Cython adds to every module and class.
CYTHON_ADDS = r"""
.*\.__pyx_\w+__
.*\.__test__
.*\.__reduce_cython__
.*\.__setstate_cython__
.*\.__reduce__
.*\.__setstate__
"""


def run(*arguments):
    """Run a module of mypy over the linked tree, where `ext` and `cli` have their import names."""
    environment = dict(os.environ, MYPYPATH=str(VIEW))
    command = [sys.executable, "-m", *arguments]
    told = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.skipif(not VIEW.exists(), reason="not built in place: make build")
def test_mypy_strict():
    run("mypy", "-p", "kbroker", "-p", "pyspark_kbroker")


def modules_with_a_face():
    """Cython modules that Python can use: something in them is `def`, `cpdef` or a class."""
    face = re.compile(r"^(?:async def|def|cpdef|class|cdef class)\s", re.MULTILINE)
    return {path for path in files_with(".pyx") if face.search(text_of(path))}


def test_every_cython_module_with_a_face_has_a_stub():
    stubs = {path.with_suffix("") for path in files_with(".pyi") if path.parts[0] == "ext"}
    assert stubs == {path.with_suffix("") for path in modules_with_a_face()}


@pytest.mark.skipif(not VIEW.exists(), reason="not built in place: make build")
def test_stubs_tell_the_truth(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text(CYTHON_ADDS)
    modules = sorted(module_name(path) for path in modules_with_a_face())
    run(
        "mypy.stubtest",
        f"--allowlist={allowed}",
        "--ignore-unused-allowlist",
        "--ignore-disjoint-bases",
        *modules,
    )


def test_the_allowlist_holds_only_what_cython_adds():
    for line in CYTHON_ADDS.split():
        assert re.fullmatch(r"\.\*\\\.__[\w\\+]+__", line), line


GIVEN = """
from kbroker.client import Consumer, AsyncConsumer, OffsetAndMetadata, TopicPartition

async def commits(consumer: Consumer, other: AsyncConsumer) -> None:
    where = TopicPartition("t", 0)
    consumer.commit({("t", 0): 1})
    consumer.commit({where: OffsetAndMetadata(1)}, 5.0)
    plain: dict[tuple[str, int], int] = {("t", 0): 1}
    named: dict[TopicPartition, OffsetAndMetadata] = {where: OffsetAndMetadata(1)}
    mixed: dict[TopicPartition, OffsetAndMetadata | int] = {where: 1}
    consumer.commit(plain)
    consumer.commit(named)
    consumer.commit_async(mixed)
    await other.commit(plain)
    consumer.commit({"t": 1})  # type: ignore[arg-type]
"""


@pytest.mark.skipif(not VIEW.exists(), reason="not built in place: make build")
def test_what_can_be_committed_passes(tmp_path):
    example = tmp_path / "example.py"
    example.write_text(GIVEN)
    run("mypy", "--strict", "--warn-unused-ignores", "--follow-imports=silent", str(example))
