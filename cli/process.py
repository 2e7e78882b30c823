"""`kbroker stop`, `status` and `version`: the broker process of a data directory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import click

from kbroker import __version__, runfile
from kbroker.cli import space
from kbroker.cli.directories import log_directories, main_directory
from kbroker.cli.options import SECONDS, asked, directories_option, output_option
from kbroker.cli.render import human_bytes, human_time, print_json
from kbroker.cli.scrape import beyond_looking, lives, state_troubles
from kbroker.errors import OperatorError

_POLL_S = 0.02
_ANSWER_TIMEOUT_S = 5.0
_SILENT = "neither its HTTP listener nor its port for clients"
_UNTOLD = "? (it asks who one is: `kbroker cluster health` with -X or --profile)"


@click.command()
@directories_option
@click.option(
    "--timeout",
    type=SECONDS,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for it to flush and exit.",
)
def stop(data_dir: tuple[Path, ...], timeout: float) -> int:
    """Stop the broker of a data directory: finish what is in flight, flush, exit."""
    place = main_directory(data_dir)
    pid = _pid_of(place)
    if pid is None:
        click.echo(f"no broker runs on {place}")
        return 0
    ticks = runfile.pid_ticks(pid)
    try:
        _end(place, pid)
    except ProcessLookupError:
        pass
    except PermissionError:
        click.echo(f"kbroker: the broker (pid {pid}) belongs to another user; try sudo", err=True)
        return 1
    deadline = time.monotonic() + timeout
    while ticks is not None and runfile.pid_ticks(pid) == ticks:
        if time.monotonic() > deadline:
            click.echo(
                f"kbroker: the broker (pid {pid}) is still flushing after {timeout:g} s;"
                " it goes on, look again with `kbroker status`",
                err=True,
            )
            return 1
        time.sleep(_POLL_S)
    click.echo(f"stopped the broker (pid {pid}) of {place}")
    return 0


@click.command()
@directories_option
@output_option
def status(data_dir: tuple[Path, ...], output: str) -> int:
    """Show the broker of a data directory. Exit status 0: it runs and answers, or at least takes
    connections where nobody is told more."""
    places = log_directories(data_dir)
    place = places[0]
    info = runfile.running(place)
    if info is None:
        return _not_serving(place, output)
    topics, offline, trouble, unseen = _asked(info)
    told: dict[str, Any] = {
        "pid": info.pid,
        "uptime_s": round(runfile.uptime_s(info), 1),
        "listeners": info.listeners,
        "http": info.http,
        "data_dir": str(place.resolve()),
        "further_dirs": list(map(str, places[1:])),
        "durability": info.durability,
        "topics": topics,
        "offline_partitions": offline,
        "rss_bytes": _rss_bytes(info.pid),
        "disk": space.told(space.measure(places), space.limits_of(place) if not trouble else None),
        "produce_refused": info.produce_refused,
        **state_troubles(info),
        "version": info.version,
        "log_file": info.log_file,
        "answers": None if unseen else trouble is None,
    }
    if output == "json":
        print_json(told)
    else:
        _print_status(told)
    if trouble is not None:
        click.echo(f"kbroker: it runs but does not answer: {trouble}", err=True)
        return 1
    if unseen is not None:
        click.echo(f"kbroker: it {unseen}", err=True)
    return 0


@click.command()
@output_option
def version(output: str) -> None:
    """Show the version."""
    if output == "json":
        print_json({"version": __version__})
    else:
        click.echo(f"kbroker {__version__}")


def _print_status(told: dict[str, Any]) -> None:
    durability = told["durability"]
    if durability != "fsync":
        durability += " (a power cut may take back acknowledged records)"
    lines = {
        "pid": told["pid"],
        "uptime": human_time(told["uptime_s"]),
        "listeners": ", ".join(told["listeners"]),
        "metrics": ", ".join(told["http"]) or None,
        "data dir": ", ".join([told["data_dir"], *told["further_dirs"]]),
        "durability": durability,
        "topics": _UNTOLD if told["topics"] is None else told["topics"],
        "offline": f"{told['offline_partitions']} partitions: the disk failed, the log says how"
        if told["offline_partitions"] else None,
        "memory": "?" if told["rss_bytes"] is None else f"{human_bytes(told['rss_bytes'])} RSS",
        "disk": space.disk_line(told["disk"]),
        "produce": told["produce_refused"] and f"refused, {told['produce_refused']} is reached",
        "groups": told["groups"],
        "transactions": told["transactions"],
        "version": told["version"],
        "log": told["log_file"] or "on its terminal or service manager",
    }
    for name, value in lines.items():
        if value is not None:
            click.echo(f"{name + ':':<12}{value}")


def _not_serving(place: Path, output: str) -> int:
    from kbroker.metadata.directories import is_further

    pid = _pid_of(place)
    if output == "json":
        print_json({"pid": pid, "data_dir": str(place), "answers": False})
    if pid is not None and is_further(place):
        text = f"process {pid} holds {place}, which has no metadata log; name its first directory"
        click.echo(f"kbroker: {text} with --data-dir", err=True)
    elif pid is not None:
        click.echo(f"kbroker: process {pid} holds {place} but does not serve yet", err=True)
    else:
        click.echo(f"kbroker: no broker runs on {place}; `kbroker start` runs one", err=True)
    return 1


def _pid_of(place: Path) -> int | None:
    """The process that holds a data directory: the broker that serves it, or one on its way."""
    info = runfile.running(place)
    if info is not None:
        return info.pid
    from kbroker.files import lock_holder

    return lock_holder(place) or None


def _end(place: Path, pid: int) -> None:
    """Send SIGTERM to a process if it is the broker of a data directory.

    The run file and the lock file that name it are the directory's owner's, who must not choose
    what root ends. Raise OperatorError for another process, ProcessLookupError or PermissionError.
    """
    descriptor = os.pidfd_open(pid)  # the checks and the signal are of one process
    try:
        owner, user = place.stat().st_uid, os.stat(f"/proc/{pid}").st_uid
        if user != owner and os.geteuid() == 0:
            raise OperatorError(
                f"process {pid}, which {place} names as its broker, is another user's than the "
                f"directory: it gets no signal. Where no broker runs, remove "
                f"{runfile.run_file(place)}"
            )
        with contextlib.suppress(PermissionError):  # another user's, whom the kernel protects
            if not runfile.has_open(pid, place / ".lock"):
                raise OperatorError(
                    f"process {pid}, which {place} names as its broker, does not hold the lock of "
                    f"the directory: it gets no signal. Where no broker runs, remove "
                    f"{runfile.run_file(place)}"
                )
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except FileNotFoundError:
        raise ProcessLookupError from None
    finally:
        os.close(descriptor)


def _asked(info: runfile.RunInfo) -> tuple[int | None, int | None, str | None, str | None]:
    """As `_topics`; of a broker that asks who one is, whether it lives, and last why that cannot be
    told."""
    address, plain = asked(info) if info.listeners else ("", True)
    if plain:
        return *_topics(address), None
    if lives(info):
        return None, None, None, None
    unseen = beyond_looking(info, address)
    return (None, None, None, unseen) if unseen else (None, None, _SILENT, None)


def _topics(address: str) -> tuple[int | None, int | None, str | None]:
    """How many topics the broker has and partitions without a leader, or why it does not tell."""
    from kbroker.client.cluster import Cluster
    from kbroker.client.errors import KafkaError

    try:
        with Cluster(address, timeout_s=_ANSWER_TIMEOUT_S) as cluster:
            topics = cluster.topics()
            offline = sum(part.leader < 0 for topic in topics for part in topic.partitions)
            return sum(not topic.internal for topic in topics), offline, None
    except (KafkaError, ValueError) as error:
        return None, None, str(error)


def _rss_bytes(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), None)
