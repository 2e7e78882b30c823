"""The Debian package, built in a root of its release, and variants of it.

Compiled there like `make deb` does it. KBROKER_TEST_WHEELS=FOLDER, for who works on these tests,
has wheels of each release's Python taken instead.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tests.support.roots import make_root, need_roots
from tests.support.tree import ROOT

BUILD_PACKAGES = (
    "build-essential", "ca-certificates", "ccache", "debhelper", "lintian", "python3-dev",
    "python3-venv",
)  # fmt: skip
_FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "CHANGELOG.md")
_GRAFT = "graft "


class Built:
    """A package with what lintian said of it."""

    def __init__(self, path: Path, lintian: str) -> None:
        self.path = path
        self.lintian = lintian


@cache
def built(release: str) -> Built:
    """`packaging/deb.sh` run in a root of the release; once for the whole run."""
    need_roots()
    home = Path(mkdtemp(prefix=f"kbroker-deb-{release}-", dir=os.environ.get("KBROKER_TEST_TMP")))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    root = make_root(home / "root", release, *BUILD_PACKAGES, name="build")
    tree = root.path / "build"
    tree.mkdir()
    ignore = shutil.ignore_patterns("*.so", "*.cpp", "__pycache__", "testing*")
    for line in (ROOT / "MANIFEST.in").read_text().splitlines():
        if line.startswith(_GRAFT):
            name = line.removeprefix(_GRAFT)
            shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in _FILES:
        shutil.copy(ROOT / name, tree / name)
    compiled = Path(os.environ.get("CCACHE_DIR", Path.home() / ".cache" / "ccache"))
    compiled.mkdir(parents=True, exist_ok=True)
    (root.path / "ccache").mkdir()
    wheel = ""
    if "KBROKER_TEST_WHEELS" in os.environ:
        tag = {"bookworm": "cp311", "trixie": "cp313"}[release]
        (found,) = Path(os.environ["KBROKER_TEST_WHEELS"]).glob(f"kbroker-*-{tag}-*.whl")
        wheel = f"KBROKER_WHEEL=/{Path(shutil.copy(found, root.path)).name}"
    root.run(
        f"export {wheel} CCACHE_DIR=/ccache CC='ccache gcc' CXX='ccache g++' "
        f"KBROKER_BUILD_JOBS={os.environ.get('KBROKER_BUILD_JOBS', '0')} "
        "PIP_CERT=/etc/ssl/certs/ca-certificates.crt && cd /build && packaging/deb.sh /out",
        bind=f"{compiled}:/ccache",
    )  # fmt: skip
    told = root.run("lintian --fail-on none --tag-display-limit 0 /out/*.deb").stdout
    (package,) = (root.path / "out").glob("*.deb")
    kept = Path(shutil.copy(package, home / package.name))
    shutil.rmtree(root.path)
    return Built(kept, told)


def variant(deb: Path, folder: Path, version: str, levels: tuple[str, str] | None = None) -> Path:
    """The package with another version; `levels` replaces a line of those that its preinst
    knows."""
    unpacked = folder / f"kbroker-{version}"
    subprocess.run(["dpkg-deb", "-R", str(deb), str(unpacked)], check=True)
    control = unpacked / "DEBIAN" / "control"
    text = control.read_text()
    (before,) = re.findall(r"^Version: (.*)$", text, re.MULTILINE)
    control.write_text(text.replace(f"Version: {before}", f"Version: {version}"))
    preinst = unpacked / "DEBIAN" / "preinst"
    script = preinst.read_text()
    assert before in script
    script = script.replace(before, version)
    if levels is not None:
        assert levels[0] in script
        script = script.replace(*levels)
    preinst.write_text(script)
    made = folder / f"kbroker_{version}.deb"
    # Quick to make; the test is not about how small it is.
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", str(unpacked), str(made)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(unpacked)
    return made
