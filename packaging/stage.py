"""`python stage.py ROOT PYTHON`: what of a Debian package is not a wheel's.

ROOT/opt/kbroker is an environment that pip has filled. It is made to find itself wherever it lies:
its commands look for the interpreter beside themselves, and the interpreter is a link to PYTHON.
Then the links in /usr/bin, files of /etc and sysctl.d, and in debian/ beside this tree what
debhelper looks for there: units, sysusers, defaults, preinst with the feature levels of this one.
"""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from kbroker.metadata.features import SUPPORTED

HERE: Final = Path(__file__).resolve().parent
DEBIAN: Final = HERE.parent / "debian"

# The code stands between single quotes of sh.
SCRIPT: Final = """\
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/{python}" -I -c '{code}' "$@"
"""
COMMAND: Final = "import sys; from {module} import {function}; sys.exit({function}())"
# Name and level of each feature of a data directory, one a line.
LEVELS: Final = """
import sys
from pathlib import Path
from kbroker.metadata.store import load_image

for name, level in load_image(Path(sys.argv[1])).features.items():
    print(name, level)
"""


def make_relocatable(env: Path, python: str) -> dict[str, Path]:
    """The commands by their names."""
    commands = {}
    for path in (env / "bin").iterdir():
        path.unlink()
    (env / "bin" / "python").symlink_to(python)
    shutil.rmtree(env / "include", ignore_errors=True)
    (env / ".gitignore").unlink(missing_ok=True)  # venv's, from CPython 3.13 on
    (env / "pyvenv.cfg").write_text(
        f"home = {Path(python).parent}\ninclude-system-site-packages = false\n"
    )
    for one in entry_points(group="console_scripts"):
        if one.dist is None or one.dist.name != "kbroker":
            continue
        module, _, function = one.value.partition(":")
        commands[one.name] = env / "bin" / one.name
        code = COMMAND.format(module=module, function=function)
        put(commands[one.name], SCRIPT.format(python="python", code=code), mode=0o755)
    script = SCRIPT.format(python="../bin/python", code=LEVELS)
    put(env / "libexec" / "levels", script, mode=0o755)
    for found in env.rglob("direct_url.json"):  # where it was built
        found.unlink()
    return commands


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file where there may be no folder yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def main(root: Path, python: str) -> None:
    """See the module."""
    commands = make_relocatable(root / "opt" / "kbroker", python)
    (root / "usr" / "bin").mkdir(parents=True, exist_ok=True)
    for name, path in commands.items():
        (root / "usr" / "bin" / name).symlink_to(f"/{path.relative_to(root)}")
    put(root / "etc" / "kbroker" / "server.properties", (HERE / "server.properties").read_text())
    sysctl = HERE / "sysctl.d" / "30-kbroker.conf"
    put(root / "usr" / "lib" / "sysctl.d" / sysctl.name, sysctl.read_text())
    for unit in (HERE / "systemd").iterdir():
        shutil.copy(unit, DEBIAN / unit.name)
    shutil.copy(HERE / "default", DEBIAN / "kbroker.default")
    levels = "\n".join(f"{name} {low} {high}" for name, (low, high) in SUPPORTED.items())
    preinst = (DEBIAN / "kbroker.preinst.in").read_text()
    version = (DEBIAN / "changelog").read_text().partition("(")[2].partition(")")[0]
    preinst = preinst.replace("#LEVELS#", levels).replace("#VERSION#", version)
    put(DEBIAN / "kbroker.preinst", preinst, mode=0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
