"""An ext4 of its own in a file, mounted over a loop device: it can lose its power, and be full."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waits import wait_for

#: EXT4_IOC_SHUTDOWN, and its flag for "do not even flush the journal": from that moment on nothing
#: reaches the disk, as if its power had been cut.
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2


class LoopFilesystem:
    """Mounted while in use as a context manager; unmounted and removed afterwards.

    With `write_cache` its device forgets, when the power goes, what it was not told to flush, as
    disks do: the image lies in a file system of the same kind, in whose page cache a write stays
    until the loop device passes a flush on. Without, what was written past the page cache by
    O_DIRECT is safe at once, and a flush that is forgotten is never missed.
    """

    def __init__(self, folder: Path, size_mib: int, write_cache: bool = False) -> None:
        self.path = folder / "disk"
        self.size_mib = size_mib
        self.device = LoopFilesystem(folder / "device", size_mib + 64) if write_cache else None
        self.image = (self.device.path if self.device else folder) / "disk.img"

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True)
        if self.device:
            self.device.__enter__()
        with self.image.open("wb") as image:
            image.truncate(self.size_mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self.image], check=True)
        self.mount()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.path.ismount(self.path):
            # Lazily: a broker that a failed test has left running must not keep it mounted.
            subprocess.run(["umount", "--lazy", self.path], check=True)
        if self.device:
            self.device.__exit__(kind, error, trace)
        else:
            self.image.unlink()

    def mount(self) -> None:
        # Of two at once that find the same loop device free one fails.

        def mounted() -> bool:
            command = ["mount", "-o", "loop", self.image, self.path]
            return subprocess.run(command, check=False, capture_output=True).returncode == 0

        wait_for(f"{self.path} is mounted", mounted, 60, 0.1)

    def unmount(self) -> None:
        # The kernel lets go of a loop device over an image in it a little after its own unmount.

        def unmounted() -> bool:
            command = ["umount", self.path]
            return subprocess.run(command, check=False, capture_output=True).returncode == 0

        wait_for(f"{self.path} is unmounted", unmounted, 60, 0.1)

    def sync(self) -> None:
        """Brings all that was written so far to the disk."""
        subprocess.run(["sync", "-f", self.path], check=True)

    def cut_power(self) -> None:
        """What was not synced is gone; who has files open gets EIO from now on."""
        if self.device:
            self.device.cut_power()
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def restore_power(self) -> None:
        """Mounts again what reached the disk; nothing may have it open."""
        self.unmount()
        if self.device:
            self.device.restore_power()
        self.mount()

    def free_bytes(self) -> int:
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize
