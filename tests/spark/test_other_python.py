"""A worker of Spark that is another Python, without what the data source needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
from pyspark_kbroker import DefaultSource
source = DefaultSource({"kafka.bootstrap.servers": "localhost:9", "subscribe": "t"})
reader = source.reader(source.schema())
from pyspark_kbroker.ranges import OffsetRange
list(reader.read(OffsetRange("t", 0, 0, 1)))
"""
WRITE = """
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_kbroker import DefaultSource
source = DefaultSource({"kafka.bootstrap.servers": "localhost:9", "topic": "t"})
source.writer(StructType([StructField("value", BinaryType())]), False)
"""


@pytest.mark.parametrize("program", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize("fault", ["raise ImportError('numpy.core failed')", None])
def test_error_names_the_python_and_pyspark_python(
    tmp_path: Path, program: str, fault: str | None
) -> None:
    """pyarrow is broken there, made for another version, or it is not there at all."""
    blocked = "import sys; sys.modules['pyarrow'] = None\n" if fault is None else ""
    if fault is not None:
        (tmp_path / "pyarrow").mkdir()
        (tmp_path / "pyarrow" / "__init__.py").write_text(fault)
    done = subprocess.run(
        [sys.executable, "-c", blocked + program], check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {sys.executable}, the Python that Spark runs here")
    assert "set PYSPARK_PYTHON" in last
