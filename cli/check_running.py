"""What `kbroker check` finds of a broker that runs: answers, partitions, limits of its process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker import runfile
from kbroker.cli.cluster_health import look, troubles, unseen_text
from kbroker.cli.finding import FAILED, FILES_LOW, OK, WARNING, Finding, files_text
from kbroker.cli.options import asked
from kbroker.cli.scrape import beyond_looking, lives, state_troubles

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = ["running_findings"]

_ANSWER_S = 10.0
_PROTOCOL_MAP = "listener.security.protocol.map"
_WHO_GETS_IN = ("ssl.client.auth", "sasl.enabled.mechanisms")
_NEAR = 0.8  # of a limit
_LOOK_INSIDE = "`kbroker cluster health` with -X or --profile looks inside"


def running_findings(info: runfile.RunInfo, *, exposure: bool) -> Iterator[Finding]:
    """In the order in which they matter. exposure: also who gets in unasked, as no settings that
    tell of listeners were given."""
    yield from _answers(info, exposure)
    if info.produce_refused:
        yield Finding("produce", FAILED, f"refused: {info.produce_refused} is reached")
    for name, trouble in state_troubles(info).items():
        if trouble:
            yield Finding(name, FAILED, trouble)
    if info.durability != "fsync":
        text = f"{info.durability}: a power cut may take back acknowledged records"
        yield Finding("durability", WARNING, text)
    process = Path(f"/proc/{info.pid}")
    yield from _open_files(process)
    yield from _maps(process)


def _answers(info: runfile.RunInfo, exposure: bool) -> Iterator[Finding]:
    from kbroker.client.cluster import Cluster
    from kbroker.client.errors import KafkaError

    if not info.listeners:
        return
    address, plain = asked(info)
    if not plain:
        yield _guarded(info, address)
        return
    began = time.perf_counter()
    try:
        with Cluster(address, timeout_s=_ANSWER_S) as cluster:
            told = look(cluster)
            open_ = _exposed(cluster, info.listeners) if exposure else None
    except (KafkaError, ValueError) as error:
        yield Finding("answers", FAILED, f"{address}: {error}")
        return
    took_ms = (time.perf_counter() - began) * 1e3
    yield Finding("answers", OK, f"{address}, all that was asked in {took_ms:.0f} ms")
    wrong = list(troubles(told))
    text = "; ".join(wrong) if wrong else f"{told['partitions']}, all led and in sync"
    yield Finding("partitions", OK if told["healthy"] else FAILED, text)
    if told["log_dirs_unseen"]:
        yield Finding("log directories", WARNING, unseen_text(told))
    if open_:
        yield Finding("exposure", WARNING, open_)


def _guarded(info: runfile.RunInfo, address: str) -> Finding:
    """Whether a broker lives whose listeners all ask for logins."""
    if lives(info):
        return Finding("answers", OK, f"it lives; {address} asks who one is: {_LOOK_INSIDE}")
    if unseen := beyond_looking(info, address):
        return Finding("answers", WARNING, unseen)
    return Finding("answers", FAILED, f"{address}: neither it nor the HTTP listener answers")


def _exposed(cluster: Cluster, listeners: Sequence[str]) -> str | None:
    """What a start would tell of open listeners, to who may see the settings and the users."""
    from kbroker.cli.brokers import known_broker
    from kbroker.client.admin_configs import BROKER, describe_configs
    from kbroker.client.admin_users import describe_scram_users
    from kbroker.client.errors import AuthorizationError
    from kbroker.config import BrokerConfig
    from kbroker.server.exposure import RIGHTS, open_line

    try:
        entries = describe_configs(cluster, BROKER, str(known_broker(cluster, None)))
        users = bool(describe_scram_users(cluster))
    except AuthorizationError:
        return None
    static = {
        entry.name: entry.value or ""
        for entry in entries
        if not entry.is_default
        and (entry.name in {_PROTOCOL_MAP, *RIGHTS} or entry.name.endswith(_WHO_GETS_IN))
    }
    static["listeners"] = ",".join(listeners)
    # What is advertised does not matter here, but that it is no 0.0.0.0.
    names = [one.partition("://")[0] for one in listeners]
    static["advertised.listeners"] = ",".join(f"{name}://localhost:1" for name in names)
    static["inter.broker.listener.name"] = names[0]
    return open_line(BrokerConfig(static), users=users)


def _open_files(process: Path) -> Iterator[Finding]:
    try:
        count = len(os.listdir(process / "fd"))
        limits = (process / "limits").read_text().splitlines()
    except OSError:
        yield Finding("open files", WARNING, "the process is another user's: not to be seen")
        return
    soft = next(line.split()[3] for line in limits if line.startswith("Max open files"))
    limit = int(soft) if soft.isdigit() else None
    near = limit is not None and count > limit * _NEAR
    low = limit is not None and limit < FILES_LOW
    text = f"{count} of {soft}" + (files_text() if near or low else "")
    yield Finding("open files", WARNING if near or low else OK, text)


def _maps(process: Path) -> Iterator[Finding]:
    try:
        with (process / "maps").open() as lines:
            count = sum(1 for _ in lines)
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return
    near = count > most * _NEAR
    text = f"{count} of vm.max_map_count {most}; two for each segment in use"
    yield Finding("memory maps", WARNING if near else OK, text)
