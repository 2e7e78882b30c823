"""The wheels in environments that have nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

from tests.support.needs import missing, need_command
from tests.support.rounds import scaled
from tests.support.tree import ROOT
from tests.support.waits import free_ports

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

DIST = ROOT / "dist"
#: Compiling takes two minutes for each: the oldest that is supported, and with FULL=1 all.
MINORS = scaled((11,), full=(11, 12, 13, 14))

# What a user of the wheel does first, by the command line and by the client, with the extras that
# are there; prints one line for each that is not.
WORK = """
import sys

from kbroker.client import Admin, Consumer, Producer
from kbroker.client.schema_registry import AvroSerializer

at = sys.argv[1]
with Admin(bootstrap_servers=at) as admin:
    admin.create_topic("t", partitions=2)
with Producer(bootstrap_servers=at, compression_type="zstd") as producer:
    producer.send_batch("t", [b"%d" % number for number in range(1000)])
with Consumer(bootstrap_servers=at, group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["t"])
    rows, columns = 0, None
    while rows < 1000:
        columns = consumer.poll_batch(30)
        rows += len(columns)
    print("rows", rows)
    try:
        print("arrow", columns.to_arrow().num_columns > 5)
    except ImportError as error:
        print("hint:", error)
try:
    AvroSerializer(None, '"string"')
except ImportError as error:
    print("hint:", error)
try:
    import pyspark_kbroker
except ImportError as error:
    print("hint:", error)
"""

# What a user of the extra `pytest` does first, and one of `spark`.
TEST = """
def test_orders(kbroker):
    kbroker.produce("orders", "two apples", key="alice")
    assert kbroker.records("orders")[0].value == b"two apples"
