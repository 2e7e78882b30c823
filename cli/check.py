"""`kbroker check`: settings, data directory, disk and limits, before a broker is started on them
and while it runs.

Nothing is changed: the disk is tried with a file that is removed, in the data directory or, where
that is not there yet, in the folder where it would be made. Of a broker that runs its own limits
count, and whether it answers.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbroker import descriptors, runfile
from kbroker.cli.directories import log_directories
from kbroker.cli.finding import FAILED, FILES_LOW, OK, WARNING, Finding, files_text
from kbroker.cli.options import broker_options, data_dir_option, output_option
from kbroker.cli.places import service_file
from kbroker.cli.render import Column, human_bytes, print_rows
from kbroker.ports import bound
from kbroker.printable import host_port

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

_COLUMNS = [Column("check", "CHECK"), Column("verdict", "VERDICT"), Column("text", "WHAT IT IS")]

_FREE_LOW_BYTES = 1 << 30
_FREE_LOW_SHARE = 0.05
_MAPS_LOW = 65_530  # the kernel's default; two indexes a segment are mapped
_SYNC_SLOW_MS = 20.0
_NAMED_MAX = 5

# What records do not survive, or where locks and syncs are not what they seem.
_ODD = {
    "tmpfs": "in memory: everything is gone after a restart of the machine",
    "ramfs": "in memory: everything is gone after a restart of the machine",
    "overlay": "a container's own layer: it goes with the container; mount a volume",
    "nfs": "on the network: slow to sync, and locks depend on the server",
    "nfs4": "on the network: slow to sync, and locks depend on the server",
    "cifs": "on the network: slow to sync, and locks depend on the server",
    "9p": "shared with the host: slow to sync",
    "virtiofs": "shared with the host: slow to sync",
    "vfat": "without the names that topics need",
    "exfat": "without the names that topics need",
    "btrfs": "copies what is written anew; `chattr +C` on the empty directory helps",
    "zfs": "copies what is written anew",
}


@click.command()
@broker_options
@data_dir_option
@output_option
def check(
    config_file: Path | None, settings: tuple[str, ...], data_dir: tuple[Path, ...], output: str
) -> int:
    """Check settings, disk and limits before a start; of a broker that runs, whether it answers
    and what is left of its limits; without options, as root, of the service. Exit status 0: nothing
    speaks against it."""
    from kbroker.config import ConfigError, load_config

    config: BrokerConfig | None = None
    if config_file is None and not data_dir:
        config_file = service_file()
    try:
        config = load_config(config_file, settings)
        findings = [_config(config, config_file)]
    except ConfigError as error:
        findings = [Finding("settings", FAILED, line) for line in str(error).splitlines()]
    places = log_directories(data_dir or _data_dirs(config))
    findings += _findings(places, config, config_file)
    print_rows(_COLUMNS, [finding._asdict() for finding in findings], output)
    return 1 if any(finding.verdict == FAILED for finding in findings) else 0


def _findings(
    places: list[Path], config: BrokerConfig | None, config_file: Path | None
) -> Iterator[Finding]:
    place = places[0]
    for one in places:
        yield _directory(one, place)
        yield _file_system(_ground(one))
        yield from _of_several(one, places, _space(_ground(one), config))
    if config is not None and "listeners" in config.static:
        yield from _exposure(config)
    from kbroker.cli.check_clock import clock
    from kbroker.cli.check_permissions import permissions

    yield from permissions(place, config, config_file)
    yield clock(place)
    for one in places:
        if os.access(_ground(one), os.W_OK | os.X_OK):
            yield from _of_several(one, places, _writes(_ground(one)))
    yield from _strays([one for one in places if os.access(one, os.R_OK | os.X_OK)])
    info = runfile.running(place)
    if info is not None:
        from kbroker.cli.check_running import running_findings

        looked = config is not None and "listeners" in config.static
        yield from running_findings(info, exposure=not looked)
        return
    from kbroker.cli.check_contents import contents

    yield from contents(places, config)
    yield _open_files()
    yield _file_size(config)
    yield _maps()
    if config is not None and "listeners" in config.static:
        yield from _listeners(config)


def _config(config: BrokerConfig, config_file: Path | None) -> Finding:
    from kbroker.config import report

    where = str(config_file) if config_file else "defaults and options"
    ignored = report.ignored_line(config)
    return Finding("settings", OK, f"{where}, all valid" + (f"; {ignored}" if ignored else ""))


def _of_several(
    place: Path, places: list[Path], findings: Iterator[Finding]
) -> Iterator[Finding]:
    """Say which directory findings are of, where there are several."""
    for finding in findings:
        said = finding.text if len(places) == 1 else f"{place}: {finding.text}"
        yield finding._replace(text=said)


def _data_dirs(config: BrokerConfig | None) -> list[Path]:
    if config is None or not {"log.dirs", "log.dir"} & config.static.keys():
        return []
    return [Path(one) for one in config.log_dirs]


def _directory(place: Path, first: Path) -> Finding:
    """`first`: the directory with the metadata log, where the run file is."""
    info = runfile.running(first)
    if info is not None and place.is_dir():
        return Finding("data directory", OK, f"{place}, served by process {info.pid}")
    if place.is_dir():
        if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
            return Finding("data directory", FAILED, f"{place} is not this user's to write")
        return Finding("data directory", OK, f"{place}, no broker runs on it")
    ground = _ground(place)
    over = ground / place.absolute().relative_to(ground).parts[0]
    if over.exists():
        return Finding("data directory", FAILED, f"{over} is no directory")
    if not os.access(ground, os.W_OK | os.X_OK):
        return Finding(
            "data directory", FAILED, f"{place} is not there and {ground} cannot be written"
        )
    return Finding("data directory", OK, f"{place} is not there yet; a start makes it")


def _ground(place: Path) -> Path:
    """The directory itself, or the one in which it would be made."""
    found = place.absolute()
    while not found.is_dir() and found != found.parent:
        found = found.parent
    return found


def _file_system(ground: Path) -> Finding:
    found = _mount_of(ground)
    if found is None:
        return Finding("file system", WARNING, f"{ground}: what it is on cannot be told")
    where, kind, options = found
    if "ro" in options:
        return Finding("file system", FAILED, f"{kind} at {where} is mounted read-only")
    odd = _ODD.get(kind) or ("in user space: slow to sync" if kind.startswith("fuse") else None)
    return Finding("file system", WARNING if odd else OK,
                   f"{kind} at {where}" + (f", {odd}" if odd else ""))  # fmt: skip


def _mount_of(ground: Path) -> tuple[str, str, list[str]] | None:
    """Where the file system of a directory is mounted, its kind, and how it is mounted."""
    try:
        device = os.stat(ground).st_dev
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    resolved = str(ground.resolve())
    found = None
    longest = -1
    for line in lines:
        # id parent major:minor root mount-point options [optional...] - type source super-options
        before, _, after = line.partition(" - ")
        fields = before.split()
        point = fields[4].encode().decode("unicode_escape")
        under = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        number = os.makedev(*map(int, fields[2].split(":")))
        rank = len(point) + (1 << 20 if number == device else 0)
        if under and rank >= longest:
            longest = rank
            found = point, after.split()[0], fields[5].split(",")
    return found


def _space(ground: Path, config: BrokerConfig | None) -> Iterator[Finding]:
    disk = os.statvfs(ground)
    free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    text = f"{human_bytes(free)} of {human_bytes(whole)}"
    low = free < min(_FREE_LOW_BYTES, whole * _FREE_LOW_SHARE)
    kept = config.integer("kbroker.disk.free.bytes.min") if config is not None else 0
    if kept and free <= kept:
        yield Finding("free space", FAILED,
                      f"{text}; kbroker.disk.free.bytes.min keeps {human_bytes(kept)},"
                      " so produce will be refused")  # fmt: skip
    else:
        yield Finding("free space", WARNING if low else OK, text)
    if disk.f_files and disk.f_favail < FILES_LOW:
        yield Finding("free inodes", WARNING, f"{disk.f_favail}: each segment takes three")


def _writes(ground: Path) -> Iterator[Finding]:
    """What the journal needs: fallocate, O_DIRECT, and a sync that does not take long."""
    from kbroker.cli.check_disk import try_disk

    try:
        tried = try_disk(ground)
    except OSError as error:
        yield Finding("write", FAILED, f"{ground}: {error.strerror}")
        return
    if not tried.fallocate:
        yield Finding("fallocate", WARNING,
                      "the file system has none: blocks are written with zeros")  # fmt: skip
    if not tried.direct:
        yield Finding("O_DIRECT", WARNING, "the file system has none; synced writes cost more")
    slow = tried.sync_ms > _SYNC_SLOW_MS
    text = f"{tried.sync_ms:.2f} ms for 4 KiB (median of {tried.syncs})"
    yield Finding("sync", WARNING if slow else OK,
                  text + (", which each acks=all waits for" if slow else ""))  # fmt: skip


def _strays(places: list[Path]) -> Iterator[Finding]:
    """Folders that belong to no partition keep their space until somebody deletes them."""
    from kbroker.care.strays import find_strays

    try:
        found = [path.name for path in find_strays(places)]
    except OSError as error:
        yield Finding("stray folders", WARNING, f"{error.filename}: {error.strerror}")
        return
    if found:
        more = ", ..." if len(found) > _NAMED_MAX else ""
        yield Finding("stray folders", WARNING,
                      f"{len(found)} belong to no partition: {', '.join(found[:_NAMED_MAX])}{more};"
                      " `kbroker log strays` lists them")  # fmt: skip


def _open_files() -> Finding:
    """A broker raises the soft limit to the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = hard != resource.RLIM_INFINITY and hard < FILES_LOW
    text = f"{_limit(hard)} (soft limit {_limit(soft)}, which a start raises)"
    if low:
        text = f"{descriptors.arithmetic(hard, 0)}{files_text()}"
    return Finding("open files", WARNING if low else OK, text)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _file_size(config: BrokerConfig | None) -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    segment = config.integer("log.segment.bytes") if config is not None else 1 << 30
    if soft != resource.RLIM_INFINITY and soft < segment:
        return Finding("file size", FAILED,
                       f"ulimit -f allows {human_bytes(soft)}, a segment has"
                       f" {human_bytes(segment)}")  # fmt: skip
    return Finding("file size", OK, _limit(soft))


def _maps() -> Finding:
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return Finding("memory maps", WARNING, "vm.max_map_count cannot be read")
    low = most < _MAPS_LOW
    text = f"vm.max_map_count {most}, for about {most // 2} segments"
    return Finding("memory maps", WARNING if low else OK, text)


def _exposure(config: BrokerConfig) -> Iterator[Finding]:
    """Whether somebody on another machine gets in unasked, and who asks can be answered."""
    from kbroker.security import admission
    from kbroker.server.exposure import open_line

    for what, text in admission.mistakes(config):
        yield Finding(what, FAILED, text)
    line = open_line(config)
    verdict = WARNING if line else OK
    yield Finding("exposure", verdict, line or "nobody gets in unasked from outside")


def _listeners(config: BrokerConfig) -> Iterator[Finding]:
    """Whether addresses are this machine's and free."""
    for listener in config.listeners:
        name = f"{listener.name}://{host_port(listener.host, listener.port)}"
        try:
            bound(listener.host, listener.port).close()
        except OSError as error:
            yield Finding("listener", FAILED, f"{name}: {error.strerror or error}")
        else:
            yield Finding("listener", OK, f"{name} is free")
