"""Debian systems in folders: made by mmdebstrap, entered by chroot, booted by systemd-nspawn.

A base system of a release is made once and kept for a week in ~/.cache/kbroker/roots; every root is
unpacked from it. What runs in one has process and mount namespaces of its own, so that nothing of
it outlives the call, and for brokers a network of its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import missing, need_command
from tests.support.rounds import scaled
from tests.support.waits import wait_for

#: Each takes minutes to build for, install and boot: the one with the oldest Python and systemd,
#: and with FULL=1 the other.
RELEASES = scaled(("bookworm",), full=("bookworm", "trixie"))
CACHE = Path.home() / ".cache" / "kbroker" / "roots"
_OLD_S = 7 * 24 * 3600
_LONG_S = 1800.0
_BOOT_S = 300.0
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

_APART = """
set -e
mount --make-rprivate /
# What is mounted here, too, stays so for as long as this runs: tests take loop devices off theirs.
grep ^/dev/loop /proc/mounts | while read -r _ place _; do
    case "$ROOT/" in "${place%/}"/*) continue ;; esac
    case "$BIND" in "${place%/}"/*) continue ;; esac
    umount --lazy "$place" 2>/dev/null || :
done
"""
_BOOT = _APART + 'exec "$@"'
_ENTER = _APART + """
mount -t proc proc "$ROOT/proc"
mount -t tmpfs tmp "$ROOT/run"
for device in null zero full random urandom; do
    [ -e "$ROOT/dev/$device" ] || touch "$ROOT/dev/$device"
    mount --bind "/dev/$device" "$ROOT/dev/$device"
done
[ -z "$BIND" ] || mount --bind "${BIND%:*}" "$ROOT${BIND#*:}"
[ -z "$ALONE" ] || ip link set lo up
exec chroot "$ROOT" /bin/sh -c "$COMMAND"
"""


class Root:
    """One system in a folder."""

    def __init__(self, path: Path, release: str) -> None:
        self.path = path
        self.release = release

    def run(
        self, command: str, *, alone: bool = False, check: bool = True, bind: str = "",
        timeout_s: float = _LONG_S,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a line of sh. `alone`: without any network but a loopback of its own. `bind` is
        FOLDER:PLACE, a folder of ours that is seen there."""
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        if alone:
            words.append("--net")
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive",
            "ROOT": str(self.path), "COMMAND": command, "BIND": bind, "ALONE": "1" * alone,
        }  # fmt: skip
        done = subprocess.run(
            [*words, "sh", "-c", _ENTER], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s,
            check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
        return done

    def install(self, *packages: str, options: str = "--no-install-recommends") -> None:
        """Install packages of the release, or files."""
        self.run(f"apt-get -q update && apt-get -q -y {options} install {' '.join(packages)}")

    @contextmanager
    def booted(self) -> Iterator[Booted]:
        """The system with its systemd as process 1, without a network but loopback."""
        nspawn = need_command("systemd-nspawn", "systemd-container")
        with (self.path.parent / f"{self.path.name}.boot").open("wb") as log:
            container = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", _BOOT, "sh",
                 nspawn, "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot",
                 "--console=pipe", f"--directory={self.path}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
                     "ROOT": str(self.path), "BIND": ""},
            )  # fmt: skip
        try:
            system = Booted(container)
            wait_for("the system runs", system.is_up, _BOOT_S, 0.5)
            yield system
            system.run("systemctl poweroff")
            container.wait(_BOOT_S)
        finally:
            container.kill()
            container.wait()


class Booted:
    """A system that runs under its own systemd."""

    def __init__(self, container: subprocess.Popen[bytes]) -> None:
        self._container = container

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a line of sh in it; its output."""
        assert self._container.poll() is None, "the container has ended"
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children")
        init = children.read_text().split()[0]
        done = subprocess.run(
            ["nsenter", "--target", init, "--all", "--", "/bin/sh", "-c", command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=_LONG_S, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
        return done.stdout

    def is_up(self) -> bool:
        """True once all that was to be started at boot has been."""
        assert self._container.poll() is None, "the container has ended"
        try:
            told = self.run("systemctl is-system-running", check=False)
        except IndexError:  # process 1 is not there yet
            return False
        return told.strip() in ("running", "degraded")


def need_roots() -> None:
    """Skips where no root can be made."""
    if os.geteuid() != 0:
        missing("root", "it: run as root")
    need_command("mmdebstrap", "mmdebstrap")
    need_command("unshare", "util-linux")
    need_command("ip", "iproute2")


def _base(release: str, name: str, packages: tuple[str, ...]) -> Path:
    """The archive of a system with some packages."""
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"{release}-{name}.tar"
    with (CACHE / f"{archive.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists() and time.time() - archive.stat().st_mtime < _OLD_S:
            return archive
        fresh = archive.with_suffix(".new.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase"]
        if packages:
            command.append(f"--include={','.join(packages)}")
        done = subprocess.run(
            [*command, release, str(fresh)], capture_output=True, text=True, timeout=_LONG_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        fresh.replace(archive)
    return archive


def make_root(path: Path, release: str, *packages: str, name: str = "base") -> Root:
    """A fresh system in the folder `path`; `name` is that of what the packages make of it."""
    need_roots()
    archive = _base(release, name, packages)
    path.mkdir(parents=True)
    subprocess.run(["tar", "-C", str(path), "-xpf", str(archive)], check=True, timeout=_LONG_S)
    shutil.copy("/etc/resolv.conf", path / "etc" / "resolv.conf")
    if _CERTIFICATES.exists():  # a mirror of packages may have a certificate of its own
        (path / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
        shutil.copy(_CERTIFICATES, path / str(_CERTIFICATES)[1:])
    return Root(path, release)