"""
SPARK = """
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
read = spark.read.format("kbroker").option("kafka.bootstrap.servers", sys.argv[1])
print("spark", read.option("subscribe", "t").load().count())
"""


def interpreters() -> dict[int, str]:
    """CPythons by their minor version, as the Makefile finds them."""
    command = ["make", "--no-print-directory", "-s", "-C", str(ROOT), "pythons"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = {}
    for python in told:
        code = "import sys; print(sys.version_info.minor)"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found[int(done.stdout)] = python
    return found


@cache
def wheels() -> dict[int, Path]:
    """`make wheel`, once; what it has left in dist/ where KBROKER_TEST_WHEELS is set."""
    if "KBROKER_TEST_WHEELS" not in os.environ:
        chosen = " ".join(path for minor, path in interpreters().items() if minor in MINORS)
        command = ["make", "-C", str(ROOT), "wheel", f"PYTHONS={chosen}"]
        subprocess.run(command, check=True, timeout=3000)
    return {
        minor: path
        for minor in MINORS
        for path in DIST.glob(f"kbroker-*-cp3{minor}-cp3{minor}-manylinux*.whl")
    }


def apart() -> dict[str, str]:
    """Nothing of the tree is found, whose path Spark's tests put into PYTHONPATH: pip would take
    kbroker for installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def environment(folder: Path, python: str, *packages: str) -> Path:
    """A virtual environment with packages; its commands."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True, env=apart())
    add(folder / "bin", *packages)
    return folder / "bin"


def add(commands: Path, *packages: str) -> None:
    """Install them as well."""
    pip = [str(commands / "pip"), "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, *packages], check=True, timeout=1800, env=apart())


def work(commands: Path, home: Path, *more: str) -> str:
    """What WORK prints, and programs after it, beside a broker of the environment."""
    (port,) = free_ports(1)
    home.mkdir()
    kbroker, data = str(commands / "kbroker"), ["--data-dir", str(home / "data")]

    def call(*words: str) -> str:
        """Not where the tree is, so that nothing of it is found."""
        done = subprocess.run(
            words, cwd=home, env={"PATH": os.environ["PATH"], "HOME": str(home)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    call(kbroker, "start", "--detach", *data, "--listen", f"127.0.0.1:{port}")
    try:
        told = "".join(
            call(str(commands / "python"), "-c", program, f"127.0.0.1:{port}")
            for program in (WORK, *more)
        )
        assert "t" in call(kbroker, "topic", "list", "-b", f"127.0.0.1:{port}").split()
        return told
    finally:
        call(kbroker, "stop", *data)


@pytest.mark.parametrize("minor", MINORS)
def test_a_wheel_is_all_that_is_needed(minor: int, tmp_path: Path) -> None:
    found = interpreters()
    if minor not in found:
        missing(f"CPython 3.{minor}", f"python3.{minor} with its headers")
    commands = environment(tmp_path / "env", found[minor], str(wheels()[minor]))
    told = work(commands, tmp_path / "bare")
    assert told.splitlines() == [
        "rows 1000",
        "hint: pyarrow is missing: pip install 'kbroker[columns]'",
        "hint: fastavro is missing: pip install 'kbroker[registry]'",
        "hint: pyspark is missing: pip install 'kbroker[spark]'",
    ]
    add(commands, f"{wheels()[minor]}[columns,registry,pytest]")
    assert work(commands, tmp_path / "full").splitlines() == [
        "rows 1000", "arrow True", "hint: pyspark is missing: pip install 'kbroker[spark]'"
    ]  # fmt: skip
    (tmp_path / "test_it.py").write_text(TEST)
    subprocess.run([str(commands / "pytest"), "-q", "test_it.py"], cwd=tmp_path, env=apart(),
                   check=True, timeout=600)  # fmt: skip


def test_the_data_source_of_a_wheel(tmp_path: Path) -> None:
    """PySpark finds it by itself, with what the extra brings."""
    need_command("java", "openjdk-17-jre-headless")
    minor, python = next(iter(interpreters().items()))
    commands = environment(tmp_path / "env", python, f"{wheels()[minor]}[spark,registry]")
    assert "spark 1000" in work(commands, tmp_path / "home", SPARK).splitlines()


def test_the_tag_is_what_the_code_needs(tmp_path: Path) -> None:
    """auditwheel finds nothing that an older system lacks, and nothing of the tests is shipped."""
    tool = ROOT / "build" / "wheel" / "tools" / "bin" / "auditwheel"
    for path in wheels().values():
        told = subprocess.run(
            [str(tool), "show", str(path)], capture_output=True, text=True, check=True
        ).stdout
        consistent = re.search(r"manylinux_2_(\d+)_", told.replace("\n", " "))
        assert consistent is not None, told
        assert f"manylinux_2_{consistent[1]}_" in path.name
        names = zipfile.ZipFile(path).namelist()
        assert not [name for name in names if "testing_" in name or name.endswith((".pyx", ".cpp"))]


def test_nothing_tells_where_it_was_built(tmp_path: Path) -> None:
    """No folder of this tree or of an interpreter of its own; no RUNPATH leads there either."""
    prefixes = {str(Path(python).resolve().parents[1]) for python in interpreters().values()}
    places = [os.fsencode(place) for place in {str(ROOT), *prefixes} - {"/usr", "/usr/local"}]
    paths = wheels().values()
    for path in paths:
        zipfile.ZipFile(path).extractall(tmp_path / path.stem)
    (sdist,) = DIST.glob("kbroker-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if any(place in path.read_bytes() for place in places)]
    objects = [path for path in files if path.suffix == ".so"]
    assert len(objects) > 10 * len(paths)
    told = subprocess.run(["readelf", "-d", *objects], capture_output=True, text=True, check=True)
    assert "RUNPATH" not in told.stdout and "RPATH" not in told.stdout


@pytest.mark.full  # compiles all of it once more, as the Debian package does
def test_the_sdist_builds_with_a_compiler_alone(tmp_path: Path) -> None:
    wheels()
    (sdist,) = DIST.glob("kbroker-*.tar.gz")
    python = next(iter(interpreters().values()))
    commands = environment(tmp_path / "env", python, str(sdist))
    assert work(commands, tmp_path / "home").startswith("rows 1000\n")
