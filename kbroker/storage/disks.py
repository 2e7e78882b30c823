"""The disks of all log directories: each has its own room, looked after by a guard of its own.

A directory that reaches its limits refuses produce to its own partitions and to no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kbroker.clock import Clock
from kbroker.storage.disk import DiskGuard, DiskLimits
from kbroker.storage.manager import LogManager


class SpacesPort(Protocol):
    """What is asked of the data plane (kbroker.ext.data_plane.DataPlane), of each directory."""

    def disk_bytes(self, place: int = 0) -> int: ...
    def set_disk_room(self, room: int | None, refusing: bool, place: int = 0) -> None: ...
    def disk_room(self, place: int = 0) -> int: ...
    def take_disk_room(self, size: int, place: int = 0) -> bool: ...
    def take_disk_wanted(self, place: int = 0) -> int: ...


class _Space:
    """The part of the data plane that is one directory's (kbroker.storage.disk.SpacePort)."""

    def __init__(self, port: SpacesPort, place: int) -> None:
        self._port = port
        self._place = place

    def disk_bytes(self) -> int:
        return self._port.disk_bytes(self._place)

    def set_disk_room(self, room: int | None, refusing: bool) -> None:
        self._port.set_disk_room(room, refusing, self._place)

    def disk_room(self) -> int:
        return self._port.disk_room(self._place)

    def take_disk_room(self, size: int) -> bool:
        return self._port.take_disk_room(size, self._place)

    def take_disk_wanted(self) -> int:
        return self._port.take_disk_wanted(self._place)


class DiskGuards:
    """See the module; the rules are DiskGuard's, the limits those of each directory."""

    def __init__(
        self,
        limits: DiskLimits,
        logs: LogManager,
        port: SpacesPort,
        spared: Iterable[str],
        clock: Clock,
    ) -> None:
        topics = list(spared)
        self._port = port
        self._guards = [
            DiskGuard(limits, logs, _Space(port, one.place), topics, clock, one)
            for one in logs.directories
        ]

    @property
    def refused_for(self) -> str | None:
        """The setting for which produce is refused, None where it is taken; of several directories
        with those that it is about."""
        found = [one for one in self._guards if one.refused_for is not None]
        if not found or len(self._guards) == 1:
            return found[0].refused_for if found else None
        return f"{found[0].refused_for} in {', '.join(str(one.directory) for one in found)}"

    @property
    def refusing(self) -> bool:
        """Whether produce is refused anywhere."""
        return any(one.refusing for one in self._guards)

    def used_bytes(self, place: int | None = None) -> int:
        """What the files of a data directory take; None: of all."""
        wanted = self._guards if place is None else [self._guards[place]]
        return sum(one.used_bytes() for one in wanted if one.directory.online)

    def await_room(self, size: int, place: int = 0) -> bool:
        """See DiskGuard."""
        return self._guards[place].await_room(size)

    def check(self, place: int) -> None:
        """One look at a directory that is served; a thread of its own for each calls this. Nobody
        waits for the room of one that is not, even if it failed in the middle of a look."""
        guard = self._guards[place]
        if guard.directory.online or place == 0:
            guard.check()
        if not guard.directory.online:
            self._port.set_disk_room(None, False, place)
